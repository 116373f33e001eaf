"""What a reader is handed for one round of reading."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_triage.machine import Machine, Moment
from gpu_triage.nvml.inquiry import Inquiry
from gpu_triage.nvml.session import Device, DriverVersions


@dataclass(frozen=True, slots=True)
class ExpectedLink:
    """What a GPU's PCIe link should do, as somebody recorded it; None where that was not known.

    Attributes:
        generation: PCIe generation.
        width: lanes.
    """

    generation: int | None
    width: int | None


@dataclass(frozen=True, slots=True)
class GpuRound:
    """One round of one GPU.

    Attributes:
        inquiry: asks this GPU's driver and notes what failed.
        versions: of the driver that answers.
        peers: the other GPUs that answer now; readers may name them in questions about pairs.
        machine: for the kernel's side of the GPU.
        at: when the round began.
        recorded_link: what the baseline says that this GPU's link can do; None without one.
    """

    inquiry: Inquiry
    versions: DriverVersions
    peers: tuple[Device, ...]
    machine: Machine
    at: Moment
    recorded_link: ExpectedLink | None = None


@dataclass(frozen=True, slots=True)
class HostRound:
    """One round of the host.

    Attributes:
        machine: where procfs and sysfs are.
        at: when the round began.
        failures: names of what could not be read, one entry a failure; readers append, the sampler counts.
    """

    machine: Machine
    at: Moment
    failures: list[str] = field(default_factory=list)
