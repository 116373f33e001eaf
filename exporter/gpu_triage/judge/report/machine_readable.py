"""The report for programs: versioned JSON, which `top` reads again, and lines for shell scripts."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints

from gpu_triage.documents import printable
from gpu_triage.judge.bottleneck.classes import Bottleneck, Bound
from gpu_triage.judge.conditions.links import LINK_ADVICE
from gpu_triage.judge.evidence.owners import GpuOwner
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.settings import Change
from gpu_triage.judge.findings.table import BY_CODE, CHECKS, Action, Advice, Area, Check, Severity, Unit
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.headline import headline
from gpu_triage.judge.report.report import AreaVerdict, FileRead, GpuReadings, GpuVerdict, PlannedWork, Report
from gpu_triage.options.values import LATEST_SECONDS
from gpu_triage.read.incidents.decisions import Acceptance

FORMAT: Final = "gpu-triage-check"
VERSION: Final = 1  # incremented when a key is removed or changes its meaning, not when keys are added
NOTHING: Final = "-"
"""Placeholder for empty fields of a line."""
_ACCEPTED: Final = ("by", "reason", "at", "until")
_HOLDS: Final = {True: "yes", False: "no", None: ""}


def render_json(report: Report) -> str:
    """Return the report as JSON; docs/check.md describes the format."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "host": report.host,
        "simulated": report.simulated,
        "recording": report.recording,
        "judged_at": _seconds(report.judged_at),
        "measured_seconds": round(report.measured_seconds, 3),
        "driver_version": report.driver or None,
        "blocked": report.blocked,
        "verdict": report.verdict.value,
        "summary": f"{report.verdict.text}. {headline(report)}",
        "scheduled": report.scheduled,
        "maintenance": report.maintenance and report.maintenance._asdict(),
        "gpus": [_gpu(gpu) for gpu in report.gpus],
        "areas": [
            {
                "area": each.area.value,
                "severity": each.severity and each.severity.value,
                "summary": each.summary,
                "known": each.is_known,
            }
            for each in report.areas
        ],
        "findings": [_finding(finding) for finding in report.findings],
        "ended": [_finding(finding) for finding in report.ended],
        "repairs": list(report.repairs),
        "settings": [changed_setting(each) for each in report.settings],
        "not_read": list(report.not_read),
        "not_judged": list(report.not_judged),
        "files": [
            {"name": each.name, "kinds": list(each.kinds), "written": each.written or None, "note": each.note or None}
            for each in report.files
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def changed_setting(change: Change) -> dict[str, Any]:
    """Return a changed setting of the judge as JSON; `unit` applies to both value and default."""
    return {
        "finding": change.code,
        "name": change.name,
        "value": _rounded(change.value),
        "default": _rounded(change.default),
        "unit": change.unit.text,
        "words": change.text,
    }


def _gpu(gpu: GpuVerdict) -> dict[str, Any]:
    bound = gpu.bottleneck.bound
    return {
        "gpu": gpu.gpu,
        "uuid": gpu.uuid or None,
        "name": gpu.name or None,
        "pci_bus_id": gpu.pci_bus_id or None,
        "bottleneck": gpu.bottleneck.name,
        "because": gpu.bottleneck.because,
        "unseen": gpu.bottleneck.unseen or None,
        "bound": bound
        and {
            "by": bound.name,
            "pipe": bound.pipe,
            "pipe_ratio": _rounded(bound.pipe_ratio),
            "memory_ratio": _rounded(bound.memory_ratio),
        },
        "since": _seconds(gpu.since),
        "verdict": gpu.verdict.value,
        "findings": list(gpu.codes),
        "held_by": [{name: value or None for name, value in owner._asdict().items()} for owner in gpu.owners],
        "readings": {name: _rounded(value) for name, value in asdict(gpu.readings).items()},
    }


def _rounded(value: float | None) -> float | None:
    """Round to four decimals; return whole numbers as int."""
    if value is None:
        return None
    return int(value) if float(value).is_integer() else round(value, 4)


def _seconds(time: float | None) -> float | None:
    return None if time is None else round(time, 3)


def _finding(finding: Finding) -> dict[str, Any]:
    check = finding.check
    return {
        "code": check.code,
        "topic": check.topic,
        "area": check.area.value,
        "severity": finding.urgency.value,
        "confirmed_severity": check.severity.value,
        "state": finding.state.text,
        "lasted_seconds": _lasted(finding),
        "wait_seconds": _seconds(check.wait_seconds),
        "holds": finding.holds,
        "quiet_seconds": _seconds(finding.quiet_seconds),
        "hold_seconds": _seconds(check.hold_seconds),
        "action": check.action.value,
        "alert": check.alert,
        "runbook": check.runbook or None,
        "runbook_path": f"/runbooks/{check.runbook}" if check.runbook else None,
        "gpu": finding.gpu,
        "uuid": finding.uuid or None,
        "pci_bus_id": finding.pci_bus_id or None,
        "explained_by": finding.explained_by or None,
        "since": _seconds(finding.since),
        "ended_at": _seconds(finding.ended_at),
        "end": finding.end or None,
        "accepted": finding.accepted and {name: getattr(finding.accepted, name) for name in _ACCEPTED},
        "measured": finding.measured,
        "detail": finding.detail or None,
        "value": _rounded(finding.value),
        "meaning": finding.advice.meaning,
        "decision": finding.advice.decision,
    }


def _lasted(finding: Finding) -> float | None:
    """How long it was observed to hold; None from a single measurement, which cannot know."""
    return None if finding.since is None else _seconds(finding.lasted_seconds)


def report_from_json(text: bytes | str) -> Report:
    """Return the report that `render_json` wrote, without what it omits: the times and the history of classes.

    It may come from any host and is not trusted: no text in it can control a terminal, and values of another type count
    as missing. Raises ValueError: it is not a report of this version, or contains an unknown state.
    """
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError("it is no verdict of gpu-triage")
    if document.get("version") != VERSION:
        raise ValueError(f"it is of format version {document.get('version')!r}; this program reads version {VERSION}")
    findings = [_read_finding(each) for each in _tables(document, "findings")]
    maintenance = _table(document, "maintenance")
    return _read(
        Report,
        document,
        driver=_text(document, "driver_version"),
        areas=tuple(_read_area(each, findings) for each in _tables(document, "areas")),
        gpus=tuple(map(_read_gpu, _tables(document, "gpus"))),
        verdict=Verdict(_text(document, "verdict")),
        ended=tuple(map(_read_finding, _tables(document, "ended"))),
        files=tuple(_read(FileRead, each) for each in _tables(document, "files")),
        settings=tuple(map(_read_setting, _tables(document, "settings"))),
        scheduled=document.get("scheduled") is not False,
        maintenance=_read(PlannedWork, maintenance) if _number(maintenance, "until") else None,
    )


def _read_area(area: dict[str, Any], findings: list[Finding]) -> AreaVerdict:
    name, severity = Area(_text(area, "area")), _text(area, "severity")
    own = tuple(finding for finding in findings if finding.check.area is name)
    worst, summary = Severity(severity) if severity else None, _text(area, "summary") or None
    return AreaVerdict(name, worst, summary, own, area.get("known") is not False)


def _read_gpu(gpu: dict[str, Any]) -> GpuVerdict:
    bound = _table(gpu, "bound")
    because, unseen = _text(gpu, "because"), _text(gpu, "unseen")
    return _read(
        GpuVerdict,
        gpu,
        bottleneck=Bottleneck(_text(gpu, "bottleneck"), because, unseen, bound=_read(Bound, bound) if bound else None),
        seconds={},
        strip=(),
        verdict=Verdict(_text(gpu, "verdict")),
        codes=_texts(gpu, "findings"),
        owners=tuple(_read(GpuOwner, each) for each in _tables(gpu, "held_by")),
        readings=_read(GpuReadings, _table(gpu, "readings")),
    )


def _read_finding(finding: dict[str, Any]) -> Finding:
    code, accepted, holds = _text(finding, "code"), _table(finding, "accepted"), finding.get("holds")
    # The code may be unknown here, and the host may have other wait and hold times.
    check = _read(
        Check,
        finding,
        area=Area(_text(finding, "area")),
        severity=Severity(_text(finding, "confirmed_severity")),
        action=Action(_text(finding, "action")),
        title="",
        measure=BY_CODE[code].measure if code in BY_CODE else None,
        page=_text(finding, "runbook"),
        limits={},
    )
    until = min(max(0.0, _number(accepted, "until") or 0.0), LATEST_SECONDS)
    return _read(
        Finding,
        finding,
        check=check,
        cause_advice=_known_advice().get((check.meaning, check.decision)),
        settling=False,
        state=next((each for each in State if each.text == finding.get("state")), State.PENDING),
        holds=holds if isinstance(holds, bool) else None,
        accepted=_read(Acceptance, accepted, until=until) if accepted else None,
    )


@cache
def _known_advice() -> Mapping[tuple[str, str], Advice]:
    """All advice by its meaning and decision: a report has only the words of a cluster."""
    known = (*(check.advice for check in CHECKS), *LINK_ADVICE.values())
    return {
        (each.meaning, each.decision): each for each in (*known, *(advice.in_a_virtual_machine for advice in known))
    }


def _read_setting(setting: dict[str, Any]) -> Change:
    unit = next((each for each in Unit if each.text == setting.get("unit")), Unit.COUNT)
    return _read(Change, setting, code=_text(setting, "finding"), unit=unit)


T = TypeVar("T")


_hints_of = cache(get_type_hints)


def _read(kind: Callable[..., T], table: dict[str, Any], **known: Any) -> T:
    """Return a dataclass or named tuple with what is `known`, and the rest from the keys named like its fields."""
    hints = _hints_of(kind)
    return kind(**known, **{name: _READERS[hints[name]](table, name) for name in hints.keys() - known.keys()})


def _text(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    return printable(value) if isinstance(value, str) else ""


def _texts(document: dict[str, Any], key: str) -> tuple[str, ...]:
    value = document.get(key)
    return tuple(printable(each) for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _number(document: dict[str, Any], key: str) -> float | None:
    value: Any = document.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # False for NaN, infinity, and whole numbers of hundreds of digits.
    return float(value) if is_number and abs(value) <= sys.float_info.max else None


_READERS: Final[Mapping[Any, Callable[[dict[str, Any], str], Any]]] = {
    str: _text,
    str | None: lambda table, key: _text(table, key) or None,
    bool: lambda table, key: table.get(key) is True,
    float: lambda table, key: _number(table, key) or 0.0,
    float | None: _number,
    tuple[str, ...]: _texts,
}
"""How values are read by the type of their field."""


def _table(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _tables(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = document.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def render_lines(report: Report) -> str:
    """Return a line each for the host, GPUs and findings, with tab-separated fields; docs/check.md has the format."""
    return "".join("\t".join(printable(field) or NOTHING for field in fields) + "\n" for fields in _records(report))


def _records(report: Report) -> Iterator[tuple[str, ...]]:
    yield "host", report.verdict.value, report.host, report.blocked or ""
    if (planned := report.maintenance) is not None:
        yield "maintenance", f"{planned.until:.0f}", planned.source, planned.reason
    for gpu in report.gpus:
        yield "gpu", gpu.gpu, gpu.pci_bus_id, gpu.verdict.value, gpu.bottleneck.name, ",".join(gpu.codes)
    for finding in report.findings:
        check = finding.check
        about = ("finding", finding.gpu or "", finding.pci_bus_id)
        facts = (finding.urgency.value, check.code, check.action.value, finding.measured, finding.state.text)
        lasted = _lasted(finding)
        times = ("" if lasted is None else f"{lasted:.0f}", f"{check.wait_seconds:.0f}")
        yield (*about, *facts, *times, _HOLDS[finding.holds])
