"""Temperatures, what is left until the GPU slows down, and the fans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.rounds import GpuRound

GPU_SENSOR: Final = 0
MEMORY_TEMPERATURE_FIELD: Final = 82

_NOT_AVAILABLE: Final = -1
"""NVML_VALUE_NOT_AVAILABLE, where the answer is signed."""

_COLDEST_CELSIUS: Final = -100
_HOTTEST_CELSIUS: Final = 200
_MOST_FANS: Final = 16
_MOST_FAN_PERCENT: Final = 200
"""A fan may be driven past its nominal maximum."""


@dataclass(frozen=True, slots=True)
class ThermalReading:
    """Heat of one GPU; None where not reported.

    Attributes:
        gpu_celsius: the die.
        memory_celsius: the device memory.
        margin_celsius: left until the GPU slows down.
        fan_ratios: intended speed of each fan as a share of its maximum, in fan order; None for a fan that
            did not answer, empty on boards without fans.
    """

    gpu_celsius: float | None
    memory_celsius: float | None
    margin_celsius: float | None
    fan_ratios: tuple[float | None, ...]


def read_thermal(gpu: GpuRound) -> ThermalReading:
    """Heat now (nvmlDeviceGetTemperatureV, field 82, nvmlDeviceGetMarginTemperature, nvmlDeviceGetFanSpeed[_v2])."""
    inquiry = gpu.inquiry
    die = inquiry.first("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", args=(GPU_SENSOR,))
    # Boards without a memory sensor answer 0 rather than "not supported".
    memory = inquiry.fields((MEMORY_TEMPERATURE_FIELD,)).get(MEMORY_TEMPERATURE_FIELD) or None
    margin = inquiry.ask("nvmlDeviceGetMarginTemperature")
    if die == _NOT_AVAILABLE:
        die = None
        # Alone, -1 may well be a margin.
        margin = None if margin == _NOT_AVAILABLE else margin
    return ThermalReading(
        gpu_celsius=inquiry.within(die, _COLDEST_CELSIUS, _HOTTEST_CELSIUS),
        memory_celsius=inquiry.within(memory, _COLDEST_CELSIUS, _HOTTEST_CELSIUS),
        margin_celsius=inquiry.within(margin, -_HOTTEST_CELSIUS, _HOTTEST_CELSIUS),
        fan_ratios=_fan_ratios(inquiry),
    )


def _fan_ratios(inquiry: Inquiry) -> tuple[float | None, ...]:
    count = inquiry.within(inquiry.ask("nvmlDeviceGetNumFans"), 0, _MOST_FANS)
    if count is None:
        # Older drivers do not count the fans: they tell of one, or of all of them as one.
        lone = _ratio(inquiry, inquiry.ask("nvmlDeviceGetFanSpeed"))
        return () if lone is None else (lone,)
    return tuple(_ratio(inquiry, inquiry.ask("nvmlDeviceGetFanSpeed_v2", fan)) for fan in range(count))


def _ratio(inquiry: Inquiry, answer: float | None) -> float | None:
    percent = inquiry.within(answer, 0, _MOST_FAN_PERCENT)
    return None if percent is None else percent / 100
