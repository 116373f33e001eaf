"""Findings beyond those of a live host: driver failures, PCIe errors, Xids, NVSwitch errors, host problems."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gpu_triage.cli.offline.evidence import FilesOfHost, logged_xids
from gpu_triage.cli.offline.log_lines import DAY_SECONDS
from gpu_triage.cli.offline.logs import EventKey, EventKind, Events, LogEvent, LogReading
from gpu_triage.cli.offline.lspci import PciDevice
from gpu_triage.cli.offline.outside import MIG, Outside
from gpu_triage.documents import packaged_toml
from gpu_triage.documents.pcie_values import BUILT_LANES, is_built_for_laptop
from gpu_triage.driver.kernel.pci_bus import PASS_THROUGH
from gpu_triage.judge.conditions.host import MESSAGE_RULES, first_of
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import is_critical
from gpu_triage.judge.findings.finding import Finding, of_host, of_slot
from gpu_triage.judge.findings.settings import JudgeSettings
from gpu_triage.judge.findings.table import BY_CODE, Advice
from gpu_triage.read.host.driver_messages import parse_driver_message
from gpu_triage.read.host.kernel_log import EVENT_ANYWAY
from gpu_triage.read.host.kernel_messages import Ending, ProblemKind, corrected_errors
from gpu_triage.read.xid.xid_events import OFF_THE_BUS

_LOST: Final = ("", str(OFF_THE_BUS))
_SOME_CORRECTED: Final = 10
"""Corrected errors of a PCIe link or of memory in a log that are reported; each has one now and then. The kernel
rate-limits floods."""


def _pcie_errors(files: FilesOfHost) -> Iterator[Finding]:
    """PCIe errors of GPUs and of the ports above them."""
    log = files.log
    gpus = {*files.labels, *(device.bus_id for device in files.facts.devices.values() if device.is_gpu), *log.gpus}
    below: dict[str, list[str]] = defaultdict(list)
    for gpu in sorted(gpus):
        above = files.port_above(gpu)
        if port := (log.ports.get(gpu) or _failed_before(gpu, log)) if above is None else above.bus_id:
            below[port].append(gpu)
    reported: dict[str, list[str]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for (address, severity), events in _errors(log).items():
        if severity == "correctable" and events.count < _SOME_CORRECTED:
            continue
        said = log.count_and_last(events)
        if address in gpus:
            reported[address].append(f"{severity} on the GPU, {said}")
            counts[address] += events.count
        for gpu in below.get(address, ()):
            others = f" and {len(below[address]) - 1} others" if len(below[address]) > 1 else ""
            reported[gpu].append(f"{severity} on the port {address} above it{others}, {said}")
            counts[gpu] += events.count
    for gpu, errors in reported.items():
        yield files.about_gpu("pcie.aer", gpu, "; ".join(errors), counts[gpu])


def _failed_before(gpu: str, log: LogReading) -> str:
    """The one port that failed just before a GPU fell off the bus, so it is above it; "" if none or several did."""
    lost = [events.last for what, events in log.of_kind(EventKind.XID) if what.address == gpu and what.code in _LOST]
    ports = {
        what.address
        for what, events in (*log.of_kind(EventKind.AER), *log.of_kind(EventKind.AER_RECEIVED))
        if what.code != "correctable"
        for error in events.known
        if (error.text.startswith(f"pcieport {what.address}") or " port\n" in error.text)
        and any(0 <= error.seconds_to(loss) <= thresholds.LINK_LOSS_SECONDS for loss in lost)
    }
    return ports.pop() if len(ports) == 1 else ""


def _errors(log: LogReading) -> Mapping[tuple[str, str], Events]:
    """Errors by device and severity: as reported by the device, or by its port if the port counted more."""
    counted: dict[tuple[str, str], Events] = {}
    for kind in (EventKind.AER, EventKind.AER_RECEIVED):
        for what, events in log.of_kind(kind):
            known = counted.setdefault((what.address, what.code), events)
            if events.count > known.count:
                counted[what.address, what.code] = events
    return counted


def _narrow_links(files: FilesOfHost) -> Iterator[Finding]:
    """Links with missing lanes on GPUs that nvidia-smi doesn't show; a low speed at idle is normal."""
    links: dict[str, tuple[int, int]] = {}  # the lanes of a GPU's link, and how many its card and slot claim
    for bus_id, device in files.facts.devices.items():
        port = files.port_above(bus_id) or PciDevice("", "")
        claims = [each for each in (device.max_width, port.max_width) if each is not None]
        if device.is_gpu and device.width is not None and claims:
            links[bus_id] = device.width, min(claims)
        if device.is_gpu and device.is_dead and bus_id not in files.labels:
            yield of_slot("gpu.lost", bus_id, "its configuration space reads all ones (lspci: rev ff)")
    answering = files.answering
    for bus_id, (lanes, most) in links.items():
        device = files.facts.devices[bus_id]
        is_seen = device.is_dead or bus_id in answering
        if lanes < most and not is_seen and not is_built_for_laptop(device.model, lanes):
            others = [each for other, (each, claim) in links.items() if other != bus_id and claim == most]
            built = lanes >= BUILT_LANES and bool(others) and max(others) == lanes
            measured = f"{lanes} of {most} lanes, at {bus_id}; whether under load, lspci does not say"
            yield files.about_gpu("pcie.width_built" if built else "pcie.width_idle", bus_id, measured, lanes)


_NOUVEAU: Final = "nouveau"
_NOVA: Final = ("nova_core", "novacore")
_GSP_XIDS: Final = ("119", "120")


class _Row(NamedTuple):
    code: str  # finding code
    text: str = "{}"  # text with ``{}`` for the detail from the message
    alone: bool = False  # whether to report it only if there is no more specific failure
    unnamed: str = "a GPU"  # the detail if the message has none


_ROWS: Final = {
    ProblemKind(kind): _Row(**row) for kind, row in packaged_toml(__package__, "driver_failures.toml").items()
}
"""In the order they are reported."""

_LASTING: Final = frozenset({ProblemKind.SWITCH_MISMATCH, ProblemKind.PEERMEM_ERROR, ProblemKind.INFOROM_CORRUPTED})
"""Failures that persist even if the GPU answers."""
_GSP: Final = " (the GSP's firmware was among it)"


def _driver(files: FilesOfHost) -> Iterator[Finding]:
    """Driver failures in the log; resolved ones are combined in one finding."""
    log, answering = files.log, files.answering
    found: list[Finding] = []
    earlier: list[tuple[int, float, str]] = []
    held = dict(_held(files))
    has_gsp_xid = any(xid.code in _GSP_XIDS for xid, _ in log.of_kind(EventKind.XID))
    for trouble, row in _ROWS.items():
        if trouble is ProblemKind.GSP_TIMEOUT and has_gsp_xid:
            continue
        for what, events in log.of_kind(EventKind.DRIVER, trouble.value):
            details = _details(events)
            current = _current(what, events, trouble, files)
            # The kernel does not name the module that it rejects: if the driver was loaded, it was another one.
            others_module = trouble is ProblemKind.MODULE_REJECTED and not current.count
            is_second = row.alone and (found or earlier or held)
            if is_second or others_module or what.address in held or PASS_THROUGH.intersection(details):
                continue
            finding = _finding(row, what, current if current.count else events, log)
            if not current.count:
                earlier.append((BY_CODE[row.code].severity.rank, events.last.wall or 0.0, finding))
            elif ":" in what.address:
                code = "driver.nouveau" if details == [_NOUVEAU] else row.code
                found.append(files.about_gpu(code, what.address, finding, _named(code, details)))
            else:
                found.append(of_host(row.code, finding, _named(row.code, details)))
    yield from found
    for address, (driver, how) in held.items():
        if address not in answering:
            code = "driver.nouveau" if driver == _NOUVEAU else "driver.bound_elsewhere"
            yield files.about_gpu(code, address, how)
    yield from () if found or held else _not_probed(log)
    if earlier:
        worst_first = [finding for _, _, finding in sorted(earlier, reverse=True)]
        yield of_host("driver.earlier", first_of(worst_first))


def _current(what: EventKey, events: Events, trouble: ProblemKind, files: FilesOfHost) -> Events:
    """The events that are not resolved; they are once the GPU answers or the driver has been reloaded."""
    log, answering = files.log, files.answering
    # If the message names no GPU, one answering GPU is enough.
    answers = what.address in answering if ":" in what.address else bool(answering)
    lasts = trouble in _LASTING
    if trouble is ProblemKind.GSP_TIMEOUT:
        lasts = any(log.is_within(each, thresholds.XID_OPEN_SECONDS) for each in events.known)
    if answers and not lasts:
        return Events()
    at_probe = trouble.ending is Ending.PROBED
    open_ = [each for each in events.known if not trouble.until_loaded or not log.is_over(each, at_probe=at_probe)]
    return Events(len(open_) + (events.count - len(events.known) if open_ else 0), open_)


def _finding(row: _Row, what: EventKey, events: Events, log: LogReading) -> str:
    *others, detail = _details(events) or [what.address or row.unnamed]
    detail += " GPUs" if detail.isdecimal() else ""
    if others:
        detail += f" (and {len(others)} other{'s' * (len(others) > 1)})"
    gsp = row is _ROWS[ProblemKind.GPU_INIT_FAILED] and any(
        log.of_kind(EventKind.DRIVER, ProblemKind.GSP_INIT_FAILED.value)
    )
    return f"{row.text.format(detail)}{_GSP if gsp else ''}, {log.count_and_last(events)}"


def _named(code: str, details: Sequence[str]) -> int | None:
    """The number of distinct things the messages name, if that is the finding's measure."""
    return max(1, len(details)) if BY_CODE[code].measure else None


def _details(events: Events) -> list[str]:
    messages = (parse_driver_message(each.text) for each in events.known)
    return list(dict.fromkeys(message.detail for message in messages if message is not None and message.detail))


def _held(files: FilesOfHost) -> Iterator[tuple[str, tuple[str, str]]]:
    for device in files.facts.devices.values():
        if device.is_gpu and (device.driver == _NOUVEAU or device.driver.lower() in _NOVA):
            yield device.bus_id, (device.driver, f"lspci names {device.driver} as the driver in use")
    for what, events in files.log.of_kind(EventKind.NOUVEAU):
        known = files.facts.devices.get(what.address)
        if (known is None or known.driver in ("", "none")) and not files.log.is_over(events.last):
            yield what.address, (_NOUVEAU, f"it logged {files.log.when(events.last)}")


def _not_probed(log: LogReading) -> Iterator[Finding]:
    """GPUs that the NVIDIA driver skipped at its last load because another driver holds them."""
    for _, events in log.of_kind(EventKind.DRIVER, ProblemKind.GPU_NOT_PROBED.value):
        if not log.is_over(events.last, at_probe=True):
            (count,) = _details(Events(1, [events.last]))
            yield of_host("driver.not_probed", f"another driver holds {count} of the GPUs, {log.when(events.last)}")


_DAYS: Final = 7
_SOME_LINK_LOSSES: Final = 3


def logged_findings(files: FilesOfHost, settings: JudgeSettings) -> Iterator[Finding]:
    """Further findings about the host."""
    yield from _driver(files)
    yield from _off_the_bus(files.log)
    yield from _repeated(files, settings)
    yield from _switches(files.log)
    yield from _pcie_errors(files)
    yield from _host(files)
    yield from _killed(files)
    for index, error in files.facts.unplaced.items():
        which = "it" if index else "a GPU, and which is not legible"
        yield Finding(BY_CODE["gpu.lost"], f"nvidia-smi could not open {which} ({error})", index or None)
    yield from _outside(files)
    for address in files.facts.corrupted:
        yield files.about_gpu("gpu.inforom", address, "nvidia-smi says that its InfoROM is corrupted")
    yield from _narrow_links(files)


def _outside(files: FilesOfHost) -> Iterator[Finding]:
    about: dict[tuple[str, str], list[Outside]] = defaultdict(list)
    for said in files.facts.outside:
        about[said.code, said.bus_id].append(said)
    for (code, bus_id), causes in about.items():
        # One finding with all of its causes: of two about the same, the judge would keep one.
        measured = "; ".join(each.measured for each in causes)
        texts = [each.advice for each in causes if each.advice is not None]
        advice = Advice(*map(" ".join, zip(*texts, strict=True))) if texts else None
        yield replace(
            files.about_gpu(code, bus_id, measured) if bus_id else of_host(code, measured), cause_advice=advice
        )
    told = {said.bus_id for said in files.facts.outside if said.code == MIG}
    for address, gpu in files.last.gpus.items():
        if gpu.mig_pending is not None and address not in told:
            mode = "enabled" if gpu.mig_pending else "disabled"
            yield files.about_gpu(MIG, address, f"MIG mode is pending: {mode} after a reset of the GPU at {address}")


def _off_the_bus(log: LogReading) -> Iterator[Finding]:
    """A finding for a GPU that fell off the bus when the log doesn't identify the GPU."""
    placed = any(what.kind is EventKind.XID and what.code in _LOST for what in log.events)
    for _, events in () if placed else log.of_kind(EventKind.OFF_THE_BUS):
        if not log.is_over(events.last):
            measured = f"the kernel log says that a GPU fell off the bus, and not which: {log.when(events.last)}"
            yield Finding(BY_CODE["gpu.lost"], measured)


def _repeated(files: FilesOfHost, settings: JudgeSettings) -> Iterator[Finding]:
    """GPUs with the same critical Xid again after a driver reload: a reset doesn't fix them."""
    log = files.log
    loads = sorted(log.loaded_at)
    for what, name, _, events in logged_xids(log):
        if not is_critical(name.xid, name.fatal):
            continue
        times = len(
            {
                bisect_right(loads, each.wall)
                for each in events.known
                if each.exact and each.wall is not None and log.reference - each.wall <= _DAYS * DAY_SECONDS
            }
        )
        if times >= settings.limits["gpu.repeat_offender", "in_7_days"]:
            measured = f"Xid {name.xid} in {times} runs of the driver within {_DAYS} days"
            yield files.about_gpu("gpu.repeat_offender", what.address, measured, times)


def _switches(log: LogReading) -> Iterator[Finding]:
    """One finding per severity, covering all NVSwitches and SXid codes."""
    found: dict[str, list[str]] = defaultdict(list)
    told = {(what.address, what.code) for what in log.events if what.fatal is not None}
    for what, events in log.of_kind(EventKind.SXID):
        is_detail = what.fatal is None and (what.address, what.code) in told  # a further line of another SXid
        if is_detail or log.is_over(events.last):
            continue
        is_fatal = what.fatal is True and _is_recent(events, log)
        found["nvswitch.sxid_fatal" if is_fatal else "nvswitch.sxid"].append(
            f"SXid {what.code}{_FATAL[what.fatal]} of the switch at {what.address}, {log.count_and_last(events)}"
        )
    for code, said in found.items():
        yield of_host(code, first_of(said), len(said))


_FATAL: Final[Mapping[bool | None, str]] = {None: "", True: " (fatal)", False: " (nonfatal)"}
_Groups = Sequence[tuple[EventKey, Events]]
_HIDDEN: Final[Mapping[str, str]] = {
    ProblemKind.HUNG_TASK.value: "a process",
    ProblemKind.KERNEL_OOPS.value: "a thread",
    ProblemKind.NFS_NOT_RESPONDING.value: "(not named)",
    ProblemKind.LUSTRE_LOST.value: "(not named)",
}
"""Placeholders for the names of processes and servers when redacting."""


def _host(files: FilesOfHost) -> Iterator[Finding]:
    """Host problems within the last day, unless the kernel logged recovery since; each counts, however few."""
    log = files.log
    recent = [(what, events) for what, events in log.of_kind(EventKind.HOST) if _is_recent(events, log)]
    for rule in MESSAGE_RULES:
        said = []
        for what, events in recent:
            kind = ProblemKind(what.code)
            words = rule.kinds.get(kind)
            if words is None or (kind not in EVENT_ANYWAY and _is_over(what, events, log)):
                continue
            if not what.address and any(each.code == what.code and each.address for each, _ in recent):
                continue  # another message of the same problem names what this one does not
            hidden = "" if files.with_names else _HIDDEN.get(what.code, "")
            subject = words.format(hidden or what.address or rule.unnamed)
            # The kernel lists the handlers of an interrupt that it disables.
            handler = " (its handler: nvidia)" if any("nvidia_isr" in each.text for each in events.known) else ""
            measured = f"{subject}{handler}, {log.count_and_last(events)}"
            if rule.code == _INACCESSIBLE and what.address in (files.labels.keys() | log.gpus):
                if what.address not in files.answering:
                    yield files.about_gpu("gpu.lost", what.address, measured)
            else:
                said.append(measured)
        if said:
            yield of_host(rule.code, first_of(said), len(said))
    yield from _memory_errors(recent, log)
    yield from _links(recent, log)


_INACCESSIBLE: Final = "pcie.inaccessible"


def _memory_errors(recent: _Groups, log: LogReading) -> Iterator[Finding]:
    """Corrected errors of the host's memory; the log holds one message for hundreds of them."""
    said, count = [], 0
    for what, events in recent:
        if what.code == ProblemKind.MEMORY_CORRECTED.value:
            errors = sum(corrected_errors(each.text) for each in events.known)
            if max(errors, events.count) >= _SOME_CORRECTED:
                count += errors
                said.append(f"at least {errors} corrected errors of {what.address}, {log.when(events.last)}")
    if said:
        yield of_host("host.memory_errors", first_of(said), count)


def _links(recent: _Groups, log: LogReading) -> Iterator[Finding]:
    """Network adapter links that went down after being up, or that flap."""
    said = []
    for what, events in recent:
        is_back = _is_over(what, events, log)
        is_link = what.code == ProblemKind.ADAPTER_LINK_DOWN.value
        if is_link and (not is_back or events.count >= _SOME_LINK_LOSSES):
            now = "up again" if is_back else "still down"
            said.append(f"{what.address} lost its link {log.count_and_last(events)}: {now}")
    if said:
        yield of_host("network.link_degraded", first_of(said), len(said))


def _is_recent(events: Events, log: LogReading) -> bool:
    return log.is_within(events.last, thresholds.XID_DAMAGE_SECONDS)


def _is_over(what: EventKey, events: Events, log: LogReading) -> bool:
    over = log.events.get(EventKey(EventKind.HOST_OVER, what.address, what.code))
    return over is not None and _moment(over.last) >= _moment(events.last)


def _moment(event: LogEvent) -> tuple[float, int]:
    return (event.wall if event.wall is not None else event.seconds or 0.0), event.place


def _killed(files: FilesOfHost) -> Iterator[Finding]:
    log = files.log
    killed = list(log.of_kind(EventKind.OUT_OF_MEMORY))
    if recent := [(what, events) for what, events in killed if _is_recent(events, log)]:
        what, events = recent[-1]
        name = what.code if files.with_names else "a process"
        more = f"; {len(killed) - 1} more in the log" if len(killed) > 1 else ""
        yield of_host("memory.oom_killed", f"the kernel killed {name}, {log.when(events.last)}{more}", len(recent))
        return
    for what, events in log.of_kind(EventKind.OUT_OF_MEMORY_CALL):
        name = what.code if files.with_names else "a process"
        measured = (
            f"{name} found no memory, and whom the kernel killed the log does not show, {log.count_and_last(events)}"
        )
        yield of_host("memory.oom_killed", measured, events.count)
