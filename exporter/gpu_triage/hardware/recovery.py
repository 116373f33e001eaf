"""What the driver asks for to get the GPU well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_triage.hardware.rounds import GpuRound

RECOVERY_ACTION_FIELD: Final = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION."""

_MOST_ACTION: Final = 255
"""Newer drivers may know more actions than the seven of today; what is far beyond is no action."""


@dataclass(frozen=True, slots=True)
class RecoveryReading:
    """Number of the action (nvmlDeviceGpuRecoveryAction_t), 0 for none; None where not reported."""

    action: int | None


def read_recovery(gpu: GpuRound) -> RecoveryReading:
    """The action asked for now (field 230)."""
    inquiry = gpu.inquiry
    asked = inquiry.fields((RECOVERY_ACTION_FIELD,)).get(RECOVERY_ACTION_FIELD)
    action = inquiry.within(asked, 0, _MOST_ACTION)
    return RecoveryReading(None if action is None else int(action))
