"""Keeps counters, and sums of counters, from going back within this process's life."""

from __future__ import annotations

from dataclasses import dataclass
from operator import add, ge
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

K = TypeVar("K", bound="Hashable")


@dataclass(slots=True)
class _Mark:
    highest: int
    carried: int


class MonotoneCounters(Generic[K]):
    """Counters by key, each starting at the kernel's value and never lower than before.

    A counter that drops a little has wobbled (idle and iowait of a CPU are estimates that may be revised) and
    is held until the kernel passes its highest value. One that drops by more than half has started again (a
    32-bit wrap, a device plugged in anew, a CPU's idle time after it was offline) and goes on from where it
    was. Memory is bounded by the number of keys ever seen.
    """

    def __init__(self) -> None:
        """Start without any counter."""
        self._marks: dict[K, _Mark] = {}

    def published(self, key: K, value: int, *, start: int = 0) -> int:
        """The counter's value to publish, given the kernel's, in the kernel's unit.

        Args:
            key: which counter.
            value: what the kernel says now, at least 0.
            start: for a counter not seen before, what of `value` to leave out.
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

    def known(self, key: K, value: int | None) -> int | None:
        """As `published`, of a counter that the kernel may not tell."""
        return None if value is None else self.published(key, value)


class MonotoneRows(Generic[K]):
    """Rows of counters by key, each counter as in MonotoneCounters; a host has thousands of them in /proc/stat."""

    def __init__(self) -> None:
        """Start without any row."""
        self._highest: dict[K, tuple[int, ...]] = {}
        self._carried: dict[K, tuple[int, ...]] = {}

    def published(self, key: K, values: tuple[int, ...], *, starts: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The counters' values to publish, given the kernel's.

        Args:
            key: which row. With another number of counters it is another row.
            values: what the kernel says now.
            starts: for a row not seen before, what of `values` to leave out; nothing by default.
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
    """The sum of counters over a set that varies, such as the links of a GPU; none of the counters goes back itself.

    A member that is gone, or does not answer, keeps what it counted. One that joins later adds only what it counts
    from then on: all that it ever counted would look like the work of one interval.
    """

    def __init__(self) -> None:
        """Start without members."""
        self._starts: dict[K, float] = {}
        self._last: dict[K, float] = {}

    def add(self, counts: Mapping[K, float]) -> float | None:
        """The sum, given what those members counted that answer now; None where none does."""
        if not counts:
            return None
        first = not self._last
        for key, count in counts.items():
            self._starts.setdefault(key, 0 if first else count)
            self._last[key] = count
        return sum(count - self._starts[key] for key, count in self._last.items())
