"""The report for programs: versioned JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

from gpu_triage.judge.bottleneck.bound import Bound
from gpu_triage.judge.findings.finding import Finding
from gpu_triage.judge.findings.settings import Change
from gpu_triage.judge.report.headline import headline
from gpu_triage.judge.report.life_cycle import life_cycle_of
from gpu_triage.judge.report.report import GpuVerdict, Report

FORMAT: Final = "gpu-triage-check"
VERSION: Final = 1  # incremented when a key is removed or changes its meaning, not when keys are added


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
        "summary": headline(report),
        "scheduled": report.scheduled,
        "gpus": [_gpu(gpu) for gpu in report.gpus],
        "areas": [
            {"area": each.area.value, "severity": each.severity and each.severity.value, "summary": each.summary}
            for each in report.areas
        ],
        "findings": [_finding(finding) for finding in report.findings],
        "ended": [_finding(finding) for finding in report.ended],
        "settings": [changed_setting(each) for each in report.settings],
        "not_read": list(report.not_read),
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
    return {
        "gpu": gpu.gpu,
        "uuid": gpu.uuid or None,
        "name": gpu.name or None,
        "pci_bus_id": gpu.pci_bus_id or None,
        "bottleneck": gpu.bottleneck.name,
        "because": gpu.bottleneck.because,
        "unseen": gpu.bottleneck.unseen or None,
        "bound": _bound(gpu.bottleneck.bound),
        "since": _seconds(gpu.since),
        "verdict": gpu.verdict.value,
        "findings": list(gpu.codes),
        "held_by": [{name: value or None for name, value in owner._asdict().items()} for owner in gpu.owners],
        "readings": {name: _rounded(value) for name, value in asdict(gpu.readings).items()},
    }


def _bound(bound: Bound | None) -> dict[str, Any] | None:
    if bound is None:
        return None
    return {
        "by": bound.name,
        "pipe": bound.pipe,
        "pipe_ratio": _rounded(bound.pipe_ratio),
        "memory_ratio": _rounded(bound.memory_ratio),
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
        **{
            name: _seconds(value) if isinstance(value, float) else value
            for name, value in asdict(life_cycle_of(finding)).items()
        },
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
        "measured": finding.measured,
        "value": _rounded(finding.value),
        "meaning": finding.advice.meaning,
        "decision": finding.advice.decision,
    }
