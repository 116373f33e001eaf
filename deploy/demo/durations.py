"""Durations as Prometheus and Alertmanager write them, divided by a pace."""

from __future__ import annotations

import re

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"(?<![\w.])(\d+)(ms|[smhd])(?!\w)")
"""A duration of one unit, and no part of a name."""


def paced_duration(written: str, pace: int, *, shortest_seconds: float = 0.0) -> str:
    """A duration divided by `pace`, to the millisecond; in whole seconds where it comes to whole seconds.

    Raises:
        ValueError: it is not written with one unit.
    """
    found = DURATION.fullmatch(written)
    if found is None:
        raise ValueError(f"{written!r} is not a duration of one unit, such as 90s")
    seconds = max(shortest_seconds, int(found[1]) * _UNITS[found[2]] / pace)
    return f"{seconds:.0f}s" if seconds == round(seconds) else f"{round(seconds * 1000)}ms"
