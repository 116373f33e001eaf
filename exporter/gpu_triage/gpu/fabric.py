"""How the GPU has joined the NVSwitch fabric, and how well its part of the fabric is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.nvml.structs import FABRIC_COMPLETED, fabric_info
from gpu_triage.subjects.contract import GpuCollector
from gpu_triage.subjects.metric import Tier, gpu_gauge
from gpu_triage.subjects.rounds import GpuRound

_NOT_SUPPORTED: Final = 0
"""What the driver says of state and health on systems that have no fabric."""
_NO_ERROR: Final = 0

GPU_FABRIC_STATE = gpu_gauge(
    "gpu_fabric_state",
    "How far the GPU has joined the NVSwitch fabric: {states}; absent on systems without one.",
    # nvmlGpuFabricState_t
    states={1: "not started", 2: "in progress", FABRIC_COMPLETED: "completed"},
    source="nvmlDeviceGetGpuFabricInfoV state",
)
GPU_FABRIC_HEALTH = gpu_gauge(
    "gpu_fabric_health",
    "Health of the GPU's part of the NVSwitch fabric: {states}; unhealthy, too, if joining failed. Absent without a "
    "fabric and on drivers that give no summary.",
    # NVML_GPU_FABRIC_HEALTH_SUMMARY_*
    states={1: "healthy", 2: "unhealthy", 3: "limited capacity"},
    source="nvmlDeviceGetGpuFabricInfoV healthSummary",
)

FABRIC_JOINED: Final = FABRIC_COMPLETED
FABRIC_UNHEALTHY: Final = GPU_FABRIC_HEALTH.value_of("unhealthy")


@dataclass(frozen=True, slots=True)
class FabricReading:
    """One GPU's place in the fabric; None where there is no fabric or the driver does not say."""

    state: Annotated[int | None, GPU_FABRIC_STATE]
    health: Annotated[int | None, GPU_FABRIC_HEALTH]


def read_fabric(gpu: GpuRound) -> FabricReading:
    """The fabric now (nvmlDeviceGetGpuFabricInfoV)."""
    inquiry = gpu.inquiry
    info = fabric_info(inquiry)
    if info is None or info.state == _NOT_SUPPORTED:
        return FabricReading(None, None)
    state = inquiry.within(info.state, _NOT_SUPPORTED, FABRIC_JOINED)
    health = inquiry.within(info.health_summary or None, _NOT_SUPPORTED, max(GPU_FABRIC_HEALTH.states))
    if state == FABRIC_JOINED and info.status != _NO_ERROR:
        health = FABRIC_UNHEALTHY
    return FabricReading(
        state=None if state is None else int(state),
        health=None if health is None else int(health),
    )


FABRIC = GpuCollector(
    name="fabric",
    about="state and health of the NVSwitch fabric",
    tier=Tier.SLOW,
    reader=lambda _config: read_fabric,
)
