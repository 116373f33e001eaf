"""What a metric is, and how a subject declares one: its name, help, labels and source, once.

>>> fan = gpu_gauge(
...     "gpu_fan_speed_ratio", "Speed by side ({side}), 0-1.", labels={"side": ("front", "back")}, source="sysfs"
... )
>>> fan.help, fan.labels
('Speed by side (front, back), 0-1.', ('gpu', 'uuid', 'side'))
>>> fan.sample(0.5, "0", "GPU-1", "front").value
0.5
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from types import MappingProxyType
from typing import Final, NamedTuple

ANY: Final = ()
"""Words of a label that can say anything."""

GPU_LABELS: Final = ("gpu", "uuid")
"""Labels of every per-GPU series: NVML index and UUID."""

_NO_STATES: Final[Mapping[int, str]] = MappingProxyType({})


class Kind(Enum):
    """What a metric's value means; an INFO series is always 1 and carries its facts in labels."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"


class Tier(Enum):
    """How often a metric is sampled; EVENT ones are pushed."""

    FAST = "fast"
    MEDIUM = "medium"
    SLOW = "slow"
    EVENT = "event"


class Sample(NamedTuple):
    """One value of one metric. Made by MetricSpec.sample, which checks it."""

    spec: MetricSpec
    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class MetricSpec:
    """One metric.

    Attributes:
        name: as on the wire, with unit suffix, and `_total` for counters.
        kind: gauge, counter or info.
        help: a full sentence: meaning, range, when it is absent, how it resets.
        source: NVML function, field id or kernel path it is read from.
        labels: label names in order.
        tier: how often it is sampled; None for as often as its subject.
        states: what each value means, where the value is a state; in their order. Help, reference, dashboards, page and
            judges read the names here. Empty for a quantity.
        words: by label, all that it can say, where that is known; such labels need no other list anywhere.
        brief: of a metric with a series for each detail, which of them every page shows; the others are shown with
            ``--metrics.profile full``. None where all are.
    """

    name: str
    kind: Kind
    help: str
    source: str
    labels: tuple[str, ...]
    tier: Tier | None
    states: Mapping[int, str]
    words: Mapping[str, tuple[str, ...]]
    brief: Callable[[Sample], bool] | None = None

    def value_of(self, state: str) -> int:
        """The value that stands for a state.

        Raises:
            KeyError: there is no such state.
        """
        return {name: value for value, name in self.states.items()}[state]

    def sample(self, value: float, *labels: str) -> Sample:
        """A checked sample of this metric.

        Raises:
            ValueError: the labels are not this metric's, a label is no text that UTF-8 can carry, the value is
                not finite, a counter is negative or an info is not 1. Such a sample must not leave the process.
        """
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has labels {self.labels}, got {labels}")
        "".join(labels).encode()  # UnicodeEncodeError is a ValueError
        return self.next_sample(value, labels)

    def next_sample(self, value: float, labels: tuple[str, ...]) -> Sample:
        """A sample of a series that had one before, so that its labels are known to be right.

        Raises:
            ValueError: as for `sample`, because of the value.
        """
        if not 0 <= value < math.inf or self.kind is Kind.INFO:
            self._refuse_wrong(value)
        return Sample(self, labels, float(value))

    def _refuse_wrong(self, value: float) -> None:
        if not math.isfinite(value):
            raise ValueError(f"{self.name}: {value} is not a reading; a missing value has no sample")
        if self.kind is Kind.COUNTER and value < 0:
            raise ValueError(f"{self.name}: a counter cannot be {value}")
        if self.kind is Kind.INFO and value != 1:
            raise ValueError(f"{self.name}: an info is always 1, got {value}")


def _declare(
    kind: Kind,
    first_labels: tuple[str, ...],
    name: str,
    help_text: str,
    *,
    source: str,
    labels: tuple[str, ...] | Mapping[str, Iterable[str]] = (),
    tier: Tier | None = None,
    states: Mapping[int, str] = _NO_STATES,
    brief: Callable[[Sample], bool] | None = None,
) -> MetricSpec:
    said = {label: tuple(each) for label, each in labels.items()} if isinstance(labels, Mapping) else {}
    words = {label: each for label, each in said.items() if each}
    listed = {"states": tuple(f"{value} {state}" for value, state in states.items()), **words}
    for placeholder, each in listed.items():
        help_text = help_text.replace(f"{{{placeholder}}}", ", ".join(each))
    return MetricSpec(
        name,
        kind,
        help_text,
        source,
        (*first_labels, *labels),
        tier,
        MappingProxyType(dict(states)),
        MappingProxyType(words),
        brief,
    )


def no_sample(_sample: Sample) -> bool:
    """As `brief` of a metric whose series are all details."""
    return False


gpu_gauge = partial(_declare, Kind.GAUGE, GPU_LABELS)
gpu_counter = partial(_declare, Kind.COUNTER, GPU_LABELS)
gpu_info = partial(_declare, Kind.INFO, GPU_LABELS)
"""A metric of each GPU. Arguments as MetricSpec's attributes; `labels` are those after the GPU's own, with their words
where these are known. In the help, ``{states}`` lists the names of the states, and a label in braces its words.
"""

host_gauge = partial(_declare, Kind.GAUGE, ())
host_counter = partial(_declare, Kind.COUNTER, ())
host_info = partial(_declare, Kind.INFO, ())
"""A metric of the host or of the exporter, likewise."""


@cache
def declared_in(module: str) -> tuple[MetricSpec, ...]:
    """Every metric that a module declares, in the order it is written in."""
    return tuple(value for value in vars(sys.modules[module]).values() if isinstance(value, MetricSpec))
