"""Counters of the driver, which may be reset, glitch, or return garbage; and integrals where it has none."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.lists import FieldId

IMPLAUSIBLE: Final = "implausible"  # error name for dropped readings
_JITTER_SECONDS: Final = 10.0
"""Timestamps are taken at the start of a round; the driver may answer up to the deadline later."""

PATIENCE_SECONDS: Final = 60.0
"""After this long without a plausible reading, the driver's new level is accepted without counting the jump."""


@dataclass(frozen=True, slots=True)
class CounterLimit:
    per_second: float
    most: float

    def most_growth(self, seconds: float) -> float:
        return (seconds + _JITTER_SECONDS) * self.per_second


UNLIMITED: Final = CounterLimit(per_second=math.inf, most=math.inf)

ERRORS: Final = CounterLimit(per_second=1e6, most=1 << 31)
"""Link errors: a link with more is retrained or taken down. The highest 32-bit numbers are garbage."""


class _Level(NamedTuple):
    """State of a counter: the driver's last accepted value, when it was read, and the totals lost in resets."""

    raw: float = 0.0
    read_at: float | None = None
    lost: float = 0.0
    suspect: bool = False  # whether the reading after it was lower


class DriverCounter:
    """A driver's counter, continued over resets: the driver's value plus the totals lost in resets.

    A single low reading is treated as a glitch and held back, otherwise the recovery would be counted twice; two in a
    row are a reset. If the driver then continues from the old value, there was none: some report 0 for a few seconds.

    With `shows_resets`, it decreases at a reset instead, because alerts use the level: an error count that an
    administrator or the driver cleared is 0.
    """

    __slots__ = ("_before_drop", "_level", "_limit", "_shows_resets", "total")

    def __init__(self, limit: CounterLimit = UNLIMITED, *, start: float = 0.0, shows_resets: bool = False) -> None:
        """Count from a driver value of `start`; `read` applies the limit."""
        self._limit = limit
        self._level = _Level(start, lost=-start)
        self._before_drop: _Level | None = None
        self._shows_resets = shows_resets
        self.total = 0.0

    def grown(self, raw: float, at: float) -> tuple[float, float] | None:
        """Growth from the last accepted value to this one, and the seconds it took; None before the first."""
        read_at = self._level.read_at
        return None if read_at is None else (raw - self._level.raw, at - read_at)

    def add(self, raw: float, at: float) -> float:
        """Accept a driver value of monotonic second `at`; return the counter."""
        level = self._level
        if level.read_at is not None:
            self._note_drop(raw, at)
        fell = raw < level.raw
        if fell and not level.suspect:
            self._level = level._replace(suspect=True)
        else:
            self._level = _Level(raw, at, level.lost + (level.raw if fell and not self._shows_resets else 0.0))
        total = self._level.lost + self._level.raw
        # Floating-point addition of large numbers rounds; that must not make the counter decrease.
        self.total = total if self._shows_resets else max(self.total, total)
        return self.total

    def resumes(self, raw: float, at: float, most_growth: Callable[[float], float]) -> bool:
        """Take the last drop back if `raw` plausibly continues the value before it; returns whether it did."""
        before = self._before_drop
        if before is None or before.read_at is None or at - before.read_at >= PATIENCE_SECONDS:
            return False
        plausible = 0 <= raw - before.raw <= most_growth(at - before.read_at)
        if plausible:
            self._level = before
        return plausible

    def read(self, inquiry: Inquiry, raw: float | None, at: float) -> float | None:
        """The counter to publish, or None without a reading or if the hardware cannot have counted to it.

        The latter is recorded as ``implausible``. If it lasts, the counter continues from there, without the jump.
        """
        limit = self._limit
        if raw is None or inquiry.within(raw, 0, limit.most) is None:
            return None
        grown = self.grown(raw, at)
        if grown is not None:
            # If the counter dropped, it was reset since the last reading, so its whole value is growth.
            growth, seconds = grown[0] if grown[0] >= 0 else raw, grown[1]
            if growth > limit.most_growth(seconds) and not self.resumes(raw, at, limit.most_growth):
                if seconds < PATIENCE_SECONDS:
                    inquiry.failures.append(IMPLAUSIBLE)
                    return None
                lost = 0.0 if self._shows_resets else self._level.lost + self._level.raw - raw
                self._level = _Level(raw, self._level.read_at, lost)
        return self.add(raw, at)

    def _note_drop(self, raw: float, at: float) -> None:
        before, level = self._before_drop, self._level
        if before is not None and (raw >= before.raw or at - (before.read_at or 0.0) >= PATIENCE_SECONDS):
            before = None
        self._before_drop = level if before is None and raw < level.raw else before


class LinkCounter:
    """One counter of each link of a GPU, and its sum over all links.

    A link that disappears or does not answer keeps its contribution to the sum. One that joins later only contributes
    its increase from then on: its whole history would look like the work of one interval.
    """

    def __init__(self, limit: CounterLimit) -> None:
        self._counters = defaultdict[int, DriverCounter](partial(DriverCounter, limit))
        self._starts: dict[int, float] = {}
        self._last: dict[int, float] = {}

    def read(self, inquiry: Inquiry, link: int, raw: float, at: float) -> float | None:
        return self._counters[link].read(inquiry, raw, at)

    def total(self, counts: Mapping[int, float]) -> float | None:
        """Sum over all links, given the counters of those that answered; None if none did."""
        if not counts:
            return None
        first = not self._last
        for link, count in counts.items():
            self._starts.setdefault(link, 0.0 if first else count)
            self._last[link] = count
        return sum(count - self._starts[link] for link, count in self._last.items())

    def read_total(self, inquiry: Inquiry, field: int, values: Mapping[FieldId, float], at: float) -> float | None:
        """Sum over all links of a field that has the link as scope; None if none of these values is of that field."""
        counts = {
            key[1]: count
            for key, raw in values.items()
            if isinstance(key, tuple) and key[0] == field
            if (count := self.read(inquiry, key[1], raw, at)) is not None
        }
        return self.total(counts)


class Grown(NamedTuple):
    """Growth of an integral, and the time it covers, in seconds."""

    seconds: float
    covered: float


class Integral:
    """Integral of a ratio over time in seconds, by the trapezoid rule over successive readings.

    Gaps longer than `max_gap_seconds` are left out, since what happened in them is unknown.
    """

    __slots__ = ("_last", "_max_gap_seconds", "total_seconds")

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        self._last: tuple[float, float] | None = None  # the last reading: ratio and monotonic second
        self.total_seconds = 0.0

    def add(self, ratio: float, at: float) -> Grown:
        """Add a reading of `ratio` (0-1) at monotonic second `at`."""
        last, self._last = self._last, (ratio, at)
        if last is None or not 0 < (covered := at - last[1]) <= self._max_gap_seconds:
            return Grown(0.0, 0.0)
        grown = Grown((ratio + last[0]) / 2 * covered, covered)
        self.total_seconds += grown.seconds
        return grown
