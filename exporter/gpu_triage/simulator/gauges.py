"""What a simulated GPU shows during one step, and the bits of what holds its clocks."""

from __future__ import annotations

from typing import Final, NamedTuple

GPU_IDLE: Final = 0x1
APPLICATIONS_CLOCKS: Final = 0x2
SW_POWER_CAP: Final = 0x4
HW_SLOWDOWN: Final = 0x8
SW_THERMAL: Final = 0x20
HW_THERMAL: Final = 0x40
HW_POWER_BRAKE: Final = 0x80

COUNTED_REASONS: Final = (SW_POWER_CAP, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE)


class Gauges(NamedTuple):
    """What a GPU shows during one step.

    Attributes:
        step: the second of scenario time at which the step begins.
        utilization, memory_utilization, encoder, decoder: shares of the time.
        reasons: bits of nvmlClocksEventReason*.
        sm_mhz, memory_mhz, video_mhz: clocks.
        receive, transmit: bytes per second over PCIe, as the GPU sees them.
    """

    step: int
    utilization: float
    memory_utilization: float
    encoder: float
    decoder: float
    power_watts: float
    celsius: float
    reasons: int
    performance_state: int
    sm_mhz: int
    memory_mhz: int
    video_mhz: int
    receive: float
    transmit: float


def rates(gauges: Gauges) -> tuple[float, float, float, float, float]:
    """Gain a second of each counter: energy, bytes received and sent, busy time of SMs and of memory."""
    return (
        gauges.power_watts,
        gauges.receive,
        gauges.transmit,
        gauges.utilization,
        gauges.memory_utilization,
    )
