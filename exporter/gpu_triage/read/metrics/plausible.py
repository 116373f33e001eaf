"""Reject driver counter readings that grow faster than the hardware can count."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from gpu_triage.driver.nvml.fields import FieldId
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.read.metrics.integrals import ConfirmedCounter, ContinuedCounter
from gpu_triage.read.metrics.monotone import MonotoneSum

C = TypeVar("C", bound=ContinuedCounter | ConfirmedCounter)

IMPLAUSIBLE: Final = "implausible"
"""Error name for dropped readings."""

_JITTER_SECONDS: Final = 10.0
"""Timestamps are taken at the start of a round; the driver may answer up to the deadline later."""

PATIENCE_SECONDS: Final = 60.0
"""After this long without a plausible reading, the driver's new level is accepted without counting the jump."""


@dataclass(frozen=True, slots=True)
class CounterLimit:
    """Limits of a counter on working hardware: its growth, and its value."""

    per_second: float
    most: float


ERRORS: Final = CounterLimit(per_second=1e6, most=1 << 31)
"""Link errors: a link with more is retrained or taken down. The highest 32-bit numbers are garbage."""


class StateBeforeDrop(Generic[C]):
    """State of a counter before it dropped, kept while the drop may still turn out not to be a reset.

    A driver that reports 0 for a few seconds and then continues from the old value did not reset the counter.
    """

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before: tuple[C, float] | None = None

    def note(self, counter: C, believed_at: float, raw: float, at: float) -> None:
        """Record a reading that is about to be added; the counter accepted its last one at `believed_at`."""
        before = self._before
        if before is not None and (raw >= before[0].accepted or at - before[1] >= PATIENCE_SECONDS):
            before = None
        if before is None and raw < counter.accepted:
            before = copy.copy(counter), believed_at
        self._before = before

    def continued(self, raw: float, at: float, most_growth: Callable[[float], float]) -> tuple[C, float] | None:
        """Return the old counter and the time of its last reading if `raw` plausibly continues it, else None."""
        if self._before is None or at - self._before[1] >= PATIENCE_SECONDS:
            return None
        counter, believed_at = self._before
        return self._before if 0 <= raw - counter.accepted <= most_growth(at - believed_at) else None


class BoundedCounter:
    """A driver's counter; readings it cannot have reached since the last one are dropped.

    `counter` decides how driver resets are treated: it continues over them, or shows them.
    """

    __slots__ = ("_before_fall", "_believed_at", "_counter", "_limit", "_total")

    def __init__(self, limit: CounterLimit, counter: ContinuedCounter | ConfirmedCounter) -> None:
        self._limit = limit
        self._counter = counter
        self._believed_at: float | None = None
        self._before_fall: StateBeforeDrop[ContinuedCounter | ConfirmedCounter] = StateBeforeDrop()
        self._total = 0.0

    def add(self, inquiry: Inquiry, raw: float | None, at: float) -> float | None:
        """Return the counter to publish; None without a reading, or if it is dropped (recorded as ``implausible``)."""
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
        # Floating-point addition of large numbers rounds; that must not make the counter decrease.
        self._total = total if isinstance(self._counter, ConfirmedCounter) else max(self._total, total)
        if self._counter.accepted == raw:
            self._believed_at = at
        return self._total

    def _too_fast(self, raw: float, at: float) -> bool:
        if self._believed_at is None:
            return False
        accepted = self._counter.accepted
        # If the counter dropped, it was reset since the last reading, so its whole value is growth.
        grown = raw - accepted if raw >= accepted else raw
        return grown > self._most_growth(at - self._believed_at)

    def _most_growth(self, seconds: float) -> float:
        return (seconds + _JITTER_SECONDS) * self._limit.per_second


class LinkCounters:
    """Counters in fields with a link as scope, summed over the links, including those that currently do not answer."""

    def __init__(self, limit: CounterLimit) -> None:
        self._limit = limit
        self._counters: dict[FieldId, BoundedCounter] = {}
        self._sums: dict[int, MonotoneSum[int]] = {}

    def total(self, inquiry: Inquiry, field: int, values: Mapping[FieldId, float], at: float) -> float | None:
        """Sum of a field of these values, continued over resets; None if no link has it."""
        counts: dict[int, float] = {}
        for key, raw in values.items():
            if isinstance(key, tuple) and key[0] == field:
                counter = self._counters.setdefault(key, BoundedCounter(self._limit, ContinuedCounter()))
                count = counter.add(inquiry, raw, at)
                if count is not None:
                    counts[key[1]] = count
        return self._sums.setdefault(field, MonotoneSum()).add(counts)
