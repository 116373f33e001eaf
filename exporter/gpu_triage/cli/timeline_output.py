"""Timelines of findings as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from gpu_triage.cli.timeline import FindingHistory, Key, Period, Timelines
from gpu_triage.documents import printable
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.settings import Change
from gpu_triage.judge.report.machine_readable import changed_setting

FORMAT: Final = "gpu-triage-judge"
VERSION: Final = 1
_MOST_PERIODS: Final = 6
"""Maximum number of occurrences shown per finding; if there are more, the first ones and the last are shown."""


def render_text(found: Timelines, source: str, names: Sequence[str], changes: Sequence[Change]) -> str:
    """Return the timelines as text; `names` label the judges, and `changes` are settings that differ between them."""
    began, ended = (_moment(each) for each in (found.began_at, found.ended_at))
    lasted = length_of_time(found.ended_at - found.began_at)
    lines = [f"{printable(source)}: {began:%Y-%m-%d %H:%M:%S} to {ended:%Y-%m-%d %H:%M:%S} UTC, {lasted}"]
    lines += (f"  {each.text}" for each in changes)
    keys = _keys(found)
    if not keys:
        return "\n".join((*lines, "", "No findings.")) + "\n"
    differing = [key for key in keys if _differs(found, key)]
    if len(found.of) > 1:
        lines += ["", f"{len(differing)} of {len(keys)} findings {'differs' if len(differing) == 1 else 'differ'}."]
    for key in (*differing, *(each for each in keys if each not in differing)):
        lines += _finding(found, key, names)
    return "\n".join(lines) + "\n"


def render_json(found: Timelines, source: str, names: Sequence[str], changes: Sequence[Change]) -> str:
    """Return the timelines as JSON; docs/check.md describes the format. Times are Unix seconds by the host's clock."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "source": source,
        "began_at": round(found.began_at, 3),
        "ended_at": round(found.ended_at, 3),
        "settings": [changed_setting(each) for each in changes],
        "findings": [_finding_document(found, key, names) for key in _keys(found)],
    }
    return json.dumps(document, indent=2) + "\n"


def _finding_document(found: Timelines, key: Key, names: Sequence[str]) -> dict[str, Any]:
    finding = _course(found, key).finding
    return {
        "code": finding.check.code,
        "severity": finding.severity.value,
        "alert": finding.check.alert,
        "gpu": finding.gpu,
        "uuid": finding.uuid or None,
        "pci_bus_id": finding.pci_bus_id or None,
        "measured": finding.measured,
        "differs": _differs(found, key),
        "periods": {
            name: [
                {
                    "pending_at": _rounded(p.pending_at),
                    "confirmed_at": _rounded(p.confirmed_at),
                    "ended_at": _rounded(p.ended_at),
                }
                for p in _periods(courses.get(key))
            ]
            for name, courses in zip(names, found.of, strict=True)
        },
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _moment(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, timezone.utc)


def _keys(found: Timelines) -> list[Key]:
    """Return every finding of any judge: most severe first, then by time."""
    keys = dict.fromkeys(key for courses in found.of for key in courses)

    def rank(key: Key) -> tuple[int, float]:
        course = _course(found, key)
        return -course.finding.severity.rank, course.periods[0].pending_at

    return sorted(keys, key=rank)


def _course(found: Timelines, key: Key) -> FindingHistory:
    return next(courses[key] for courses in found.of if key in courses)


def _periods(course: FindingHistory | None) -> Sequence[Period]:
    return () if course is None else course.periods


def _differs(found: Timelines, key: Key) -> bool:
    first, *others = (_periods(courses.get(key)) for courses in found.of)
    return any(other != first for other in others)


def _finding(found: Timelines, key: Key, names: Sequence[str]) -> Iterator[str]:
    finding = _course(found, key).finding
    yield ""
    yield f"{finding.severity.value} {finding.subject} {finding.check.code}: {printable(finding.measured)}"
    width = max(map(len, names)) + 2 if len(names) > 1 else 0
    for name, courses in zip(names, found.of, strict=True):
        label = name.ljust(width) if width else ""
        for line in _lines(_periods(courses.get(key))):
            yield f"  {label}{line}"
            label = " " * width


def _lines(periods: Sequence[Period]) -> Iterator[str]:
    if not periods:
        yield "not found"
        return
    shown = periods if len(periods) <= _MOST_PERIODS else (*periods[: _MOST_PERIODS - 1], periods[-1])
    for place, period in enumerate(shown):
        if place == _MOST_PERIODS - 1 and len(periods) > _MOST_PERIODS:
            yield f"{len(periods) - _MOST_PERIODS} more times"
        yield ", ".join(_stages(period))


def _stages(period: Period) -> Iterator[str]:
    yield f"pending {_moment(period.pending_at):%H:%M:%S}"
    if period.confirmed_at is not None:
        yield f"confirmed {_moment(period.confirmed_at):%H:%M:%S}"
    if period.ended_at is not None:
        word = "over" if period.confirmed_at is None else "ended"
        yield f"{word} {_moment(period.ended_at):%H:%M:%S}"
    elif period.confirmed_at is None:
        yield "not confirmed by the end"
