"""Driver counters that are believed only as fast as the hardware can count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_triage.hardware.integrals import Continued, Unwrapped
from gpu_triage.hardware.nvml_inquiry import Inquiry

IMPLAUSIBLE: Final = "implausible"
"""Name of the error under which a dropped reading is counted."""

_JITTER_SECONDS: Final = 10.0
"""A round begins some time before the driver answers: a call may take up to the deadline."""

_PATIENCE_SECONDS: Final = 60.0
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


class BoundedCounter:
    """A driver's counter; a reading that the hardware cannot have reached since the last one is dropped.

    Args:
        limit: what the hardware can do.
        counter: carries the counter on over the driver's resets.
    """

    __slots__ = ("_believed_at", "_counter", "_limit", "_total")

    def __init__(self, limit: CounterLimit, counter: Continued | Unwrapped) -> None:
        self._limit = limit
        self._counter = counter
        self._believed_at: float | None = None
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
            if self._believed_at is not None and at - self._believed_at < _PATIENCE_SECONDS:
                inquiry.failures.append(IMPLAUSIBLE)
                return None
            self._counter.rebase(raw)
        # Large numbers are rounded where two of them are added: that must not make the counter fall.
        self._total = max(self._total, self._counter.add(raw))
        if self._counter.accepted == raw:
            self._believed_at = at
        return self._total

    def _too_fast(self, raw: float, at: float) -> bool:
        if self._believed_at is None:
            return False
        accepted = self._counter.accepted
        # A counter that fell was reset after the last reading: all that it shows was counted since.
        grown = raw - accepted if raw >= accepted else raw
        return grown > (at - self._believed_at + _JITTER_SECONDS) * self._limit.per_second
