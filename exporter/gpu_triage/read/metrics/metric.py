"""Metric declarations: each subject declares name, help, labels and source of its metrics in one place.

>>> fan = gpu_gauge("Speed by side ({side}), 0-1.", labels={"side": ("front", "back")}, source="sysfs")
>>> fan.help, fan.labels
('Speed by side (front, back), 0-1.', ('gpu', 'uuid', 'side'))
>>> fan.sample(0.5, "0", "GPU-1", "front").value
0.5
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from types import MappingProxyType
from typing import Final, NamedTuple

ANY: Final = ()  # for a label with arbitrary values
GPU_LABELS: Final = ("gpu", "uuid")  # labels of every per-GPU series: NVML index and UUID
_NO_STATES: Final[Mapping[int, str]] = {}


class Kind(Enum):
    """Type of a metric; an INFO series is always 1 and carries its facts in labels."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"


class Tier(Enum):
    """How often a metric is sampled; EVENT metrics are updated when something happens."""

    FAST = "fast"
    MEDIUM = "medium"
    SLOW = "slow"
    EVENT = "event"


class Sample(NamedTuple):
    spec: MetricSpec
    labels: tuple[str, ...]
    value: float


def _declaring_module() -> str:
    """The module that declares a metric or a collector: of the innermost caller outside this package."""
    frame = sys._getframe()  # noqa: SLF001 - as namedtuple does
    while frame.f_back and frame.f_globals["__name__"].startswith(f"{__package__}."):
        frame = frame.f_back
    return str(frame.f_globals["__name__"])


@dataclass(frozen=True, eq=False)
class Declared:
    """A metric or collector: a constant of its module, which gives it its name."""

    module: str = field(init=False, repr=False, default_factory=_declaring_module)

    @cached_property
    def name(self) -> str:
        """The name of its constant, in lower case: of a metric with unit suffix, and `_total` for counters."""
        (name,) = (name for name, value in vars(sys.modules[self.module]).items() if value is self)
        return name.lower()


@dataclass(frozen=True, eq=False)
class MetricSpec(Declared):
    kind: Kind  # gauge, counter or info
    help: str  # full sentences: meaning, range, when it is absent, how it resets
    source: str  # NVML function, field ID or kernel path it is read from
    labels: tuple[str, ...]  # label names in order
    tier: Tier | None  # how often it is sampled; None for the subject's tier
    # For a state metric, the name of each value, in order; used by help, reference, dashboards, page and judges. Empty
    # for a quantity.
    states: Mapping[int, str]
    # Possible values by label, where known; the only list of these values in the code.
    label_values: Mapping[str, tuple[str, ...]]
    # For a metric with detail series, selects the samples that are always published; the others need
    # ``--metrics.profile full``. None if all are.
    default_samples: Callable[[Sample], bool] | None = None

    def value_of(self, state: str) -> int:
        """Numeric value of a state; raises KeyError for an unknown state."""
        return {name: value for value, name in self.states.items()}[state]

    def sample(self, value: float, *labels: str) -> Sample:
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has labels {self.labels}, got {labels}")
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
    help_text: str,
    *,
    source: str,
    labels: tuple[str, ...] | Mapping[str, Iterable[str]] = (),
    tier: Tier | None = None,
    states: Mapping[int, str] = _NO_STATES,
    default_samples: Callable[[Sample], bool] | None = None,
) -> MetricSpec:
    said = {label: tuple(each) for label, each in labels.items()} if isinstance(labels, Mapping) else {}
    words = {label: each for label, each in said.items() if each}
    listed = {"states": tuple(f"{value} {state}" for value, state in states.items()), **words}
    for placeholder, each in listed.items():
        help_text = help_text.replace(f"{{{placeholder}}}", ", ".join(each))
    return MetricSpec(
        kind,
        help_text,
        source,
        (*first_labels, *labels),
        tier,
        MappingProxyType(dict(states)),
        MappingProxyType(words),
        default_samples,
    )


def no_sample(_sample: Sample) -> bool:
    """`default_samples` of a metric that profile `default` leaves out."""
    return False


gpu_gauge = partial(_declare, Kind.GAUGE, GPU_LABELS)
gpu_counter = partial(_declare, Kind.COUNTER, GPU_LABELS)
gpu_info = partial(_declare, Kind.INFO, GPU_LABELS)
"""Declare a per-GPU metric. Arguments are MetricSpec's attributes; `labels` are those after the GPU labels, with their
possible values if known. In the help text, ``{states}`` expands to the state names, and ``{label}`` to that label's
values.
"""

host_gauge = partial(_declare, Kind.GAUGE, ())
host_counter = partial(_declare, Kind.COUNTER, ())
host_info = partial(_declare, Kind.INFO, ())
"""Declare a metric of the host or the exporter; arguments as above."""
