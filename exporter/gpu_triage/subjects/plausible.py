"""Driver counters that are believed only as fast as the hardware can count."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from gpu_triage.nvml.inquiry import Inquiry
from gpu_triage.subjects.integrals import Confirmed, Continued

C = TypeVar("C", bound=Continued | Confirmed)

IMPLAUSIBLE: Final = "implausible"
"""Name of the error under which a dropped reading is counted."""

_JITTER_SECONDS: Final = 10.0
"""A round begins some time before the driver answers: a call may take up to the deadline."""

PATIENCE_SECONDS: Final = 60.0
"""After so long without a plausible reading the driver's new level is taken as it is, and the jump is not counted."""


@dataclass(frozen=True, slots=True)
class CounterLimit:
    """What a counter of sound hardware cannot exceed.

    Attributes:
        per_second: growth in one second.
        most: the largest value.
    """

    per_second: float
    most: float


ERRORS: Final = CounterLimit(per_second=1e6, most=1 << 31)
"""Errors of a link: one with more of them is retrained or taken down. The highest 32-bit numbers are junk."""


class BeforeFall(Generic[C]):
    """A counter as it was before it fell, for as long as it may turn out not to have been reset.

    A driver that says 0 for some seconds and then continues from where it was did not reset anything.
    """

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before: tuple[C, float] | None = None

    def note(self, counter: C, believed_at: float, raw: float, at: float) -> None:
        """Take in a reading that is about to be added.

        Args:
            counter: to which it will be added.
            believed_at: monotonic second of the last reading that was believed.
            raw: what the driver says.
            at: monotonic second at which it was asked.
        """
        before = self._before
        if before is not None and (raw >= before[0].accepted or at - before[1] >= PATIENCE_SECONDS):
            before = None
        if before is None and raw < counter.accepted:
            before = copy.copy(counter), believed_at
        self._before = before

    def continued(self, raw: float, at: float, most_growth: Callable[[float], float]) -> tuple[C, float] | None:
        """The counter and the time of its last reading, if a reading continues from there; else None.

        Args:
            raw: what the driver says.
            at: monotonic second of the reading.
            most_growth: what the counter can have grown by in so many seconds.
        """
        if self._before is None or at - self._before[1] >= PATIENCE_SECONDS:
            return None
        counter, believed_at = self._before
        return self._before if 0 <= raw - counter.accepted <= most_growth(at - believed_at) else None


class BoundedCounter:
    """A driver's counter; a reading that the hardware cannot have reached since the last one is dropped.

    Args:
        limit: what the hardware can do.
        counter: carries the counter on over the driver's resets, or shows them.
    """

    __slots__ = ("_before_fall", "_believed_at", "_counter", "_limit", "_total")

    def __init__(self, limit: CounterLimit, counter: Continued | Confirmed) -> None:
        self._limit = limit
        self._counter = counter
        self._believed_at: float | None = None
        self._before_fall: BeforeFall[Continued | Confirmed] = BeforeFall()
        self._total = 0.0

    def add(self, inquiry: Inquiry, raw: float | None, at: float) -> float | None:
        """The counter to publish; None without a reading, and for one that is dropped and noted as ``implausible``.

        Args:
            inquiry: notes what is dropped.
            raw: what the driver says.
            at: monotonic second at which it was asked.
        """
        if raw is None or inquiry.within(raw, 0, self._limit.most) is None:
            return None
        if self._too_fast(raw, at):
            before = self._before_fall.continued(raw, at, self._most_growth)
            if before is not None:
                self._counter, self._believed_at = before
            elif self._believed_at is not None and at - self._believed_at < PATIENCE_SECONDS:
                inquiry.failures.append(IMPLAUSIBLE)
                return None
            else:
                self._counter.rebase(raw)
        if self._believed_at is not None:
            self._before_fall.note(self._counter, self._believed_at, raw, at)
        total = self._counter.add(raw)
        # Large numbers are rounded where two of them are added: that must not make the counter fall.
        self._total = total if isinstance(self._counter, Confirmed) else max(self._total, total)
        if self._counter.accepted == raw:
            self._believed_at = at
        return self._total

    def _too_fast(self, raw: float, at: float) -> bool:
        if self._believed_at is None:
            return False
        accepted = self._counter.accepted
        # A counter that fell was reset after the last reading: all that it shows was counted since.
        grown = raw - accepted if raw >= accepted else raw
        return grown > self._most_growth(at - self._believed_at)

    def _most_growth(self, seconds: float) -> float:
        return (seconds + _JITTER_SECONDS) * self._limit.per_second
