"""Clock frequencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
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
    "Clock frequency now.",
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
