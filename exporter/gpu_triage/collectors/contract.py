"""What a collector is: `read` does I/O and returns a Reading, `render` is pure and yields Samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from gpu_triage.catalogue import MetricSpec, Sample, Tier
from gpu_triage.config import Config
from gpu_triage.hardware.rounds import GpuRound, HostRound

R = TypeVar("R")


class GpuLabels(NamedTuple):
    """The labels every per-GPU series starts with: NVML index and UUID, as text."""

    gpu: str
    uuid: str


@dataclass(frozen=True, slots=True)
class GpuCollector(Generic[R]):
    """One subject read from each GPU.

    Attributes:
        name: the subject; the `collector` label and the flag ``--collector.<name>``.
        about: what it reads, for ``--help``.
        tier: how often it runs.
        metrics: every spec its samples may have; no other collector has them.
        reader: makes the reader of one GPU, called once per GPU ever seen; the reader may keep state
            (integrals, last values) for that GPU's life in this process.
        render: samples of one reading; pure.
        default: whether it runs unless asked otherwise.
        kept: whether its last samples stay while the GPU is lost (identity only).
        asks_driver: whether it asks the driver; one that asks the kernel alone is read, and its samples are
            published, also while the GPU is lost.
    """

    name: str
    about: str
    tier: Tier
    metrics: tuple[MetricSpec, ...]
    reader: Callable[[Config], Callable[[GpuRound], R]]
    render: Callable[[R, GpuLabels], Iterator[Sample]]
    default: bool = True
    kept: bool = False
    asks_driver: bool = True


@dataclass(frozen=True, slots=True)
class HostCollector(Generic[R]):
    """One subject read from the host's kernel, on a lane of its own kind; attributes as GpuCollector."""

    name: str
    about: str
    tier: Tier
    metrics: tuple[MetricSpec, ...]
    reader: Callable[[Config], Callable[[HostRound], R]]
    render: Callable[[R], Iterator[Sample]]
    default: bool = True


AnyGpuCollector = GpuCollector[Any]
AnyHostCollector = HostCollector[Any]
AnyCollector = AnyGpuCollector | AnyHostCollector


def max_gap_seconds(config: Config) -> float:
    """The longest silence on the fast tier that an integral may bridge: as long as values are still published."""
    return config.stale_after * config.sample_fast_seconds
