"""Findings of files: what the kernel log says beside Xids, and links that only lspci shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from gpu_triage.diagnosis.evidence import thresholds
from gpu_triage.diagnosis.findings.finding import Finding
from gpu_triage.diagnosis.findings.table import BY_CODE
from gpu_triage.diagnosis.judges.kernel import TOLD, UNNAMED, first_of
from gpu_triage.host.kernel_messages import Trouble
from gpu_triage.offline.evidence import FilesOfHost
from gpu_triage.offline.kernel import Kind, What
from gpu_triage.offline.logs import Events, Happened, LogReading, when
from gpu_triage.offline.lspci import port_above
from gpu_triage.subjects.contract import GpuLabels
from gpu_triage.xid.events import OFF_THE_BUS

_SOME_CORRECTABLE: Final = 10
"""Corrected PCIe errors in a log: a link has one now and then. The kernel leaves most of a flood out."""
_SHOWN: Final = 3


def logged_findings(files: FilesOfHost, *, with_names: bool) -> Iterator[Finding]:
    """What else is wrong with the host; `with_names`: whether processes and servers are told by name."""
    answering = _answering(files)
    if files.log is not None:
        yield from _driver(files.log, files.labels, answering, loaded=bool(answering))
        yield from _off_the_bus(files.log)
        yield from _switches(files.log)
        yield from _pcie(files)
        yield from _host(files.log, with_names=with_names)
        yield from _killed(files.log, with_names=with_names)
    for index, error in files.unplaced.items():
        yield Finding(BY_CODE["gpu.lost"], f"nvidia-smi could not open it ({error})", index)
    yield from _held_by_nouveau(files, answering)
    yield from _links(files, answering)


def _answering(files: FilesOfHost) -> frozenset[str]:
    """Bus ids of the GPUs that nvidia-smi last showed well."""
    if not files.snapshots or files.driver_error is not None:
        return frozenset()
    return frozenset(gpu.bus_id for gpu in files.snapshots[-1].gpus if gpu.error is None) - set(files.lost)


def _of(code: str, address: str, labels: Mapping[str, GpuLabels], measured: str) -> Finding:
    """A finding about the GPU at an address, by its index where that is known."""
    known = labels.get(address)
    if known is not None:
        return Finding(BY_CODE[code], measured, known.gpu, known.uuid)
    return Finding(BY_CODE[code], measured, pci_bus_id=address)


def _driver(
    log: LogReading, labels: Mapping[str, GpuLabels], answering: frozenset[str], *, loaded: bool
) -> Iterator[Finding]:
    gsp = " (the GSP's firmware was among it)" if _some(log, Kind.GSP_FAILED) else ""
    failures: dict[str, list[tuple[str, Events]]] = defaultdict(list)
    for what, events in _of_kind(log, Kind.INIT_FAILED):
        failures[what.address].append((what.code, events))
    for address, failed in failures.items():
        # One that answers was initialised since; of one that is not named, all must.
        if address in answering or (not address and loaded):
            continue
        code, events = failed[-1]
        count = sum(each.count for _, each in failed)
        measured = f"RmInitAdapter failed ({code}){gsp}, {_count_and_last(count, events, log)}"
        yield _of("driver.init_failed", address, labels, measured)
    for what, events in _of_kind(log, Kind.BAR):
        if what.address not in answering:
            yield _of("driver.bar", what.address, labels, f"{what.code}, {_last(events, log)}")
    mismatched = [(what.code, events) for what, events in _of_kind(log, Kind.MISMATCH)]
    if mismatched and not loaded:
        versions = ", ".join(dict.fromkeys(code for code, _ in mismatched))
        measured = f"{versions}: {_last(mismatched[0][1], log)}"
        yield Finding(BY_CODE["driver.version_mismatch"], measured)


def _off_the_bus(log: LogReading) -> Iterator[Finding]:
    """A GPU that fell off the bus, where nothing tells which."""
    placed = any(what.kind is Kind.XID and what.code in ("", str(OFF_THE_BUS)) for what in log.events)
    for _, events in () if placed else _of_kind(log, Kind.OFF_THE_BUS):
        measured = f"the kernel log says that a GPU fell off the bus, and not which: {_last(events, log)}"
        yield Finding(BY_CODE["gpu.lost"], measured)


def _held_by_nouveau(files: FilesOfHost, answering: frozenset[str]) -> Iterator[Finding]:
    held = {
        device.bus_id: "lspci names it as the driver in use"
        for device in files.devices.values()
        if device.is_gpu and device.driver == "nouveau"
    }
    if files.log is not None and not answering:
        for what, events in _of_kind(files.log, Kind.NOUVEAU):
            device = files.devices.get(what.address)
            if device is None or device.driver in ("", "nouveau"):
                held.setdefault(what.address, f"it logged {_last(events, files.log)}")
    for address, how in held.items():
        if address not in answering:
            yield _of("driver.nouveau", address, files.labels, how)


def _switches(log: LogReading) -> Iterator[Finding]:
    """One finding for each severity, all switches and codes together."""
    found: dict[str, list[tuple[What, Events]]] = defaultdict(list)
    for what, events in _of_kind(log, Kind.SXID):
        last = events.last
        age = 0.0 if last is None or last.wall is None else log.reference - last.wall
        is_fatal = what.fatal is True and age <= thresholds.XID_DAMAGE_SECONDS
        if what.fatal is None and any(
            other.address == what.address and other.code == what.code and other.fatal is not None
            for other in log.events
        ):
            continue  # its details, line by line
        found["nvswitch.sxid_fatal" if is_fatal else "nvswitch.sxid"].append((what, events))
    for code, seen in found.items():
        shown = [
            f"SXid {what.code}{_FATAL[what.fatal]} of the switch at {what.address}, "
            f"{_count_and_last(events.count, events, log)}"
            for what, events in seen[:_SHOWN]
        ]
        more = f"; {len(seen) - _SHOWN} more" if len(seen) > _SHOWN else ""
        yield Finding(BY_CODE[code], "; ".join(shown) + more)


_FATAL: Final[Mapping[bool | None, str]] = {None: "", True: " (fatal)", False: " (nonfatal)"}


def _pcie(files: FilesOfHost) -> Iterator[Finding]:
    """PCIe errors of GPUs and of the ports above them, as the log names them or lspci shows them."""
    log = files.log
    assert log is not None  # noqa: S101 - the caller looked
    gpus = {*files.labels, *(device.bus_id for device in files.devices.values() if device.is_gpu)}
    below = {port: gpu for gpu, port in log.ports.items()}
    for gpu in gpus:
        port = port_above(files.devices, gpu)
        if port is not None:
            below[port.bus_id] = gpu
    told: dict[str, list[str]] = defaultdict(list)
    for what, events in _of_kind(log, Kind.AER):
        is_port = what.address in below
        gpu = below.get(what.address, what.address)
        if (gpu in gpus or is_port) and (what.code != "correctable" or events.count >= _SOME_CORRECTABLE):
            whose = f"the port {what.address} above it" if is_port else "the GPU"
            told[gpu].append(f"{what.code} on {whose}, {_count_and_last(events.count, events, log)}")
    for gpu, errors in told.items():
        yield _of("pcie.aer", gpu, files.labels, "; ".join(errors))


_HIDDEN: Final[Mapping[str, str]] = {
    Trouble.HUNG_TASK.value: "a process",
    Trouble.NFS_NOT_RESPONDING.value: "(not named)",
    Trouble.LUSTRE_LOST.value: "(not named)",
}
"""What processes and servers are called where names must not be told."""


def _host(log: LogReading, *, with_names: bool) -> Iterator[Finding]:
    """Trouble of the host within a day, unless the kernel says later that it is over."""
    for told in TOLD:
        said = []
        for what, events in _of_kind(log, Kind.HOST):
            words = told.kinds.get(Trouble(what.code))
            if words is not None and _is_recent(events, log) and not _is_over(what, events, log):
                hidden = "" if with_names else _HIDDEN.get(what.code, "")
                subject = hidden or what.address or UNNAMED
                said.append(f"{words.format(subject)}, {_count_and_last(events.count, events, log)}")
        if len(said) >= told.least:
            yield Finding(BY_CODE[told.code], first_of(said))


def _is_recent(events: Events, log: LogReading) -> bool:
    last = events.last
    return last is None or last.wall is None or log.reference - last.wall <= thresholds.XID_DAMAGE_SECONDS


def _is_over(what: What, events: Events, log: LogReading) -> bool:
    over = log.events.get(What(Kind.HOST_OVER, what.address, what.code))
    if over is None or over.last is None or events.last is None:
        return False
    return _moment(over.last) >= _moment(events.last)


def _moment(event: Happened) -> float:
    return event.wall if event.wall is not None else event.seconds or 0.0


def _killed(log: LogReading, *, with_names: bool) -> Iterator[Finding]:
    killed = list(_of_kind(log, Kind.OUT_OF_MEMORY))
    recent = [(what, events) for what, events in killed if _is_recent(events, log)]
    if recent:
        what, events = recent[-1]
        name = what.code if with_names else "a process"
        more = f"; {len(killed) - 1} more in the log" if len(killed) > 1 else ""
        yield Finding(BY_CODE["memory.oom_killed"], f"the kernel killed {name}, {_last(events, log)}{more}")


def _links(files: FilesOfHost, answering: frozenset[str]) -> Iterator[Finding]:
    """Links that are short of lanes, of GPUs that nvidia-smi does not show; a low speed at rest is normal."""
    for device in files.devices.values():
        if not device.is_gpu or device.bus_id in answering:
            continue
        if device.is_dead:
            if device.bus_id not in files.labels:
                measured = "its configuration space reads all ones (lspci: rev ff)"
                yield Finding(BY_CODE["gpu.lost"], measured, pci_bus_id=device.bus_id)
            continue
        port = port_above(files.devices, device.bus_id)
        most = [each for each in (device.max_width, None if port is None else port.max_width) if each is not None]
        if device.width is not None and most and device.width < min(most):
            measured = (
                f"{device.width} of {min(most)} lanes, at {device.bus_id}; whether under load, lspci does not say"
            )
            yield _of("pcie.width_idle", device.bus_id, files.labels, measured)


def _of_kind(log: LogReading, kind: Kind) -> Iterator[tuple[What, Events]]:
    return ((what, events) for what, events in log.events.items() if what.kind is kind)


def _some(log: LogReading, kind: Kind) -> bool:
    return any(what.kind is kind for what in log.events)


def _last(events: Events, log: LogReading) -> str:
    last = events.last
    return "at an unknown time" if last is None else when(last, log)


def _count_and_last(count: int, events: Events, log: LogReading) -> str:
    times = "once" if count == 1 else f"{count} times, last"
    return f"{times} {_last(events, log)}"
