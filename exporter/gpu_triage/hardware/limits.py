"""What the board may do: clock and power limits, temperature thresholds. Only an administrator changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage.hardware.clocks import APPLICATION_CLOCKS, CLOCKS, read_clock_table
from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.power import watts
from gpu_triage.hardware.rounds import GpuRound

THRESHOLDS: Final = {"shutdown": 0, "slowdown": 1, "memory_max": 2, "gpu_max": 3}
"""Label to nvmlTemperatureThresholds_t."""

_LEAST_THRESHOLD_CELSIUS: Final = 20
"""Lower answers are how drivers say that a threshold is not set, or offsets rather than temperatures."""
_MOST_THRESHOLD_CELSIUS: Final = 200


@dataclass(frozen=True, slots=True)
class LimitsReading:
    """Limits of one board; a clock or threshold not reported is not in its mapping, a power limit is None.

    Attributes:
        clock_max_hertz: by clock.
        clock_default_hertz: application clocks as shipped, by clock.
        power_default_watts: the cap the board ships with.
        power_min_watts: lowest cap that may be set.
        power_max_watts: highest cap that may be set.
        threshold_celsius: by threshold (slowdown, shutdown, gpu_max, memory_max).
    """

    clock_max_hertz: Mapping[str, float]
    clock_default_hertz: Mapping[str, float]
    power_default_watts: float | None
    power_min_watts: float | None
    power_max_watts: float | None
    threshold_celsius: Mapping[str, float]


def read_limits(gpu: GpuRound) -> LimitsReading:
    """Limits (nvmlDeviceGetMaxClockInfo, …DefaultApplicationsClock, …PowerManagement*Limit*, …TemperatureThreshold)."""
    inquiry = gpu.inquiry
    constraints = inquiry.ask("nvmlDeviceGetPowerManagementLimitConstraints")  # [least, most] in mW
    return LimitsReading(
        clock_max_hertz=read_clock_table(inquiry, "nvmlDeviceGetMaxClockInfo", CLOCKS, least_mhz=1),
        clock_default_hertz=read_clock_table(
            inquiry, "nvmlDeviceGetDefaultApplicationsClock", APPLICATION_CLOCKS, least_mhz=1
        ),
        power_default_watts=watts(inquiry, inquiry.ask("nvmlDeviceGetPowerManagementDefaultLimit")) or None,
        power_min_watts=watts(inquiry, constraints[0]) if constraints else None,
        power_max_watts=watts(inquiry, constraints[1]) or None if constraints else None,
        threshold_celsius=_thresholds(inquiry),
    )


def _thresholds(inquiry: Inquiry) -> Mapping[str, float]:
    celsius = {label: inquiry.ask("nvmlDeviceGetTemperatureThreshold", kind) for label, kind in THRESHOLDS.items()}
    return {
        label: value
        for label, value in celsius.items()
        if value is not None and _LEAST_THRESHOLD_CELSIUS <= value <= _MOST_THRESHOLD_CELSIUS
    }
