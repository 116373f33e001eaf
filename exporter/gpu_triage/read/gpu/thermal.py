"""Temperatures, margin until slowdown, and fans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.metric import Tier, gpu_gauge
from gpu_triage.read.metrics.rounds import GpuRound

GPU_SENSOR: Final = 0
MEMORY_TEMPERATURE_FIELD: Final = 82

_NOT_AVAILABLE: Final = -1
"""NVML_VALUE_NOT_AVAILABLE as a signed number."""

_COLDEST_CELSIUS: Final = -100
_HOTTEST_CELSIUS: Final = 200
_MOST_FANS: Final = 16
_MOST_FAN_PERCENT: Final = 200
"""A fan may exceed its nominal maximum."""

GPU_TEMPERATURE_CELSIUS = gpu_gauge(
    "gpu_temperature_celsius",
    "Temperature by sensor: {sensor}.",
    labels={"sensor": ("gpu", "memory")},
    source="nvmlDeviceGetTemperatureV, else nvmlDeviceGetTemperature; field 82",
)
GPU_TEMPERATURE_MARGIN_CELSIUS = gpu_gauge(
    "gpu_temperature_margin_celsius",
    "Degrees left to the highest operating temperature, beyond which the GPU slows down (T.Limit). Absent before "
    "driver r570, before Ada and Hopper, and on many GeForce cards: use gpu_temperature_celsius and "
    "gpu_temperature_threshold_celsius there.",
    source="nvmlDeviceGetMarginTemperature",
)
GPU_FAN_SPEED_RATIO = gpu_gauge(
    "gpu_fan_speed_ratio",
    "Intended fan speed as a share of the maximum. Absent on boards without fans, except some (A10, A10G) that always "
    "report 0, like cards that stop their fans when cool.",
    labels=("fan",),
    source="nvmlDeviceGetFanSpeed_v2",
)


@dataclass(frozen=True, slots=True)
class ThermalReading:
    """Temperatures and fan speeds of one GPU; None where not reported. Fans that did not answer are missing."""

    gpu_celsius: Annotated[float | None, GPU_TEMPERATURE_CELSIUS, "gpu"]
    memory_celsius: Annotated[float | None, GPU_TEMPERATURE_CELSIUS, "memory"]
    margin_celsius: Annotated[float | None, GPU_TEMPERATURE_MARGIN_CELSIUS]
    fan_ratios: Annotated[Mapping[str, float], GPU_FAN_SPEED_RATIO]


def read_thermal(gpu: GpuRound) -> ThermalReading:
    """Read temperatures (nvmlDeviceGetTemperatureV, field 82, …MarginTemperature, nvmlDeviceGetFanSpeed[_v2])."""
    inquiry = gpu.inquiry
    die = inquiry.first("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", args=(GPU_SENSOR,))
    # Boards without a memory sensor return 0 rather than "not supported".
    memory = inquiry.fields((MEMORY_TEMPERATURE_FIELD,)).get(MEMORY_TEMPERATURE_FIELD) or None
    margin = inquiry.ask("nvmlDeviceGetMarginTemperature")
    if die == _NOT_AVAILABLE:
        die = None
        # If only the margin is -1, it may be valid.
        margin = None if margin == _NOT_AVAILABLE else margin
    return ThermalReading(
        gpu_celsius=inquiry.within(die, _COLDEST_CELSIUS, _HOTTEST_CELSIUS),
        memory_celsius=inquiry.within(memory, _COLDEST_CELSIUS, _HOTTEST_CELSIUS),
        margin_celsius=inquiry.within(margin, -_HOTTEST_CELSIUS, _HOTTEST_CELSIUS),
        fan_ratios=_fan_ratios(inquiry),
    )


def _fan_ratios(inquiry: Inquiry) -> Mapping[str, float]:
    count = inquiry.within(inquiry.ask("nvmlDeviceGetNumFans"), 0, _MOST_FANS)
    # Older drivers do not report the number of fans, and have one value for one or all of them.
    answers = (
        [inquiry.ask("nvmlDeviceGetFanSpeed")]
        if count is None
        else [inquiry.ask("nvmlDeviceGetFanSpeed_v2", fan) for fan in range(count)]
    )
    ratios = {str(fan): inquiry.ratio(answer, _MOST_FAN_PERCENT) for fan, answer in enumerate(answers)}
    return {fan: ratio for fan, ratio in ratios.items() if ratio is not None}


THERMAL = GpuCollector("thermal", "temperatures, margin and fans", Tier.MEDIUM, lambda _config: read_thermal)
