"""Status page section on the exporter itself: each collector's last success, interval and errors."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from gpu_triage.judge.evidence.series import Evidence, Series
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.read.exporter.health import (
    GPU_EXPORTER_COLLECTOR_INTERVAL_SECONDS,
    GPU_EXPORTER_COLLECTOR_LAST_SUCCESS_TIMESTAMP_SECONDS,
    GPU_EXPORTER_COLLECTOR_SUCCESS,
    GPU_EXPORTER_ERRORS_TOTAL,
    STALE_GRACE_SECONDS,
    STALE_INTERVALS,
)
from gpu_triage.serve.page.markup import UNKNOWN, chip, row, safe, section, table

_HEADS: Final = ("Collector", "State", "Last success", "Interval", "Errors since start")


def collectors_section(evidence: Evidence) -> str:
    """The table of collectors, those with a problem first; collapsed if all are current."""
    tracks = evidence.series(GPU_EXPORTER_COLLECTOR_INTERVAL_SECONDS)
    rows = sorted((_row(track, evidence) for track in tracks), key=lambda each: each[0])
    if not rows:
        return section("collectors", "Collectors", "<p>No collector has started yet.</p>")
    well = sum(fine for fine, _ in rows)
    if well == len(rows):
        opened, summary = "", f"{chip('ok', 'well')} all collectors current"
    else:
        opened = " open"
        summary = f"{chip(f'{len(rows) - well} not ok', 'held')} {well} of {len(rows)} collectors current"
    body = table("Collectors", _HEADS, (each for _, each in rows), "collectors")
    return section("collectors", "Collectors", f"<details{opened}>\n<summary>{summary}</summary>\n{body}\n</details>")


def _row(interval: Series, evidence: Evidence) -> tuple[bool, str]:
    """Whether the collector is current, and its table row."""
    name = interval.labels["collector"]
    success = evidence.last(GPU_EXPORTER_COLLECTOR_SUCCESS, collector=name)
    last_success_at = evidence.last(GPU_EXPORTER_COLLECTOR_LAST_SUCCESS_TIMESTAMP_SECONDS, collector=name)
    age = None if last_success_at is None else max(0.0, evidence.at.wall - last_success_at)
    state, tone = _state(success, age, interval.last)
    cells = (
        chip(state, tone),
        UNKNOWN if age is None else f"{length_of_time(age)} ago",
        f"{interval.last:g} s" if interval.last else "on events",
        _errors(name, evidence),
    )
    return tone == "well", row(safe(name), cells, data_collector=name, data_state=state)


def _state(success: float | None, age_seconds: float | None, interval_seconds: float) -> tuple[str, str]:
    if success is None:
        return "waiting", "idle"
    if success == 0:
        return "failing", "sick"
    if age_seconds is not None and age_seconds > STALE_INTERVALS * interval_seconds + STALE_GRACE_SECONDS:
        return "stale", "held"
    return "ok", "well"


def _errors(name: str, evidence: Evidence) -> str:
    counts: dict[str, float] = defaultdict(float)
    for track in evidence.series(GPU_EXPORTER_ERRORS_TOTAL, collector=name):
        counts[track.labels["error"]] += track.last
    return ", ".join(f"{safe(error)} {count:.0f}" for error, count in sorted(counts.items())) or UNKNOWN
