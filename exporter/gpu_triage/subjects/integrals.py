"""Running totals that miss nothing between scrapes and never go back."""

from __future__ import annotations


class Integral:
    """Seconds that a ratio was 1, integrated by the trapezoid rule over successive readings.

    A gap longer than `max_gap_seconds` is not integrated over: nobody knows what happened in it.
    """

    __slots__ = ("_last_at", "_last_ratio", "_max_gap_seconds", "total_seconds")

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        self._last_at: float | None = None
        self._last_ratio = 0.0
        self.total_seconds = 0.0

    def add(self, ratio: float, at: float) -> float:
        """The total after a reading of `ratio` (0-1) at monotonic second `at`."""
        if self._last_at is not None and 0 < at - self._last_at <= self._max_gap_seconds:
            self.total_seconds += (ratio + self._last_ratio) / 2 * (at - self._last_at)
        self._last_at = at
        self._last_ratio = ratio
        return self.total_seconds


class Continued:
    """A driver's counter, carried on over its resets: the driver's own value plus what it forgot.

    One low reading is a glitch and is held back, else what comes after it would be counted twice; two are a reset.

    Attributes:
        accepted: the driver's value that was last believed; 0 before the first.
    """

    __slots__ = ("_forgotten", "_suspect", "accepted")

    def __init__(self) -> None:
        self._forgotten = 0.0
        self._suspect = False
        self.accepted = 0.0

    def add(self, raw: float) -> float:
        """The counter after the driver said `raw`; never less than before."""
        fell = raw < self.accepted
        if fell and self._suspect:
            self._forgotten += self.accepted
        self._suspect = fell and not self._suspect
        if not self._suspect:
            self.accepted = raw
        return self._forgotten + self.accepted

    def rebase(self, raw: float) -> None:
        """Go on from `raw` without counting the way to it."""
        self._forgotten += self.accepted - raw
        self._suspect = False
        self.accepted = raw


class Confirmed:
    """A driver's counter whose fall counts only when the next reading agrees.

    One low reading is a glitch and is held back; two are an administrator's or the driver's reset, which
    must show, because alerts look at the level (an error count that was cleared is clear).
    """

    __slots__ = ("_last", "_suspect")

    def __init__(self) -> None:
        self._last: float | None = None
        self._suspect = False

    @property
    def accepted(self) -> float:
        """The driver's value that was last believed; 0 before the first."""
        return self._last or 0.0

    def rebase(self, raw: float) -> None:
        """Go on from `raw`."""
        self._last = raw
        self._suspect = False

    def add(self, raw: float) -> float:
        """The counter to publish after the driver said `raw`."""
        if self._last is not None and raw < self._last and not self._suspect:
            self._suspect = True
            return self._last
        self._suspect = False
        self._last = raw
        return raw
