"""Durations and times for display."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final

from gpu_triage.judge.evidence.wording import length_of_time

_MINUTE: Final = 60.0


def window(seconds: float) -> str:
    """The time range that was judged: ``the last minute``, ``the last 40 s``."""
    if seconds < 1:
        return "the first readings"
    return "the last minute" if round(seconds) == _MINUTE else f"the last {length_of_time(seconds)}"


def clock_time(wall: float) -> str:
    """The time of day, UTC: ``00:33``."""
    return _utc(wall).strftime("%H:%M")


def date_time(wall: float) -> str:
    return _utc(wall).strftime("%Y-%m-%d %H:%M:%S UTC")


def moment(wall: float) -> str:
    return f'<time datetime="{_machine(wall)}">{date_time(wall)}</time>'


def lasting(since: float | None, now: float) -> str:
    """How long something has lasted, with its start time as a tooltip; "" if unknown."""
    if since is None:
        return ""
    text = f"for {length_of_time(now - since)}" if now - since >= 1 else "just now"
    return f'<time class="soft" datetime="{_machine(since)}" title="since {date_time(since)}">{text}</time>'


def _machine(wall: float) -> str:
    return _utc(wall).isoformat(timespec="seconds")


def _utc(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, tz=timezone.utc)
