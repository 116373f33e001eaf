"""How the GPU has joined the NVSwitch fabric, and how well its part of the fabric is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_triage.hardware.nvml_structs import fabric_info
from gpu_triage.hardware.rounds import GpuRound

_NOT_SUPPORTED: Final = 0
"""What the driver says of state and health on systems that have no fabric."""
_COMPLETED: Final = 3
_JOINED: Final = 0
_UNHEALTHY: Final = 2
_LIMITED_CAPACITY: Final = 3


@dataclass(frozen=True, slots=True)
class FabricReading:
    """One GPU's place in the fabric; None where there is no fabric or the driver does not say.

    Attributes:
        state: 1 not started, 2 in progress, 3 completed (nvmlGpuFabricState_t).
        health: 1 healthy, 2 unhealthy, 3 limited capacity (NVML_GPU_FABRIC_HEALTH_SUMMARY_*); 2 too where joining
            the fabric is completed, but with an error.
    """

    state: int | None
    health: int | None


def read_fabric(gpu: GpuRound) -> FabricReading:
    """The fabric now (nvmlDeviceGetGpuFabricInfoV)."""
    inquiry = gpu.inquiry
    info = fabric_info(inquiry)
    if info is None or info.state == _NOT_SUPPORTED:
        return FabricReading(None, None)
    state = inquiry.within(info.state, _NOT_SUPPORTED, _COMPLETED)
    health = inquiry.within(info.health_summary or None, _NOT_SUPPORTED, _LIMITED_CAPACITY)
    if state == _COMPLETED and info.status != _JOINED:
        health = _UNHEALTHY
    return FabricReading(
        state=None if state is None else int(state),
        health=None if health is None else int(health),
    )
