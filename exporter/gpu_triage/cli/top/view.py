"""What `top` shows, parsed from an exporter's JSON verdict, which may be of any version and is not trusted."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import Any

from gpu_triage.documents import printable
from gpu_triage.judge.evidence.owners import GpuOwner, owners_text
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.life_cycle import LifeCycle
from gpu_triage.judge.report.machine_readable import FORMAT, VERSION
from gpu_triage.judge.report.readings import GpuReadings
from gpu_triage.judge.report.words import Words, words_for


@dataclass(frozen=True, slots=True)
class BoundView:
    """What bounds the kernels of a busy GPU."""

    by: str  # a state of gpu_compute_bound
    pipe: str
    pipe_ratio: float
    memory_ratio: float


@dataclass(frozen=True, slots=True)
class GpuView:
    """A GPU as shown by `top`."""

    gpu: str
    verdict: str
    bottleneck: str
    because: str
    since: float | None  # Unix seconds when it entered its class; None from a single poll
    held_by: str
    readings: GpuReadings
    bound: BoundView | None = None


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding as shown by `top`."""

    severity: str
    code: str
    gpu: str  # index; "" for the host
    subject: str
    measured: str
    value: float | None
    decision: str
    explained_by: str
    since: float | None
    life_cycle: LifeCycle


@dataclass(frozen=True, slots=True)
class EndedView:
    """A finding that ended recently."""

    code: str
    subject: str
    ended_at: float | None  # Unix seconds
    lasted_seconds: float | None
    end: str  # why it ended, a value of End; "" if unknown


@dataclass(frozen=True, slots=True)
class HostView:
    """A host as shown by `top`."""

    host: str
    note: str  # that it is simulated or a recording; "" for a live host
    judged_at: float | None  # Unix seconds by the host's clock; None if the exporter does not report it
    driver: str
    verdict: str
    summary: str  # the verdict in one line
    words: Words  # how to speak of verdicts
    blocked: str  # why its GPUs could not be checked; "" if they could
    gpus: tuple[GpuView, ...]
    findings: tuple[FindingView, ...]
    ended: tuple[EndedView, ...]


def view_of(text: bytes | str) -> HostView:
    """Parse a verdict written by ``gpu-triage check --format json`` or an exporter; raises ValueError if invalid."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError("it is no verdict of gpu-triage")
    if document.get("version") != VERSION:
        raise ValueError(f"it is of format version {document.get('version')!r}; this program reads version {VERSION}")
    note = "SIMULATED: everything here is made up" if document.get("simulated") else ""
    if document.get("recording"):
        note = "a RECORDING, not this host as it is now"
    words = words_for(scheduled=document.get("scheduled") is not False)
    return HostView(
        host=_text(document, "host"),
        note=note,
        judged_at=_number(document, "judged_at"),
        driver=_text(document, "driver_version"),
        verdict=_text(document, "verdict"),
        summary=_in_words(_text(document, "summary") or _text(document, "verdict"), words),
        words=words,
        blocked=_text(document, "blocked"),
        gpus=tuple(map(_gpu, _list(document, "gpus"))),
        findings=tuple(map(_finding, _list(document, "findings"))),
        ended=tuple(map(_ended, _list(document, "ended"))),
    )


def _in_words(summary: str, words: Words) -> str:
    """The summary with its verdict in these words."""
    said, dot, rest = summary.partition(".")
    verdict = next((each for each in Verdict if each.text == said), None)
    return summary if verdict is None else f"{words.verdicts[verdict]}{dot}{rest}"


def _gpu(gpu: dict[str, Any]) -> GpuView:
    owners = (GpuOwner(*(_text(each, name) for name in GpuOwner._fields)) for each in _list(gpu, "held_by"))
    readings = gpu.get("readings")
    known = readings if isinstance(readings, dict) else {}
    unseen = _text(gpu, "unseen")
    return GpuView(
        gpu=_text(gpu, "gpu"),
        verdict=_text(gpu, "verdict"),
        bottleneck=_text(gpu, "bottleneck"),
        because=_text(gpu, "because") + (f" ({unseen})" if unseen else ""),
        since=_number(gpu, "since"),
        held_by=owners_text(owners),
        readings=GpuReadings(**{field.name: _number(known, field.name) for field in fields(GpuReadings)}),
        bound=_bound(gpu.get("bound")),
    )


def _bound(bound: object) -> BoundView | None:
    if not isinstance(bound, dict):
        return None
    pipe_ratio, memory_ratio = _number(bound, "pipe_ratio"), _number(bound, "memory_ratio")
    if pipe_ratio is None or memory_ratio is None:
        return None
    return BoundView(_text(bound, "by"), _text(bound, "pipe"), pipe_ratio, memory_ratio)


def _finding(finding: dict[str, Any]) -> FindingView:
    return FindingView(
        severity=_text(finding, "severity"),
        code=_text(finding, "code"),
        gpu=_text(finding, "gpu"),
        subject=_subject(finding),
        measured=_text(finding, "measured"),
        value=_number(finding, "value"),
        decision=_text(finding, "decision"),
        explained_by=_text(finding, "explained_by"),
        since=_number(finding, "since"),
        life_cycle=_life_cycle(finding),
    )


def _life_cycle(finding: dict[str, Any]) -> LifeCycle:
    holds = finding.get("holds", True)
    return LifeCycle(
        state=_text(finding, "state"),
        confirmed_severity=_text(finding, "confirmed_severity"),
        lasted_seconds=_number(finding, "lasted_seconds"),
        wait_seconds=_number(finding, "wait_seconds"),
        holds=holds if isinstance(holds, bool) else None,
        quiet_seconds=_number(finding, "quiet_seconds") or 0.0,
        hold_seconds=_number(finding, "hold_seconds"),
    )


def _ended(finding: dict[str, Any]) -> EndedView:
    return EndedView(
        code=_text(finding, "code"),
        subject=_subject(finding),
        ended_at=_number(finding, "ended_at"),
        lasted_seconds=_number(finding, "lasted_seconds"),
        end=_text(finding, "end"),
    )


def _subject(finding: dict[str, Any]) -> str:
    index, address = _text(finding, "gpu"), _text(finding, "pci_bus_id")
    return f"GPU {index}" if index else f"GPU at {address}" if address else "host"


def _text(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    return printable(value) if isinstance(value, str) else ""


def _number(document: dict[str, Any], key: str) -> float | None:
    value = document.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)


def _list(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = document.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
