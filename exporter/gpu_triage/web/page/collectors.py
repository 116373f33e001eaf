"""How the exporter itself fares: each collector's last success, its pace and its errors."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.evidence import Evidence, Track
from gpu_triage.web.page.markup import UNKNOWN, chip, safe, section, table

_HEADS: Final = ("Collector", "State", "Last success", "Every", "Errors since the start")
_STALE_INTERVALS: Final = 3
_STALE_GRACE_SECONDS: Final = 30.0
"""As alert GpuExporterStale has it."""

_MINUTE: Final = 60.0
_HOUR: Final = 3600.0


def collectors_section(evidence: Evidence) -> str:
    """The table of collectors, those in trouble first; folded away while there are none of these."""
    tracks = evidence.series(catalogue.EXPORTER_COLLECTOR_INTERVAL)
    rows = sorted((_row(track, evidence) for track in tracks), key=lambda row: row[0])
    if not rows:
        return section("collectors", "Collectors", "<p>None runs yet.</p>")
    well = sum(fine for fine, _ in rows)
    mark = chip("ok", "well") if well == len(rows) else chip(f"{len(rows) - well} in trouble", "held")
    opened = "" if well == len(rows) else " open"
    body = table("Collectors", _HEADS, (row for _, row in rows), "collectors")
    summary = f"<summary>{mark} {well} of {len(rows)} collectors read what they should, when they should</summary>"
    return section("collectors", "Collectors", f"<details{opened}>\n{summary}\n{body}\n</details>")


def duration(seconds: float) -> str:
    """Seconds as people say them: ``4 s``, ``3 min``, ``2 h``."""
    if seconds >= 2 * _HOUR:
        return f"{seconds / _HOUR:.0f} h"
    return f"{seconds / _MINUTE:.0f} min" if seconds >= 2 * _MINUTE else f"{seconds:.0f} s"


def _row(interval: Track, evidence: Evidence) -> tuple[bool, str]:
    """Whether all is well, and the row."""
    name = interval.labels["collector"]
    success = evidence.last(catalogue.EXPORTER_COLLECTOR_SUCCESS, collector=name)
    last_success_at = evidence.last(catalogue.EXPORTER_COLLECTOR_LAST_SUCCESS, collector=name)
    age = None if last_success_at is None else max(0.0, evidence.wall - last_success_at)
    state, tone = _state(success, age, interval.last)
    cells = (
        chip(state, tone),
        UNKNOWN if age is None else f"{duration(age)} ago",
        f"{interval.last:g} s" if interval.last else "pushed",
        _errors(name, evidence),
    )
    row = "".join(f"<td>{cell}</td>" for cell in cells)
    return (
        tone == "well",
        f'<tr data-collector="{safe(name)}" data-state="{state}"><th scope="row">{safe(name)}</th>{row}</tr>',
    )


def _state(success: float | None, age_seconds: float | None, interval_seconds: float) -> tuple[str, str]:
    if success is None:
        return "waiting", "idle"
    if success == 0:
        return "failing", "sick"
    if age_seconds is not None and age_seconds > _STALE_INTERVALS * interval_seconds + _STALE_GRACE_SECONDS:
        return "stale", "held"
    return "ok", "well"


def _errors(name: str, evidence: Evidence) -> str:
    counts: dict[str, float] = defaultdict(float)
    for track in evidence.series(catalogue.EXPORTER_ERRORS, collector=name):
        counts[track.labels["error"]] += track.last
    return ", ".join(f"{safe(error)} {count:.0f}" for error, count in sorted(counts.items())) or UNKNOWN
