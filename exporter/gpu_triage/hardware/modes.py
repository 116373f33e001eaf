"""How an administrator has set the GPU up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
    mig = gpu.inquiry.ask("nvmlDeviceGetMigMode")  # [now, after the next reset]
    compute = gpu.inquiry.ask("nvmlDeviceGetComputeMode")
    return ModesReading(
        persistence=gpu.inquiry.flag(persistence),
        mig=gpu.inquiry.flag(mig[0]) if mig else None,
        compute=None if compute is None else COMPUTE_MODES.get(compute, f"unknown_{compute}"),
    )
