"""Driver findings from kernel logs: why the driver or a GPU could not be used, and whether that is resolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.cli.offline.events import EventKey, EventKind
from gpu_triage.cli.offline.evidence import FilesOfHost
from gpu_triage.cli.offline.logs import Events, LogReading
from gpu_triage.cli.offline.lspci import LENT
from gpu_triage.judge.conditions.kernel import first_of
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.findings.finding import Finding, of_host
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.host.driver_messages import AT_PROBE, UNTIL_LOADED, parse_driver_message
from gpu_triage.read.host.kernel_messages import ProblemKind

_NOUVEAU: Final = "nouveau"
_NOVA: Final = ("nova_core", "novacore")
_GSP_XIDS: Final = ("119", "120")


class _Row(NamedTuple):
    """The finding that a driver failure maps to.

    Attributes:
        code: finding code.
        text: text with ``{}`` for the detail from the message.
        alone: whether to report it only if there is no more specific failure.
    """

    code: str
    text: str = "{}"
    alone: bool = False


_ROWS: Final[Mapping[ProblemKind, _Row]] = MappingProxyType(
    {
        ProblemKind.DRIVER_MISMATCH: _Row("driver.version_mismatch"),
        ProblemKind.GPU_BOUND_ELSEWHERE: _Row("driver.bound_elsewhere", "{} holds it"),
        ProblemKind.GPU_UNSUPPORTED: _Row("driver.unsupported", "the driver reports that it {}"),
        ProblemKind.GPU_BAR: _Row("driver.bar"),
        ProblemKind.GPU_LOST_AT_PROBE: _Row("gpu.lost", "it fell off the bus before the driver could start it"),
        ProblemKind.GPU_INIT_FAILED: _Row("driver.init_failed", "RmInitAdapter failed ({})"),
        ProblemKind.GSP_INIT_FAILED: _Row("driver.init_failed", "the GSP's firmware could not be started", alone=True),
        ProblemKind.GPU_PROBE_FAILED: _Row("driver.init_failed", "the driver could not use {} GPUs", alone=True),
        ProblemKind.DRIVER_NOT_LOADED: _Row(
            "driver.bound_elsewhere", "the driver was not loaded, since it was given no GPU", alone=True
        ),
        ProblemKind.GSP_TIMEOUT: _Row("gpu.gsp_timeout", "the GSP of {} does not answer"),
        ProblemKind.INFOROM_CORRUPTED: _Row("gpu.inforom", "the driver reports that its InfoROM is corrupted"),
        ProblemKind.SWITCH_MISMATCH: _Row("fabric.version_mismatch"),
        ProblemKind.PEERMEM_ERROR: _Row("network.peermem", "nvidia-peermem: {}"),
    }
)
"""In the order they are reported."""

_LASTING: Final = frozenset({ProblemKind.SWITCH_MISMATCH, ProblemKind.PEERMEM_ERROR, ProblemKind.INFOROM_CORRUPTED})
"""Failures that persist even if the GPU answers."""
_GSP: Final = " (the GSP's firmware was among it)"


def driver_findings(files: FilesOfHost, answering: frozenset[str]) -> Iterator[Finding]:
    """Driver failures in the log; resolved ones are combined in one finding. `answering`: bus ids of healthy GPUs."""
    log = files.log or LogReading(0.0, "", {}, {})
    found: list[Finding] = []
    earlier: list[str] = []
    held = dict(_held(files, log))
    for trouble, row in _ROWS.items():
        for what, events in _of_trouble(log, trouble):
            details = _details(events)
            if (row.alone and (found or earlier or held)) or what.address in held or set(details) & set(LENT):
                continue
            if trouble is ProblemKind.GSP_TIMEOUT and any(
                xid.code in _GSP_XIDS for xid, _ in log.of_kind(EventKind.XID)
            ):
                continue
            current = _current(what, events, trouble, log, answering)
            finding = _finding(row, what, current if current.count else events, log)
            if not current.count:
                earlier.append(finding)
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
    yield from _not_probed(log, [*found, *held])
    if earlier:
        yield of_host("driver.earlier", first_of(earlier))


def _of_trouble(log: LogReading, trouble: ProblemKind) -> Iterator[tuple[EventKey, Events]]:
    return ((what, events) for what, events in log.of_kind(EventKind.DRIVER) if what.code == trouble.value)


def _current(
    what: EventKey, events: Events, trouble: ProblemKind, log: LogReading, answering: frozenset[str]
) -> Events:
    """The events that are not resolved; they are once the GPU answers or the driver has been reloaded."""
    # If the message names no GPU, one answering GPU is enough.
    answers = what.address in answering if ":" in what.address else bool(answering)
    lasts = trouble in _LASTING
    if trouble is ProblemKind.GSP_TIMEOUT:
        lasts = any(_is_young(each.wall, log, thresholds.XID_OPEN_SECONDS) for each in events.known)
    if answers and not lasts:
        return Events()
    at_probe = trouble in AT_PROBE
    open_ = [each for each in events.known if trouble not in UNTIL_LOADED or not log.is_over(each, at_probe=at_probe)]
    return Events(len(open_) + (events.count - len(events.known) if open_ else 0), open_)


def _is_young(wall: float | None, log: LogReading, seconds: float) -> bool:
    return wall is None or log.reference - wall <= seconds


def _finding(row: _Row, what: EventKey, events: Events, log: LogReading) -> str:
    *others, detail = _details(events) or [what.address or "a GPU"]
    if others:
        detail += f" (and {len(others)} other{'s' * (len(others) > 1)})"
    gsp = not row.alone and row.code == "driver.init_failed" and any(_of_trouble(log, ProblemKind.GSP_INIT_FAILED))
    return f"{row.text.format(detail)}{_GSP if gsp else ''}, {log.count_and_last(events.count, events)}"


def _named(code: str, details: Sequence[str]) -> int | None:
    """The number of distinct things the messages name, if that is the finding's measure."""
    return max(1, len(details)) if BY_CODE[code].measure else None


def _details(events: Events) -> list[str]:
    """Details from the messages, deduplicated, latest last."""
    messages = (parse_driver_message(each.text) for each in events.known)
    return list(dict.fromkeys(message.detail for message in messages if message is not None and message.detail))


def _held(files: FilesOfHost, log: LogReading) -> Iterator[tuple[str, tuple[str, str]]]:
    """GPUs bound to another kernel driver, by address: the driver, and how that is known."""
    for device in files.devices.values():
        if device.is_gpu and (device.driver == _NOUVEAU or device.driver.lower() in _NOVA):
            yield device.bus_id, (device.driver, f"lspci names {device.driver} as the driver in use")
    for what, events in log.of_kind(EventKind.NOUVEAU):
        known = files.devices.get(what.address)
        last = events.last
        if (known is None or known.driver == "") and last is not None and not log.is_over(last):
            yield what.address, (_NOUVEAU, f"it logged {log.when(events.last)}")


def _not_probed(log: LogReading, known: Iterable[object]) -> Iterator[Finding]:
    """GPUs that the NVIDIA driver skipped at its last load because another driver holds them."""
    for _, events in () if known else _of_trouble(log, ProblemKind.GPU_NOT_PROBED):
        last = events.last
        if last is None or log.is_over(last, at_probe=True):
            continue
        message = parse_driver_message(last.text)
        count = "some" if message is None else message.detail
        yield of_host("driver.not_probed", f"another driver holds {count} of the GPUs, {log.when(events.last)}")
