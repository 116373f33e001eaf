"""Durations in Prometheus' and Alertmanager's notation, divided by a pace."""

from __future__ import annotations

import re

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"(?<![\w.])(\d+)(ms|[smhd])(?!\w)")
"""A duration with one unit that isn't part of a name."""


def paced_duration(written: str, pace: int, *, shortest_seconds: float = 0.0) -> str:
    """A duration divided by `pace`, rounded to milliseconds; written in seconds if it is a whole number."""
    found = DURATION.fullmatch(written)
    if found is None:
        raise ValueError(f"{written!r} is not a duration of one unit, such as 90s")
    seconds = max(shortest_seconds, int(found[1]) * _UNITS[found[2]] / pace)
    return f"{seconds:.0f}s" if seconds == round(seconds) else f"{round(seconds * 1000)}ms"
