"""What the board may do: clock and power limits, temperature thresholds. Only an administrator changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.gpu.clocks import APPLICATION_CLOCKS, CLOCK_TYPES, read_clock_table
from gpu_triage.gpu.power import watts
from gpu_triage.nvml.inquiry import Inquiry
from gpu_triage.subjects.contract import GpuCollector
from gpu_triage.subjects.metric import Tier, gpu_gauge
from gpu_triage.subjects.rounds import GpuRound

THRESHOLDS: Final = {"shutdown": 0, "slowdown": 1, "memory_max": 2, "gpu_max": 3}
"""Label to nvmlTemperatureThresholds_t."""

_LEAST_THRESHOLD_CELSIUS: Final = 20
"""Lower answers are how drivers say that a threshold is not set, or offsets rather than temperatures."""
_MOST_THRESHOLD_CELSIUS: Final = 200

GPU_CLOCK_MAX_HERTZ = gpu_gauge(
    "gpu_clock_max_hertz",
    "Highest clock frequency the board supports.",
    labels={"clock": CLOCK_TYPES},
    source="nvmlDeviceGetMaxClockInfo",
)
GPU_CLOCK_DEFAULT_HERTZ = gpu_gauge(
    "gpu_clock_default_hertz",
    "Default application clock. It caps nothing by itself: cards run above it where power and heat allow. Absent on "
    "GeForce, and from driver 590 on, which no longer has application clocks.",
    labels={"clock": APPLICATION_CLOCKS},
    source="nvmlDeviceGetDefaultApplicationsClock",
)
GPU_POWER_DEFAULT_LIMIT_WATTS = gpu_gauge(
    "gpu_power_default_limit_watts",
    "The power cap the board ships with.",
    source="nvmlDeviceGetPowerManagementDefaultLimit",
)
GPU_POWER_MIN_LIMIT_WATTS = gpu_gauge(
    "gpu_power_min_limit_watts",
    "Lowest power cap that may be set.",
    source="nvmlDeviceGetPowerManagementLimitConstraints",
)
GPU_POWER_MAX_LIMIT_WATTS = gpu_gauge(
    "gpu_power_max_limit_watts",
    "Highest power cap that may be set.",
    source="nvmlDeviceGetPowerManagementLimitConstraints",
)
GPU_TEMPERATURE_THRESHOLD_CELSIUS = gpu_gauge(
    "gpu_temperature_threshold_celsius",
    "Temperature at which the GPU slows down, shuts down, or that its GPU or memory should not pass.",
    labels={"threshold": THRESHOLDS},
    source="nvmlDeviceGetTemperatureThreshold",
)


@dataclass(frozen=True, slots=True)
class LimitsReading:
    """Limits of one board; a clock or threshold not reported is not in its mapping, a power limit is None."""

    clock_max_hertz: Annotated[Mapping[str, float], GPU_CLOCK_MAX_HERTZ]
    clock_default_hertz: Annotated[Mapping[str, float], GPU_CLOCK_DEFAULT_HERTZ]
    power_default_watts: Annotated[float | None, GPU_POWER_DEFAULT_LIMIT_WATTS]
    power_min_watts: Annotated[float | None, GPU_POWER_MIN_LIMIT_WATTS]
    power_max_watts: Annotated[float | None, GPU_POWER_MAX_LIMIT_WATTS]
    threshold_celsius: Annotated[Mapping[str, float], GPU_TEMPERATURE_THRESHOLD_CELSIUS]


def read_limits(gpu: GpuRound) -> LimitsReading:
    """Limits (nvmlDeviceGetMaxClockInfo, …DefaultApplicationsClock, …PowerManagement*Limit*, …TemperatureThreshold)."""
    inquiry = gpu.inquiry
    constraints = inquiry.ask("nvmlDeviceGetPowerManagementLimitConstraints")  # [least, most] in mW
    return LimitsReading(
        clock_max_hertz=read_clock_table(inquiry, "nvmlDeviceGetMaxClockInfo", CLOCK_TYPES, least_mhz=1),
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


LIMITS = GpuCollector(
    name="limits",
    about="clock and power limits, temperature thresholds",
    tier=Tier.SLOW,
    reader=lambda _config: read_limits,
)
