"""Keep the kernel's counters from decreasing while this process runs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from operator import add, ge
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound="Hashable")

_MICROSECONDS: Final = 1e6


class MonotoneCounters(Generic[K]):
    """Counters by key, alone or in rows, that start at the kernel's value and never decrease.

    A small drop is jitter (a CPU's idle and iowait are estimates that may be revised): the counter is held until the
    kernel's value exceeds its maximum. A drop by more than half is a counter reset (a 32-bit wrap, a device that was
    replugged, a CPU's idle time after it was offline): the counter continues from its last value. No key is forgotten.
    """

    def __init__(self) -> None:
        self._highest: dict[K, tuple[int, ...]] = {}
        self._carried: dict[K, tuple[int, ...]] = {}

    def published(self, key: K, value: int, *, start: int = 0) -> int:
        """The value to publish for one of the kernel, in its unit; `start` is subtracted from the first."""
        return self.row(key, (value,), starts=(start,))[0]

    def published_seconds(
        self: MonotoneCounters[str], file: str, seconds: Mapping[str, float] | None
    ) -> Mapping[str, float] | None:
        """Like `published`, for a file's counters by kind, which the kernel keeps in microseconds, and as exact."""
        return seconds and {
            kind: self.published(f"{file} {kind}", round(each * _MICROSECONDS)) / _MICROSECONDS
            for kind, each in seconds.items()
        }

    def known(self, key: K, value: int | None) -> int | None:
        return None if value is None else self.published(key, value)

    def row(self, key: K, values: tuple[int, ...], *, starts: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Like `published`, for several counters at once: /proc/stat has thousands.

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
