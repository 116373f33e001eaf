"""When an event of a scenario happens: once, or repeatedly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpu_triage.documents import Place
from gpu_triage_simulator.schema import Seconds

MOST_OCCURRENCES: Final = 1000
"""Maximum for one event: each occurrence adds two edges to the timeline, and the whole host is recomputed at each."""


@dataclass(frozen=True, slots=True)
class EventTimes:
    """The times of an ``[[event]]`` table, in seconds of scenario time."""

    at: Seconds  # when it starts
    until: Seconds | None = None  # when it finally ends; None for never
    every: Seconds | None = None  # from the start of one occurrence to the next; None for an event that happens once
    lasts: Seconds | None = None  # duration of one occurrence


def check_times(times: EventTimes, where: Place) -> None:
    """Check that the times of an event are consistent; `where` names the event. Raises DocumentError: they are not."""
    if times.until is not None and times.until <= times.at:
        raise where.at("until").error("is not after at")
    if (times.every is None) != (times.lasts is None):
        raise where.error("every and lasts belong together")
    if times.every is None or times.lasts is None:
        return
    if times.until is None:
        raise where.error("every needs until, the time at which it is over")
    if not 0 < times.lasts < times.every:
        raise where.at("lasts").error("should be shorter than every, and not 0")
    if (times.until - times.at) / times.every > MOST_OCCURRENCES:
        raise where.at("every").error(f"happens more than {MOST_OCCURRENCES} times")


def occurrences(times: EventTimes) -> Iterator[tuple[int, int | None]]:
    """Start and end of each occurrence; the last one ends with the event."""
    if times.every is None or times.lasts is None or times.until is None:
        yield times.at, times.until
        return
    for at in range(times.at, times.until, times.every):
        yield at, min(at + times.lasts, times.until)
