"""The recovery action that the driver requests for the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.metric import Tier, gpu_gauge
from gpu_triage.read.metrics.rounds import GpuRound

RECOVERY_ACTION_FIELD: Final = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION."""

_MOST_ACTION: Final = 255
"""Newer drivers may define more actions than gpu_recovery_action names; values beyond this are invalid."""

GPU_RECOVERY_ACTION = gpu_gauge(
    "gpu_recovery_action",
    "Recovery action the driver requests for this GPU: {states}. Absent before driver 570.",
    states=dict(
        enumerate(
            (
                "nothing",
                "GPU reset",
                "node reboot",
                "drain peer-to-peer work",
                "drain and reset",
                "recover the IMEX domain",
                "reset the bus",
                "reboot the system",
            )
        )
    ),
    source="NVML field 230",
)

NO_RECOVERY: Final = GPU_RECOVERY_ACTION.value_of("nothing")
DRAIN_AND_RESET: Final = GPU_RECOVERY_ACTION.value_of("drain and reset")
"""The action that can wait until the GPU's jobs are done."""


@dataclass(frozen=True, slots=True)
class RecoveryReading:
    """The requested action; None if not reported."""

    action: Annotated[int | None, GPU_RECOVERY_ACTION]


def read_recovery(gpu: GpuRound) -> RecoveryReading:
    """Read the requested action (field 230)."""
    inquiry = gpu.inquiry
    asked = inquiry.fields((RECOVERY_ACTION_FIELD,)).get(RECOVERY_ACTION_FIELD)
    action = inquiry.within(asked, 0, _MOST_ACTION)
    return RecoveryReading(None if action is None else int(action))


RECOVERY = GpuCollector("recovery", "recovery action the driver requests", Tier.MEDIUM, lambda _config: read_recovery)
