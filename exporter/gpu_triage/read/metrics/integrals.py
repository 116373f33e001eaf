"""Accumulate readings into counters that survive driver resets and miss nothing between scrapes."""

from __future__ import annotations


class Integral:
    """Integral of a ratio over time in seconds, by the trapezoid rule over successive readings.

    Gaps longer than `max_gap_seconds` are left out, since what happened in them is unknown.
    """

    __slots__ = ("_last_at", "_last_ratio", "_max_gap_seconds", "total_seconds")

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        self._last_at: float | None = None
        self._last_ratio = 0.0
        self.total_seconds = 0.0

    def add(self, ratio: float, at: float) -> float:
        """Add a reading of `ratio` (0-1) at monotonic second `at`; return the total."""
        if self._last_at is not None and 0 < at - self._last_at <= self._max_gap_seconds:
            self.total_seconds += (ratio + self._last_ratio) / 2 * (at - self._last_at)
        self._last_at = at
        self._last_ratio = ratio
        return self.total_seconds


class ContinuedCounter:
    """A driver's counter, continued over resets: the driver's value plus the totals lost in resets.

    A single low reading is treated as a glitch and held back, otherwise the recovery would be counted twice; two in a
    row are a reset. `accepted` is the last driver value that was accepted; 0 before the first.
    """

    __slots__ = ("_forgotten", "_suspect", "accepted")

    def __init__(self) -> None:
        self._forgotten = 0.0
        self._suspect = False
        self.accepted = 0.0

    def add(self, raw: float) -> float:
        """Add a driver value; return the counter, which never decreases."""
        fell = raw < self.accepted
        if fell and self._suspect:
            self._forgotten += self.accepted
        self._suspect = fell and not self._suspect
        if not self._suspect:
            self.accepted = raw
        return self._forgotten + self.accepted

    def rebase(self, raw: float) -> None:
        """Continue from `raw` without counting the jump."""
        self._forgotten += self.accepted - raw
        self._suspect = False
        self.accepted = raw


class ConfirmedCounter:
    """A driver's counter that only decreases if two readings in a row agree.

    One low reading is treated as a glitch and held back; two are a reset by an administrator or the driver, which must
    be visible, because alerts use the level (an error count that was cleared is 0).
    """

    __slots__ = ("_last", "_suspect")

    def __init__(self) -> None:
        self._last: float | None = None
        self._suspect = False

    @property
    def accepted(self) -> float:
        """Last driver value that was accepted; 0 before the first."""
        return self._last or 0.0

    def rebase(self, raw: float) -> None:
        """Continue from `raw`."""
        self._last = raw
        self._suspect = False

    def add(self, raw: float) -> float:
        """Add a driver value; return the counter to publish."""
        if self._last is not None and raw < self._last and not self._suspect:
            self._suspect = True
            return self._last
        self._suspect = False
        self._last = raw
        return raw
