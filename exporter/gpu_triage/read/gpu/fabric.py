"""Whether the GPU has joined the NVSwitch fabric, and the health of its part of the fabric."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final
from uuid import UUID

from gpu_triage.driver.nvml.structs import FABRIC_COMPLETED, fabric_info
from gpu_triage.read.metrics.contract import GpuCollector, GpuRound
from gpu_triage.read.metrics.metric import Tier, gpu_gauge, gpu_info

_NOT_SUPPORTED: Final = 0  # state and health value on systems without a fabric
_NO_ERROR: Final = 0

GPU_FABRIC_STATE = gpu_gauge(
    "Progress of the GPU in joining the NVSwitch fabric: {states}. Absent without a fabric.",
    # nvmlGpuFabricState_t
    states={1: "not started", 2: "in progress", FABRIC_COMPLETED: "completed"},
    source="nvmlDeviceGetGpuFabricInfoV state",
)
GPU_FABRIC_HEALTH = gpu_gauge(
    "Health of the GPU's part of the NVSwitch fabric: {states}; unhealthy, too, if joining failed. Absent without a "
    "fabric, and if the driver gives no summary.",
    # NVML_GPU_FABRIC_HEALTH_SUMMARY_*
    states={1: "healthy", 2: "unhealthy", 3: "limited capacity"},
    source="nvmlDeviceGetGpuFabricInfoV healthSummary",
)

# NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_*, and the value of the two bits there that means a fault.
FABRIC_FAULTS: Final[Mapping[str, tuple[int, int]]] = {
    "degraded_bandwidth": (0, 1),
    "route_recovery": (2, 1),
    "route_unhealthy": (4, 1),
    "access_timeout_recovery": (6, 1),
    "fabric_manager_disconnected": (14, 2),
}
_FAULT_BITS: Final = 0x3
_CONFIGURATION_SHIFT, _CONFIGURATION_BITS = 8, 0xF
_CONFIGURED: Final = 1
_MOST_CLIQUES: Final = 1 << 16

GPU_FABRIC_FAULT = gpu_gauge(
    "1 while the driver reports this fault of the GPU's part of the NVSwitch fabric: {fault}. Profile full also has 0. "
    "Absent without a fabric, and if the driver does not report it.",
    labels={"fault": FABRIC_FAULTS},
    source="nvmlDeviceGetGpuFabricInfoV healthMask",
    default_samples=lambda sample: sample.value > 0,
)
GPU_FABRIC_CONFIGURATION = gpu_gauge(
    "What is wrong with the GPU's configuration in its NVSwitch fabric: {states}. Only faults; profile full also has "
    "1. Absent without a fabric, and if the driver does not report it.",
    # NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_*
    states={
        _CONFIGURED: "nothing",
        2: "wrong system GUID",
        3: "wrong chassis serial number",
        4: "no partition",
        5: "too few NVLinks",
        6: "incompatible GPU firmware",
        7: "invalid location",
        8: "invalid GPU state",
    },
    source="nvmlDeviceGetGpuFabricInfoV healthMask",
    default_samples=lambda sample: sample.value != _CONFIGURED,
)
GPU_FABRIC_INFO = gpu_info(
    "The multi-host NVSwitch fabric that the GPU has joined, and its clique: GPUs of one clique reach each other's "
    "memory. Absent within one host.",
    labels=("cluster_uuid", "clique"),
    source="nvmlDeviceGetGpuFabricInfoV clusterUuid, cliqueId",
)

FABRIC_JOINED: Final = FABRIC_COMPLETED
FABRIC_UNHEALTHY: Final = GPU_FABRIC_HEALTH.value_of("unhealthy")


@dataclass(frozen=True, slots=True)
class FabricReading:
    """State of one GPU in the fabric; None without a fabric or where not reported."""

    state: Annotated[int | None, GPU_FABRIC_STATE]
    health: Annotated[int | None, GPU_FABRIC_HEALTH]
    faults: Annotated[Mapping[str, bool], GPU_FABRIC_FAULT] = field(default_factory=dict)
    configuration: Annotated[int | None, GPU_FABRIC_CONFIGURATION] = None
    member_of: Annotated[Mapping[tuple[str, str], bool], GPU_FABRIC_INFO] = field(default_factory=dict)


def read_fabric(gpu: GpuRound) -> FabricReading:
    inquiry = gpu.inquiry
    info = fabric_info(inquiry)
    if info is None or info.state == _NOT_SUPPORTED:
        return FabricReading(None, None)
    summary, mask = (info.healthSummary, info.healthMask) if hasattr(info, "healthSummary") else (0, 0)
    state = inquiry.within(info.state, _NOT_SUPPORTED, FABRIC_JOINED)
    health = inquiry.within(summary or None, _NOT_SUPPORTED, max(GPU_FABRIC_HEALTH.states))
    joined, cluster = state == FABRIC_JOINED, UUID(bytes=bytes(info.clusterUuid))
    in_cluster = joined and cluster.int and info.cliqueId < _MOST_CLIQUES
    if joined and info.status != _NO_ERROR:
        health = FABRIC_UNHEALTHY
    return FabricReading(
        state=state,
        health=health,
        faults=_faults(mask),
        configuration=_configuration(mask),
        member_of={(str(cluster), str(info.cliqueId)): True} if in_cluster else {},
    )


def _faults(mask: int) -> dict[str, bool]:
    """Decode the faults the driver reports; of the two bits, 0 means unsupported and 3 is undefined."""
    fields = ((fault, mask >> shift & _FAULT_BITS, bad) for fault, (shift, bad) in FABRIC_FAULTS.items())
    return {fault: says == bad for fault, says, bad in fields if says in (1, 2)}


def _configuration(mask: int) -> int | None:
    value = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_BITS
    return value if value in GPU_FABRIC_CONFIGURATION.states else None


FABRIC = GpuCollector("state and health of the NVSwitch fabric", Tier.SLOW, lambda _config: read_fabric)
