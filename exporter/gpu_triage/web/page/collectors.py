"""The exporter's own state: each collector's last success, interval and errors."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.evidence import Evidence, Track
from gpu_triage.web.page.markup import UNKNOWN, chip, safe, section, table
from gpu_triage.web.page.times import duration

_HEADS: Final = ("Collector", "State", "Last success", "Interval", "Errors since start")
_STALE_INTERVALS: Final = 3
_STALE_GRACE_SECONDS: Final = 30.0
"""The same as in alert GpuExporterStale."""


def collectors_section(evidence: Evidence) -> str:
    """The table of collectors, those with a problem first; folded while all are current."""
    tracks = evidence.series(catalogue.EXPORTER_COLLECTOR_INTERVAL)
    rows = sorted((_row(track, evidence) for track in tracks), key=lambda row: row[0])
    if not rows:
        return section("collectors", "Collectors", "<p>No collector has started yet.</p>")
    well = sum(fine for fine, _ in rows)
    if well == len(rows):
        summary = f"{chip('ok', 'well')} all collectors current"
    else:
        summary = f"{chip(f'{len(rows) - well} not ok', 'held')} {well} of {len(rows)} collectors current"
    opened = "" if well == len(rows) else " open"
    body = table("Collectors", _HEADS, (row for _, row in rows), "collectors")
    return section("collectors", "Collectors", f"<details{opened}>\n<summary>{summary}</summary>\n{body}\n</details>")


def _row(interval: Track, evidence: Evidence) -> tuple[bool, str]:
    """Whether the collector is current, and its row."""
    name = interval.labels["collector"]
    success = evidence.last(catalogue.EXPORTER_COLLECTOR_SUCCESS, collector=name)
    last_success_at = evidence.last(catalogue.EXPORTER_COLLECTOR_LAST_SUCCESS, collector=name)
    age = None if last_success_at is None else max(0.0, evidence.wall - last_success_at)
    state, tone = _state(success, age, interval.last)
    cells = (
        chip(state, tone),
        UNKNOWN if age is None else f"{duration(age)} ago",
        f"{interval.last:g} s" if interval.last else "on events",
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
