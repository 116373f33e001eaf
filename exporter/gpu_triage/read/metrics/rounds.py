"""What a reader receives in each round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device, DriverVersions
from gpu_triage.machine import Machine, Moment


@dataclass(frozen=True, slots=True)
class ExpectedLink:
    """Recorded capability of a GPU's PCIe link; None if unknown."""

    generation: int | None
    width: int | None


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
