"""What the driver reports of a GPU, number by number, in place of what the simulator derives from its load."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from gpu_triage.documents import Range
from gpu_triage.read.gpu.throttle import REASONS
from gpu_triage_simulator.schema import Amount, Count, Ratio, one_of

GPM_IDS: Final = {"sm_active": 2, "tensor_active": 5, "dram_active": 10, "fp64_active": 11, "fp32_active": 12}
"""GPM's metric of each of these readings (NVML_GPM_METRIC_*)."""
_GAUGES: Final = (
    "utilization",
    "memory_utilization",
    "power_watts",
    "celsius",
    "sm_mhz",
    "performance_state",
    "receive",
    "transmit",
)


@dataclass(frozen=True, slots=True)
class Readings:
    """Gauges that the driver reports, as a recording of a real GPU has them; those not given follow from the load."""

    utilization: Ratio | None = None
    memory_utilization: Ratio | None = None
    power_watts: Amount | None = None
    celsius: Annotated[float, Range(-40.0, 150.0)] | None = None
    sm_mhz: Count | None = None
    performance_state: Annotated[int, Range(0, 15)] | None = None
    reasons: tuple[Annotated[str, one_of(REASONS)], ...] | None = None  # throttle reasons
    receive: Amount | None = None  # bytes per second over PCIe, host to GPU
    transmit: Amount | None = None  # likewise, GPU to host
    # GPM: shares of the time
    sm_active: Ratio | None = None
    tensor_active: Ratio | None = None
    dram_active: Ratio | None = None
    fp64_active: Ratio | None = None
    fp32_active: Ratio | None = None

    @property
    def gauges(self) -> Mapping[str, Any]:
        """The gauges among them, by their names in `Gauges`."""
        given = {name: value for name in _GAUGES if (value := getattr(self, name)) is not None}
        return given if self.reasons is None else {**given, "reasons": sum(REASONS[name] for name in set(self.reasons))}

    @property
    def gpm(self) -> Mapping[int, float]:
        """GPM's metrics among them in percent, by ID."""
        return {number: 100 * value for name, number in GPM_IDS.items() if (value := getattr(self, name)) is not None}
