"""A simulated GPU's gauges during one step, and the bits of its throttle reasons."""

from collections.abc import Callable
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.read.gpu.throttle import REASONS

GPU_IDLE: Final = REASONS["idle"]
APPLICATIONS_CLOCKS: Final = REASONS["applications_clocks"]
SW_POWER_CAP: Final = REASONS["sw_power_cap"]
HW_SLOWDOWN: Final = REASONS["hw_slowdown"]
SW_THERMAL: Final = REASONS["sw_thermal"]
HW_THERMAL: Final = REASONS["hw_thermal"]
HW_POWER_BRAKE: Final = REASONS["hw_power_brake"]

BOARD_LIMIT: Final = REASONS["board_limit"]
RELIABILITY: Final = REASONS["reliability"]

COUNTED_REASONS: Final = (SW_POWER_CAP, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE, BOARD_LIMIT, RELIABILITY)
COUNTED_NAMES: Final = tuple(name for name, bit in REASONS.items() if bit in COUNTED_REASONS)
"""Reasons that have a time counter in the driver."""

SLOWED_BY_THE_BOARD: Final = HW_THERMAL | HW_POWER_BRAKE
"""Reasons for which the driver also sets HW_SLOWDOWN."""

PULSED_UTILIZATION: Final = "utilization"
PULSED_REASONS: Final = MappingProxyType(
    {
        name: bit | (HW_SLOWDOWN if bit & SLOWED_BY_THE_BOARD else 0)
        for name, bit in REASONS.items()
        if bit in (*COUNTED_REASONS, HW_SLOWDOWN)
    }
)
"""Throttle reasons that the effect `pulses` can pulse (besides kernels), by name, with their bits."""


class Gauges(NamedTuple):
    """A GPU's gauges during one step."""

    step: int  # the second of scenario time at which the step starts
    # utilization, memory_utilization, encoder, decoder: shares of the time
    utilization: float
    memory_utilization: float
    encoder: float
    decoder: float
    power_watts: float  # from which energy follows
    celsius: float
    reasons: int  # bits of nvmlClocksEventReason*
    performance_state: int
    # sm_mhz, memory_mhz, video_mhz: clocks
    sm_mhz: int
    memory_mhz: int
    video_mhz: int
    # receive, transmit: bytes per second over PCIe, as the GPU sees them
    receive: float
    transmit: float
    # what GPM counts: the share of the time in which kernels compute, and of all SMs' and tensor cores' time and of the
    # memory bandwidth that is used
    computing: float = 0.0
    sm_active: float = 0.0
    tensor_active: float = 0.0
    dram_active: float = 0.0
    nvlink: float = 0.0  # share of its speed at which each active NVLink link sends and receives
    smoothing_watts: float = 0.0  # difference between the driver's reading and the power

    @property
    def reading_watts(self) -> float:
        """Power as the driver reports it."""
        return self.power_watts + self.smoothing_watts


COUNTED: Final = (
    "power_watts",
    "receive",
    "transmit",
    "utilization",
    "memory_utilization",
    "computing",
    "sm_active",
    "tensor_active",
    "dram_active",
    "nvlink",
)
"""Gauges of which the GPU has the integral over time."""

rates: Final[Callable[[Gauges], tuple[float, ...]]] = attrgetter(*COUNTED)
"""Growth of each of these integrals per second."""
