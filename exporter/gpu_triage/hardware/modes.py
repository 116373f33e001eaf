"""How an administrator has set the GPU up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.rounds import GpuRound

COMPUTE_MODES: Final = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
"""nvmlComputeMode_t to label."""


@dataclass(frozen=True, slots=True)
class ModesReading:
    """Modes of one GPU; None where not reported.

    Attributes:
        persistence: whether the driver stays initialised without clients.
        mig: whether MIG partitions the GPU now.
        compute: who may open contexts (``default``, ``exclusive_process``, …).
    """

    persistence: bool | None
    mig: bool | None
    compute: str | None


def read_modes(gpu: GpuRound) -> ModesReading:
    """Modes (nvmlDeviceGetPersistenceMode, nvmlDeviceGetMigMode, nvmlDeviceGetComputeMode)."""
    persistence = gpu.inquiry.ask("nvmlDeviceGetPersistenceMode")
    compute = gpu.inquiry.ask("nvmlDeviceGetComputeMode")
    return ModesReading(
        persistence=gpu.inquiry.flag(persistence),
        mig=mig_mode(gpu.inquiry),
        compute=None if compute is None else COMPUTE_MODES.get(compute, f"unknown_{compute}"),
    )


def mig_mode(inquiry: Inquiry) -> bool | None:
    """Whether MIG partitions the GPU now (nvmlDeviceGetMigMode); None where MIG does not exist."""
    mode = inquiry.ask("nvmlDeviceGetMigMode")  # [now, after the next reset]
    return inquiry.flag(mode[0]) if mode else None
