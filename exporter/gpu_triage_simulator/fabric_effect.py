"""What can happen to a simulated GPU's connection to the NVSwitch fabric; an effect like those in `effects`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.documents import Pattern, Range
from gpu_triage.read.gpu.fabric import (
    FABRIC_FAULTS,
    FABRIC_JOINED,
    GPU_FABRIC_CONFIGURATION,
    GPU_FABRIC_HEALTH,
    GPU_FABRIC_STATE,
)
from gpu_triage_simulator.schema import Count, one_of

FabricState = Annotated[int, Range(0, max(GPU_FABRIC_STATE.states))]
FabricHealth = Annotated[int, Range(0, max(GPU_FABRIC_HEALTH.states))]
_HEALTHY: Final = GPU_FABRIC_HEALTH.value_of("healthy")


@dataclass(frozen=True, slots=True)
class Fabric:
    """The NVSwitch fabric has a fault."""

    state: FabricState = FABRIC_JOINED  # a state of gpu_fabric_state; 0 if the driver reports no fabric
    health: FabricHealth = _HEALTHY  # a state of gpu_fabric_health; 0 if the driver has no summary
    faults: tuple[Annotated[str, one_of(FABRIC_FAULTS)], ...] = ()  # in the names of gpu_fabric_fault
    # a state of gpu_fabric_configuration; 0 if the driver does not report it
    configuration: Annotated[int, Range(0, max(GPU_FABRIC_CONFIGURATION.states))] = 0
    # cluster_uuid, clique: of a multi-host fabric
    cluster_uuid: Annotated[str, Pattern(r"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?", "a UUID")] = ""
    clique: Count = 0
