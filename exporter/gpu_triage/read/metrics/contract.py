"""The collector contract: `read` gets a round, does I/O and returns a Reading; `render` is pure and yields Samples.

A subject's metrics are those declared before it in its module, after the previous subject. A host's `read` raises
HostReadFailed if nothing of what exists can be read; a parser raises ValueError for text of another format. In a
Reading, what is not reported is None or missing.
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
from gpu_triage.read.metrics.metric import Declared, MetricSpec, Sample, Tier
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
class Subject(Declared):
    """A group of metrics: those of a collector, or of the sampler itself; the name is the `collector` label."""

    about: str  # what it covers, as a heading, and for ``--help``
    tier: Tier  # how often it is sampled
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
            elif isinstance(value, Subject):
                own.clear()
        others = (value for module in self.also_in for value in vars(module).values() if isinstance(value, MetricSpec))
        return (*own, *others)


@dataclass(frozen=True, eq=False)
class OwnSubject(Subject, Generic[R]):
    """A subject that the sampler itself provides."""

    render: Callable[[R], Iterator[Sample]] = samples


@dataclass(frozen=True, eq=False)
class GpuCollector(Subject, Generic[R]):
    """A subject read from each GPU."""

    # Factory of the read function, called once per GPU ever seen; the reader may keep state (integrals, last values)
    # for that GPU as long as the process runs.
    reader: Callable[[Config], Callable[[GpuRound], R]]
    # Pure function that renders a reading; by default from its annotated fields.
    render: Callable[[R, GpuLabels], Iterator[Sample]] = samples
    default: bool = True  # whether it is enabled by default
    kept: bool = False  # whether its last samples stay published while the GPU is lost (identity only)
    # Whether its NVML calls involve other GPUs too. A call to a hung GPU would block all others, so such collectors
    # share a lane of their own.
    asks_peers: bool = False


@dataclass(frozen=True, eq=False)
class HostCollector(Subject, Generic[R]):
    """A subject read from the host; attributes as for GpuCollector, plus these."""

    reader: Callable[[Config], Callable[[HostRound], R]]
    render: Callable[[R], Iterator[Sample]] = samples
    default: bool = True
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


def runs(collector: AnyCollector, config: Config) -> bool:
    """Whether a collector is enabled by this configuration."""
    if isinstance(collector, HostCollector) and collector.needs is not None and not getattr(config, collector.needs):
        return False
    return collector_enabled(config, collector.name, default=collector.default)


def max_gap_seconds(config: Config) -> float:
    """Longest gap on the fast tier that an integral may bridge: the time for which values stay published."""
    return config.stale_after * config.sample_fast_seconds
