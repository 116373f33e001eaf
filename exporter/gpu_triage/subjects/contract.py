"""What a collector is: `read` does I/O and returns a Reading, `render` is pure and yields Samples.

Its metrics are those that its module declares; a module has one collector, or is an OwnSubject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from gpu_triage.config import Config, collector_enabled
from gpu_triage.subjects.metric import MetricSpec, Sample, Tier, declared_in
from gpu_triage.subjects.rendering import samples
from gpu_triage.subjects.rounds import GpuRound, HostRound

if TYPE_CHECKING:
    from types import ModuleType

    from prometheus_client import Metric

R = TypeVar("R")


class GpuLabels(NamedTuple):
    """The labels every per-GPU series starts with: NVML index and UUID, as text."""

    gpu: str
    uuid: str


HOST_LABELS: Final = GpuLabels("", "")
"""The same for what concerns no GPU in particular."""


@dataclass(frozen=True, slots=True)
class GpuCollector(Generic[R]):
    """One subject read from each GPU.

    Attributes:
        name: the subject; the `collector` label and the flag ``--collector.<name>``.
        about: what it reads, for ``--help``.
        tier: how often it runs.
        reader: makes the reader of one GPU, called once per GPU ever seen; the reader may keep state
            (integrals, last values) for that GPU's life in this process.
        render: samples of one reading; pure. By default those of its annotated fields.
        default: whether it runs unless asked otherwise.
        kept: whether its last samples stay while the GPU is lost (identity only).
        asks_peers: whether its questions name other GPUs too. A question to a GPU that hangs would hold up all the
            others, so these are asked in a lane that they share.
        also_in: further modules that declare metrics of it and render them.
    """

    name: str
    about: str
    tier: Tier
    reader: Callable[[Config], Callable[[GpuRound], R]]
    render: Callable[[R, GpuLabels], Iterator[Sample]] = samples
    default: bool = True
    kept: bool = False
    asks_peers: bool = False
    also_in: tuple[ModuleType, ...] = ()

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        """Every spec its samples may have: those declared where its reader is, and in `also_in`."""
        return _declared(self.reader, self.also_in)


@dataclass(frozen=True, slots=True)
class HostCollector(Generic[R]):
    """One subject read from the host; attributes as GpuCollector, and these.

    Attributes:
        foreign: families that others made, to be republished as they are; they bear no name of the catalogue.
        needs: the field of Config without which it does not run; None when it needs none.
        own_lane: whether it runs beside the host's other collectors instead of after them: what it reads asks
            hardware or takes a lock of the kernel, and may not come back.
        kept_while_stalled: whether its last samples stay while a read of it does not come back. Its success is 0
            meanwhile.
        also_in: as GpuCollector's.
    """

    name: str
    about: str
    tier: Tier
    reader: Callable[[Config], Callable[[HostRound], R]]
    render: Callable[[R], Iterator[Sample]] = samples
    default: bool = True
    foreign: Callable[[R], tuple[Metric, ...]] | None = None
    needs: str | None = None
    own_lane: bool = False
    kept_while_stalled: bool = False
    also_in: tuple[ModuleType, ...] = ()

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        """As GpuCollector's."""
        return _declared(self.reader, self.also_in)


def _declared(reader: Callable[..., Any], also_in: tuple[ModuleType, ...]) -> tuple[MetricSpec, ...]:
    more = (spec for module in also_in for spec in declared_in(module.__name__))
    return (*declared_in(reader.__module__), *more)


AnyGpuCollector = GpuCollector[Any]
AnyHostCollector = HostCollector[Any]
AnyCollector = AnyGpuCollector | AnyHostCollector


class OwnSubject(Protocol):
    """A module of a subject that the sampler itself knows: it renders without being asked to read."""

    __name__: str

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of the module
        """The subject."""

    @property
    def ABOUT(self) -> str:  # noqa: N802 - as above
        """What it says, in the words of a heading."""

    @property
    def TIER(self) -> Tier:  # noqa: N802 - as above
        """How often its metrics are sampled that do not say."""


def runs(collector: AnyCollector, config: Config) -> bool:
    """Whether a collector runs under this configuration."""
    if isinstance(collector, HostCollector) and collector.needs is not None and not getattr(config, collector.needs):
        return False
    return collector_enabled(config, collector.name, default=collector.default)


def max_gap_seconds(config: Config) -> float:
    """The longest silence on the fast tier that an integral may bridge: as long as values are still published."""
    return config.stale_after * config.sample_fast_seconds
