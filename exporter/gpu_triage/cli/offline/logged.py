"""Findings beyond those of a live host: driver failures, PCIe errors, NVSwitch errors, host problems."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from gpu_triage.cli.offline.events import EventKey, EventKind
from gpu_triage.cli.offline.evidence import FilesOfHost
from gpu_triage.cli.offline.logged_driver import driver_findings
from gpu_triage.cli.offline.logged_pcie import error_findings, link_findings
from gpu_triage.cli.offline.logged_xids import logged_xids
from gpu_triage.cli.offline.logs import Events, LogEvent, LogReading
from gpu_triage.cli.offline.times import DAY_SECONDS
from gpu_triage.judge.conditions.kernel import MESSAGE_RULES, first_of
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.faults import is_critical
from gpu_triage.judge.findings.finding import Finding, of_host
from gpu_triage.judge.findings.settings import JudgeSettings
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.host.kernel_messages import ProblemKind, corrected_errors
from gpu_triage.read.xid.events import OFF_THE_BUS

_SHOWN: Final = 3
_DAYS: Final = 7
_SOME_CORRECTED: Final = 10
"""Corrected memory errors in a log that are reported; a DIMM has one now and then."""
_SOME_LINK_LOSSES: Final = 3


def logged_findings(files: FilesOfHost, settings: JudgeSettings, *, with_names: bool) -> Iterator[Finding]:
    """Further findings about the host; `with_names`: whether to name processes and servers."""
    answering = _answering(files)
    yield from driver_findings(files, answering)
    if files.log is not None:
        yield from _off_the_bus(files.log)
        yield from _repeated(files, files.log, settings)
        yield from _switches(files.log)
        yield from error_findings(files)
        yield from _host(files.log, settings, with_names=with_names)
        yield from _killed(files.log, with_names=with_names)
    for index, error in files.unplaced.items():
        yield Finding(BY_CODE["gpu.lost"], f"nvidia-smi could not open it ({error})", index)
    for address in files.corrupted:
        measured = "nvidia-smi says that its InfoROM is corrupted"
        yield files.about_gpu("gpu.inforom", address, measured)
    yield from link_findings(files, answering)


def _answering(files: FilesOfHost) -> frozenset[str]:
    """Bus ids of the GPUs without an error in the latest nvidia-smi output."""
    if not files.snapshots or files.driver_error is not None:
        return frozenset()
    return frozenset(gpu.bus_id for gpu in files.snapshots[-1].gpus.values() if gpu.error is None) - set(files.lost)


def _off_the_bus(log: LogReading) -> Iterator[Finding]:
    """A finding for a GPU that fell off the bus when the log doesn't identify the GPU."""
    placed = any(what.kind is EventKind.XID and what.code in ("", str(OFF_THE_BUS)) for what in log.events)
    for _, events in () if placed else log.of_kind(EventKind.OFF_THE_BUS):
        if events.last is None or not log.is_over(events.last):
            measured = f"the kernel log says that a GPU fell off the bus, and not which: {log.when(events.last)}"
            yield Finding(BY_CODE["gpu.lost"], measured)


def _repeated(files: FilesOfHost, log: LogReading, settings: JudgeSettings) -> Iterator[Finding]:
    """GPUs with the same critical Xid again after a driver reload: a reset doesn't fix them."""
    loads = sorted(log.loaded_at)
    for what, name, _, events in logged_xids(log):
        if not is_critical(name.xid, name.fatal):
            continue
        walls = [
            each.wall
            for each in events.known
            if each.exact and each.wall is not None and log.reference - each.wall <= _DAYS * DAY_SECONDS
        ]
        times = len({bisect_right(loads, wall) for wall in walls})
        if times >= settings.limits["gpu.repeat_offender", "in_7_days"]:
            measured = f"Xid {name.xid} in {times} runs of the driver within {_DAYS} days"
            yield files.about_gpu("gpu.repeat_offender", what.address, measured, times)


def _switches(log: LogReading) -> Iterator[Finding]:
    """One finding per severity, covering all NVSwitches and SXid codes."""
    found: dict[str, list[tuple[EventKey, Events]]] = defaultdict(list)
    for what, events in log.of_kind(EventKind.SXID):
        last = events.last
        if last is not None and log.is_over(last):
            continue
        age = 0.0 if last is None or last.wall is None else log.reference - last.wall
        is_fatal = what.fatal is True and age <= thresholds.XID_DAMAGE_SECONDS
        if what.fatal is None and any(
            other.address == what.address and other.code == what.code and other.fatal is not None
            for other in log.events
        ):
            continue  # a detail line of another SXid
        found["nvswitch.sxid_fatal" if is_fatal else "nvswitch.sxid"].append((what, events))
    for code, seen in found.items():
        shown = [
            f"SXid {what.code}{_FATAL[what.fatal]} of the switch at {what.address}, "
            f"{log.count_and_last(events.count, events)}"
            for what, events in seen[:_SHOWN]
        ]
        more = f"; {len(seen) - _SHOWN} more" if len(seen) > _SHOWN else ""
        yield of_host(code, "; ".join(shown) + more, len(seen))


_FATAL: Final[Mapping[bool | None, str]] = {None: "", True: " (fatal)", False: " (nonfatal)"}


_HIDDEN: Final[Mapping[str, str]] = {
    ProblemKind.HUNG_TASK.value: "a process",
    ProblemKind.NFS_NOT_RESPONDING.value: "(not named)",
    ProblemKind.LUSTRE_LOST.value: "(not named)",
}
"""Placeholders for the names of processes and servers when redacting."""


def _host(log: LogReading, settings: JudgeSettings, *, with_names: bool) -> Iterator[Finding]:
    """Host problems within the last day, unless the kernel logged recovery since."""
    for rule in MESSAGE_RULES:
        said, most = [], 0
        for what, events in log.of_kind(EventKind.HOST):
            words = rule.kinds.get(ProblemKind(what.code))
            if words is not None and _is_recent(events, log) and not _is_over(what, events, log):
                hidden = "" if with_names else _HIDDEN.get(what.code, "")
                subject = hidden or what.address or rule.unnamed
                said.append(f"{words.format(subject)}, {log.count_and_last(events.count, events)}")
                most = max(most, events.count)
        # The kernel logs a hung task again every few minutes, so one task can reach the limit alone.
        least = settings.limits[rule.code, rule.limit] if rule.limit else 1
        if said and max(len(said), most) >= least:
            yield of_host(rule.code, first_of(said), len(said))
    yield from _memory_errors(log)
    yield from _links(log)


def _memory_errors(log: LogReading) -> Iterator[Finding]:
    """Corrected errors of the host's memory; the log holds one message for hundreds of them."""
    said, count = [], 0
    for what, events in log.of_kind(EventKind.HOST):
        if what.code == ProblemKind.MEMORY_CORRECTED.value and _is_recent(events, log):
            errors = sum(corrected_errors(each.text) for each in events.known)
            if max(errors, events.count) >= _SOME_CORRECTED:
                count += errors
                said.append(f"at least {errors} corrected errors of {what.address}, {log.when(events.last)}")
    if said:
        yield of_host("host.memory_errors", first_of(said), count)


def _links(log: LogReading) -> Iterator[Finding]:
    """Network adapter links that went down after being up, or that flap."""
    said = []
    for what, events in log.of_kind(EventKind.HOST):
        if what.code == ProblemKind.ADAPTER_LINK_DOWN.value and _is_recent(events, log):
            is_back = _is_over(what, events, log)
            if not is_back or events.count >= _SOME_LINK_LOSSES:
                now = "up again" if is_back else "still down"
                said.append(f"{what.address} lost its link {log.count_and_last(events.count, events)}: {now}")
    if said:
        yield of_host("network.link_degraded", first_of(said), len(said))


def _is_recent(events: Events, log: LogReading) -> bool:
    last = events.last
    return last is None or last.wall is None or log.reference - last.wall <= thresholds.XID_DAMAGE_SECONDS


def _is_over(what: EventKey, events: Events, log: LogReading) -> bool:
    over = log.events.get(EventKey(EventKind.HOST_OVER, what.address, what.code))
    if over is None or over.last is None or events.last is None:
        return False
    return _moment(over.last) >= _moment(events.last)


def _moment(event: LogEvent) -> tuple[float, int]:
    return (event.wall if event.wall is not None else event.seconds or 0.0), event.place


def _killed(log: LogReading, *, with_names: bool) -> Iterator[Finding]:
    killed = list(log.of_kind(EventKind.OUT_OF_MEMORY))
    recent = [(what, events) for what, events in killed if _is_recent(events, log)]
    if recent:
        what, events = recent[-1]
        name = what.code if with_names else "a process"
        more = f"; {len(killed) - 1} more in the log" if len(killed) > 1 else ""
        yield of_host("memory.oom_killed", f"the kernel killed {name}, {log.when(events.last)}{more}", len(recent))
