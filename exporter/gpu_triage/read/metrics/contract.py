"""The collector contract: `read` gets a round, does I/O and returns a Reading; `render` is pure and yields Samples.

A collector's metrics are those declared before it in its module, after the previous collector; a module has collectors
of one subject, or is an OwnSubject. A host's `read` raises HostReadFailed if nothing of what exists can be read; a
parser raises ValueError for text of another format. In a Reading, what is not reported is None or missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device, DriverVersions
from gpu_triage.machine import Machine, Moment
from gpu_triage.options.config import Config, collector_enabled
from gpu_triage.read.metrics.metric import Declared, MetricSpec, Sample, Tier, declared_in
from gpu_triage.read.metrics.rendering import samples

if TYPE_CHECKING:
    from prometheus_client import Metric

R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")


def known(values: Mapping[K, V | None]) -> dict[K, V]:
    """Leave out what is not reported."""
    return {key: value for key, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ExpectedLink:
    """Recorded capability of a GPU's PCIe link; None if unknown."""

    generation: int | None = None
    width: int | None = None


@dataclass(frozen=True, slots=True)
class GpuRound:
    """One round of one GPU, which starts `at`; machine has the kernel files about the GPU.

    `peers` are the other GPUs that currently answer; `recorded_link` is from the baseline, None without one.
    """

    inquiry: Inquiry
    versions: DriverVersions
    peers: tuple[Device, ...]
    machine: Machine
    at: Moment
    recorded_link: ExpectedLink | None = None


@dataclass(frozen=True, slots=True)
class PresentGpus:
    """NVML indices of the GPUs identified so far by UUID, as text; `complete` if there are no others."""

    indices: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False


@dataclass(frozen=True, slots=True)
class HostRound:
    """One round of the host; readers append an error name for each failure, which the sampler counts."""

    machine: Machine
    at: Moment
    failures: list[str] = field(default_factory=list)
    gpus: PresentGpus = field(default_factory=PresentGpus)


class GpuLabels(NamedTuple):
    """The first labels of every per-GPU series: NVML index and UUID, as text."""

    gpu: str
    uuid: str


HOST_LABELS: Final = GpuLabels("", "")
"""GPU labels for what concerns no particular GPU; Prometheus treats an empty label as missing."""


@dataclass(frozen=True, eq=False)
class _Collector(Declared):
    """What collectors of GPUs and of the host share. Their name is that of their switch, and the `collector` label."""

    about: str  # what it reads, for ``--help``
    tier: Tier  # how often it runs
    default: bool = field(default=True, kw_only=True)  # whether it is enabled by default
    also_in: tuple[ModuleType, ...] = field(default=(), kw_only=True)  # modules that declare more of its metrics

    @cached_property
    def metrics(self) -> tuple[MetricSpec, ...]:
        """All metrics it may produce: its own, and those declared in `also_in`."""
        own: list[MetricSpec] = []
        for value in vars(sys.modules[self.module]).values():
            if value is self:
                break
            if isinstance(value, MetricSpec):
                own.append(value)
            elif isinstance(value, _Collector):
                own.clear()
        return (*own, *(spec for other in self.also_in for spec in declared_in(other.__name__)))


@dataclass(frozen=True, eq=False)
class GpuCollector(_Collector, Generic[R]):
    """A subject read from each GPU."""

    # Factory of the read function, called once per GPU ever seen; the reader may keep state (integrals, last values)
    # for that GPU as long as the process runs.
    reader: Callable[[Config], Callable[[GpuRound], R]]
    # Pure function that renders a reading; by default from its annotated fields.
    render: Callable[[R, GpuLabels], Iterator[Sample]] = samples
    kept: bool = False  # whether its last samples stay published while the GPU is lost (identity only)
    # Whether its NVML calls involve other GPUs too. A call to a hung GPU would block all others, so such collectors
    # share a lane of their own.
    asks_peers: bool = False


@dataclass(frozen=True, eq=False)
class HostCollector(_Collector, Generic[R]):
    """A subject read from the host; `reader` and `render` as for GpuCollector."""

    reader: Callable[[Config], Callable[[HostRound], R]]
    render: Callable[[R], Iterator[Sample]] = samples
    # Metric families from other sources, to republish; they are not in the metric catalog.
    foreign: Callable[[R], tuple[Metric, ...]] | None = None
    needs: str | None = None  # name of a Config field that must be set for the collector to run, or None
    # Whether it runs in parallel to the other host collectors instead of in sequence: it queries hardware or takes a
    # kernel lock, and may hang.
    own_lane: bool = False
    # Whether its last samples stay published while a read hangs. Its success is 0 meanwhile.
    kept_while_stalled: bool = False


AnyGpuCollector = GpuCollector[Any]
AnyHostCollector = HostCollector[Any]
AnyCollector = AnyGpuCollector | AnyHostCollector

OwnSubject = ModuleType
"""A module with a subject that the sampler itself provides. It renders but has no reader, and declares the name (NAME),
what the subject covers, worded as a heading (ABOUT), and the default tier of its metrics (TIER).
"""


def runs(collector: AnyCollector, config: Config) -> bool:
    """Whether a collector is enabled by this configuration."""
    if isinstance(collector, HostCollector) and collector.needs is not None and not getattr(config, collector.needs):
        return False
    return collector_enabled(config, collector.name, default=collector.default)


def max_gap_seconds(config: Config) -> float:
    """Longest gap on the fast tier that an integral may bridge: the time for which values stay published."""
    return config.stale_after * config.sample_fast_seconds
