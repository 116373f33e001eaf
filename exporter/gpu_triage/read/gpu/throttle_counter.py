"""A driver counter of throttled time, with plausibility checks."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from gpu_triage.read.metrics.integrals import ContinuedCounter
from gpu_triage.read.metrics.plausible import StateBeforeDrop

STANDS_STILL: Final = "stands_still"
TOO_FAST: Final = "too_fast"
FAULTS: Final = (STANDS_STILL, TOO_FAST)
"""Possible faults of a counter."""

_FASTEST: Final = 1.5
"""Growth in seconds per second above which a counter is implausible; above 1 to allow for clock jitter."""
_MOST_STRIKES: Final = 3
"""Implausible readings before the counter is rejected."""
_SOUND_READINGS: Final = 30
"""Plausible readings in a row that cancel an implausible one."""

_ENOUGH_SAMPLES: Final = 10
_WITHIN_SECONDS: Final = 60.0
_WITHIN_INTERVALS: Final = 20
"""With slow sampling, a minute has too few samples; then the window is this many intervals."""
_APART_SECONDS: Final = 0.9
"""Faster samples count once per second, since the driver need not update its counters more often."""


class ThrottleCounter:
    """One driver counter in seconds, checked against elapsed time and against its reason bit.

    If the bit is set while the counter does not move, the counter is wrong. The reverse proves nothing: the driver
    counts pulses too short for any sample, and on some boards time that no bit reflects. `total_seconds` is published
    and never decreases.
    """

    __slots__ = (
        "_accepted_at",
        "_before_fall",
        "_continued",
        "_last_raw",
        "_moved_at",
        "_sound_readings",
        "_stood_still",
        "_strikes",
        "_within_seconds",
        "total_seconds",
    )

    def __init__(self, interval_seconds: float) -> None:
        self._continued = ContinuedCounter()
        self._before_fall: StateBeforeDrop[ContinuedCounter] = StateBeforeDrop()
        self._accepted_at: float | None = None
        self._sound_readings = 0
        self._strikes = 0
        self._last_raw: float | None = None
        self._moved_at = -math.inf
        self._stood_still: deque[float] = deque(maxlen=_ENOUGH_SAMPLES)
        self._within_seconds = max(_WITHIN_SECONDS, _WITHIN_INTERVALS * interval_seconds)
        self.total_seconds = 0.0

    @property
    def fault(self) -> str | None:
        """Fault of the counter, one of FAULTS; None while it is plausible."""
        if self._strikes >= _MOST_STRIKES:
            return TOO_FAST
        seen = self._stood_still
        if len(seen) < _ENOUGH_SAMPLES:
            return None
        lately = seen[-1] - seen[0] < self._within_seconds
        return STANDS_STILL if lately and seen[-1] - self._moved_at >= self._within_seconds else None

    def add(self, raw_seconds: float, at: float, answered_at: float, *, active: bool) -> bool:
        """Add a reading; return False if it grew faster than elapsed time and jitter allow.

        The call took from `at` to `answered_at`, in monotonic seconds.
        """
        self._watch(raw_seconds, at, active=active)
        if self._accepted_at is not None:
            grown_seconds = raw_seconds - self._continued.accepted
            if grown_seconds > _most_growth(answered_at - self._accepted_at):
                before = self._before_fall.continued(raw_seconds, answered_at, _most_growth)
                if before is None:
                    self._strikes += 1
                    self._sound_readings = 0
                    return False
                self._continued, self._accepted_at = before
            self._before_fall.note(self._continued, self._accepted_at, raw_seconds, at)
        self._sound_readings += 1
        if self._sound_readings >= _SOUND_READINGS:
            self._sound_readings, self._strikes = 0, max(0, self._strikes - 1)
        self.total_seconds = max(self.total_seconds, self._continued.add(raw_seconds))
        if self._continued.accepted == raw_seconds:
            self._accepted_at = at
        return True

    def _watch(self, raw_seconds: float, at: float, *, active: bool) -> None:
        """Record when the counter last moved, and the samples with the bit set since then."""
        if raw_seconds != self._last_raw:
            self._moved_at = self._moved_at if self._last_raw is None else at
            self._last_raw = raw_seconds
            self._stood_still.clear()
        elif active and (not self._stood_still or at - self._stood_still[-1] >= _APART_SECONDS):
            self._stood_still.append(at)


def _most_growth(seconds: float) -> float:
    return seconds * _FASTEST + 1
