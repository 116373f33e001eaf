"""Keep counters, and sums of counters, from decreasing while this process runs."""

from __future__ import annotations

from dataclasses import dataclass
from operator import add, ge
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

K = TypeVar("K", bound="Hashable")

_MICROSECONDS: Final = 1e6


@dataclass(slots=True)
class _Mark:
    highest: int
    carried: int


class MonotoneCounters(Generic[K]):
    """Counters by key that start at the kernel's value and never decrease.

    A small drop is jitter (a CPU's idle and iowait are estimates that may be revised): the counter is held until the
    kernel's value exceeds its maximum. A drop by more than half is a counter reset (a 32-bit wrap, a device that was
    replugged, a CPU's idle time after it was offline): the counter continues from its last value. Memory is bounded by
    the number of keys ever seen.
    """

    def __init__(self) -> None:
        self._marks: dict[K, _Mark] = {}

    def published(self, key: K, value: int, *, start: int = 0) -> int:
        """Return the value to publish for a new kernel value, in the kernel's unit.

        `start` is the part of the first value to subtract.
        """
        mark = self._marks.get(key)
        if mark is None:
            mark = self._marks[key] = _Mark(highest=value, carried=-start)
        elif value >= mark.highest:
            mark.highest = value
        elif value * 2 < mark.highest:
            mark.carried += mark.highest
            mark.highest = value
        return mark.carried + mark.highest

    def published_seconds(self, key: K, seconds: float) -> float:
        """Like `published`, for a counter that the kernel keeps in microseconds, and as exact."""
        return self.published(key, round(seconds * _MICROSECONDS)) / _MICROSECONDS

    def known(self, key: K, value: int | None) -> int | None:
        """Like `published`, for a counter the kernel may not report."""
        return None if value is None else self.published(key, value)


class MonotoneRows(Generic[K]):
    """Rows of counters by key, with the semantics of MonotoneCounters; /proc/stat has thousands of counters."""

    def __init__(self) -> None:
        self._highest: dict[K, tuple[int, ...]] = {}
        self._carried: dict[K, tuple[int, ...]] = {}

    def published(self, key: K, values: tuple[int, ...], *, starts: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return the values to publish for a row of new kernel values.

        If the number of counters changes, the row starts over. `starts` are the parts of a new row to subtract.
        """
        highest = self._highest.get(key)
        if highest is None or len(highest) != len(values):
            self._carried[key] = tuple(-start for start in starts) if starts else (0,) * len(values)
        elif not all(map(ge, values, highest)):
            pairs = tuple(zip(values, highest, strict=True))
            again = (most if now * 2 < most else 0 for now, most in pairs)
            self._carried[key] = tuple(map(add, self._carried[key], again))
            values = tuple(now if now >= most or now * 2 < most else most for now, most in pairs)
        self._highest[key] = values
        return tuple(map(add, self._carried[key], values))


class MonotoneSum(Generic[K]):
    """Sum of monotonic counters over a changing set of members, such as the links of a GPU.

    A member that disappears or does not answer keeps its contribution. One that joins later only contributes its
    increase from then on: its whole history would look like the work of one interval.
    """

    def __init__(self) -> None:
        self._starts: dict[K, float] = {}
        self._last: dict[K, float] = {}

    def add(self, counts: Mapping[K, float]) -> float | None:
        """Update the members that answered; return the sum, or None if none did."""
        if not counts:
            return None
        first = not self._last
        for key, count in counts.items():
            self._starts.setdefault(key, 0 if first else count)
            self._last[key] = count
        return sum(count - self._starts[key] for key, count in self._last.items())
