"""Keep the kernel's counters from decreasing while this process runs."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cache
from operator import add, ge
from typing import Any, TypeVar, get_args, get_type_hints

from gpu_triage.read.metrics.metric import Kind, MetricSpec

R = TypeVar("R")


class MonotoneCounters:
    """Counters by key, alone or in rows, that start at the kernel's value and never decrease.

    A small drop is jitter (a CPU's idle and iowait are estimates that may be revised): the counter is held until the
    kernel's value exceeds its maximum. A drop by more than half is a counter reset (a 32-bit wrap, a device that was
    replugged, a CPU's idle time after it was offline): the counter continues from its last value. No key is forgotten.
    """

    def __init__(self) -> None:
        self._highest: dict[Hashable, tuple[Any, ...]] = {}
        self._carried: dict[Hashable, tuple[Any, ...]] = {}

    def published(self, key: Hashable, value: int, *, start: int = 0) -> int:
        """The value to publish for one of the kernel, in its unit; `start` is subtracted from the first."""
        return self.row(key, (value,), starts=(start,))[0]

    def continued(self, reading: R, *key: str) -> R:
        """A reading with the values to publish of its counters; the key distinguishes it from others of its type."""
        values: Any = reading  # a dataclass
        published: dict[str, Any] = {}
        for name in _counters_of(values.__class__):
            value = getattr(values, name)
            if isinstance(value, Mapping):
                published[name] = {each: self.published((*key, name, each), count) for each, count in value.items()}
            elif value is not None:
                published[name] = self.published((*key, name), value)
        continued: R = replace(values, **published)
        return continued

    def row(self, key: Hashable, values: tuple[int, ...], *, starts: tuple[int, ...] | None = None) -> tuple[int, ...]:
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


@cache
def _counters_of(kind: type) -> tuple[str, ...]:
    """Fields of a type of reading that are annotated with a counter."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(name for name, hint in hints.items() if any(map(_is_counter, get_args(hint))))


def _is_counter(annotation: object) -> bool:
    return isinstance(annotation, MetricSpec) and annotation.kind is Kind.COUNTER
