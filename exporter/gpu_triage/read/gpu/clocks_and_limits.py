"""Clocks of a GPU as they are and as an administrator set them, and the limits of clocks, power and temperature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.read.gpu.power import watts
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.metric import Tier, gpu_gauge
from gpu_triage.read.metrics.rounds import GpuRound

CLOCK_TYPES: Final = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
"""Label to nvmlClockType_t."""

APPLICATION_CLOCKS: Final = {label: kind for label, kind in CLOCK_TYPES.items() if label != "video"}
"""Clocks an administrator can set; for others the driver returns "invalid argument"."""

_HERTZ_PER_MHZ: Final = 1e6
_MOST_MHZ: Final = 20_000

GPU_CLOCK_HERTZ = gpu_gauge(
    "gpu_clock_hertz",
    "Current clock frequency.",
    labels={"clock": CLOCK_TYPES},
    source="nvmlDeviceGetClockInfo",
)


@dataclass(frozen=True, slots=True)
class ClocksReading:
    """Frequencies by clock (graphics, sm, memory, video) in hertz; clocks not reported are missing."""

    hertz: Annotated[Mapping[str, float], GPU_CLOCK_HERTZ]


def read_clocks(gpu: GpuRound) -> ClocksReading:
    """Read the current clocks (nvmlDeviceGetClockInfo)."""
    return ClocksReading(read_clock_table(gpu.inquiry, "nvmlDeviceGetClockInfo", CLOCK_TYPES))


def read_clock_table(
    inquiry: Inquiry, function: str, clocks: Mapping[str, int], least_mhz: int = 0
) -> Mapping[str, float]:
    """Hertz by clock from an NVML function that takes a clock type and returns MHz; below `least_mhz` means unset."""
    table = {}
    for label, clock_type in clocks.items():
        mhz = inquiry.within(inquiry.ask(function, clock_type), 0, _MOST_MHZ)
        if mhz is not None and mhz >= least_mhz:
            table[label] = mhz * _HERTZ_PER_MHZ
    return table


CLOCKS = GpuCollector("clocks", "clock frequencies", Tier.FAST, lambda _config: read_clocks)


GPU_CLOCK_TARGET_HERTZ = gpu_gauge(
    "gpu_clock_target_hertz",
    "Application clock set by an administrator; below its default it caps every job. Absent on GeForce, and from "
    "driver 590 on, which has no application clocks.",
    labels={"clock": APPLICATION_CLOCKS},
    source="nvmlDeviceGetApplicationsClock",
)


@dataclass(frozen=True, slots=True)
class ClockTargetsReading:
    """Application clocks as set, or the defaults if never set; clocks not reported are missing."""

    hertz: Annotated[Mapping[str, float], GPU_CLOCK_TARGET_HERTZ]


def read_clock_targets(gpu: GpuRound) -> ClockTargetsReading:
    """Read the application clocks (nvmlDeviceGetApplicationsClock)."""
    table = read_clock_table(gpu.inquiry, "nvmlDeviceGetApplicationsClock", APPLICATION_CLOCKS, least_mhz=1)
    return ClockTargetsReading(table)


# Faster than the limits, which only change with a reboot or a new board: a low setting slows jobs immediately.
CLOCK_TARGETS = GpuCollector(
    "clock_targets", "application clocks as set", Tier.MEDIUM, lambda _config: read_clock_targets
)


THRESHOLDS: Final = {"shutdown": 0, "slowdown": 1, "memory_max": 2, "gpu_max": 3}
"""Label to nvmlTemperatureThresholds_t."""

MARGIN_FIELDS: Final = {"shutdown": 193, "slowdown": 194, "memory_max": 195, "gpu_max": 196}
"""Label to NVML_FI_DEV_TEMPERATURE_*_TLIMIT."""

_LEAST_THRESHOLD_CELSIUS: Final = 20
"""Lower values mean that the threshold is not set, or are offsets rather than temperatures."""
_MOST_THRESHOLD_CELSIUS: Final = 200
_MOST_MARGIN: Final = 100

GPU_CLOCK_MAX_HERTZ = gpu_gauge(
    "gpu_clock_max_hertz",
    "Highest supported clock frequency.",
    labels={"clock": CLOCK_TYPES},
    source="nvmlDeviceGetMaxClockInfo",
)
GPU_CLOCK_DEFAULT_HERTZ = gpu_gauge(
    "gpu_clock_default_hertz",
    "Default application clock. It caps nothing: cards run above it if power and heat allow. Absent on GeForce, and "
    "from driver 590 on, which has no application clocks.",
    labels={"clock": APPLICATION_CLOCKS},
    source="nvmlDeviceGetDefaultApplicationsClock",
)
GPU_POWER_DEFAULT_LIMIT_WATTS = gpu_gauge(
    "gpu_power_default_limit_watts",
    "Default power cap of the board.",
    source="nvmlDeviceGetPowerManagementDefaultLimit",
)
GPU_POWER_MIN_LIMIT_WATTS = gpu_gauge(
    "gpu_power_min_limit_watts",
    "Lowest settable power cap.",
    source="nvmlDeviceGetPowerManagementLimitConstraints",
)
GPU_POWER_MAX_LIMIT_WATTS = gpu_gauge(
    "gpu_power_max_limit_watts",
    "Highest settable power cap.",
    source="nvmlDeviceGetPowerManagementLimitConstraints",
)
GPU_TEMPERATURE_THRESHOLD_CELSIUS = gpu_gauge(
    "gpu_temperature_threshold_celsius",
    "Temperature at which the GPU slows down or shuts down, or that GPU or memory should not exceed. Newer drivers "
    "report gpu_temperature_margin_threshold_celsius instead for Ada and later.",
    labels={"threshold": THRESHOLDS},
    source="nvmlDeviceGetTemperatureThreshold",
)
GPU_TEMPERATURE_MARGIN_THRESHOLD_CELSIUS = gpu_gauge(
    "gpu_temperature_margin_threshold_celsius",
    "Value of gpu_temperature_margin_celsius at which the same happens: 0 or slightly below. Absent if the driver "
    "reports gpu_temperature_threshold_celsius, and on cards without a margin.",
    labels={"threshold": MARGIN_FIELDS},
    source="NVML fields 193-196",
)


@dataclass(frozen=True, slots=True)
class LimitsReading:
    """Limits of one board; clocks and thresholds not reported are missing, power limits are None."""

    clock_max_hertz: Annotated[Mapping[str, float], GPU_CLOCK_MAX_HERTZ]
    clock_default_hertz: Annotated[Mapping[str, float], GPU_CLOCK_DEFAULT_HERTZ]
    power_default_watts: Annotated[float | None, GPU_POWER_DEFAULT_LIMIT_WATTS]
    power_min_watts: Annotated[float | None, GPU_POWER_MIN_LIMIT_WATTS]
    power_max_watts: Annotated[float | None, GPU_POWER_MAX_LIMIT_WATTS]
    threshold_celsius: Annotated[Mapping[str, float], GPU_TEMPERATURE_THRESHOLD_CELSIUS]
    margin_threshold_celsius: Annotated[Mapping[str, float], GPU_TEMPERATURE_MARGIN_THRESHOLD_CELSIUS] = field(
        default_factory=dict
    )


def read_limits(gpu: GpuRound) -> LimitsReading:
    """Limits (nvmlDeviceGetMaxClockInfo, …DefaultApplicationsClock, …PowerManagement*Limit*, …TemperatureThreshold)."""
    inquiry = gpu.inquiry
    constraints = inquiry.ask("nvmlDeviceGetPowerManagementLimitConstraints")  # [least, most] in mW
    thresholds = _thresholds(inquiry)
    return LimitsReading(
        clock_max_hertz=read_clock_table(inquiry, "nvmlDeviceGetMaxClockInfo", CLOCK_TYPES, least_mhz=1),
        clock_default_hertz=read_clock_table(
            inquiry, "nvmlDeviceGetDefaultApplicationsClock", APPLICATION_CLOCKS, least_mhz=1
        ),
        power_default_watts=watts(inquiry, inquiry.ask("nvmlDeviceGetPowerManagementDefaultLimit")) or None,
        power_min_watts=watts(inquiry, constraints[0]) if constraints else None,
        power_max_watts=watts(inquiry, constraints[1]) or None if constraints else None,
        threshold_celsius=thresholds,
        margin_threshold_celsius={} if thresholds else _margin_thresholds(inquiry),
    )


def _thresholds(inquiry: Inquiry) -> Mapping[str, float]:
    celsius = {label: inquiry.ask("nvmlDeviceGetTemperatureThreshold", kind) for label, kind in THRESHOLDS.items()}
    return {
        label: value
        for label, value in celsius.items()
        if value is not None and _LEAST_THRESHOLD_CELSIUS <= value <= _MOST_THRESHOLD_CELSIUS
    }


def _margin_thresholds(inquiry: Inquiry) -> Mapping[str, float]:
    """Margins are not converted to temperatures: they cover several sensors, at varying offsets from the GPU's."""
    answers = inquiry.fields(MARGIN_FIELDS.values())
    margins = {
        label: inquiry.within(answers.get(number), -_MOST_MARGIN, _MOST_MARGIN)
        for label, number in MARGIN_FIELDS.items()
    }
    return {label: margin for label, margin in margins.items() if margin is not None}


LIMITS = GpuCollector(
    "limits", "clock and power limits, temperature thresholds", Tier.SLOW, lambda _config: read_limits
)
