"""Clock frequencies: now, the most the board does, and what an administrator set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.rounds import GpuRound

CLOCKS: Final = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
"""Label to nvmlClockType_t."""

APPLICATION_CLOCKS: Final = {label: kind for label, kind in CLOCKS.items() if label != "video"}
"""Those that an administrator can set; the driver calls the others an invalid argument."""

_HERTZ_PER_MHZ: Final = 1e6
_MOST_MHZ: Final = 20_000


@dataclass(frozen=True, slots=True)
class ClocksReading:
    """Frequencies by clock (graphics, sm, memory, video) in hertz; a clock not reported is not in it."""

    hertz: Mapping[str, float]


def read_clocks(gpu: GpuRound) -> ClocksReading:
    """Clocks now (nvmlDeviceGetClockInfo)."""
    return ClocksReading(read_clock_table(gpu.inquiry, "nvmlDeviceGetClockInfo", CLOCKS))


def read_clock_targets(gpu: GpuRound) -> ClocksReading:
    """Clocks that an administrator set, else the default ones (nvmlDeviceGetApplicationsClock)."""
    table = read_clock_table(gpu.inquiry, "nvmlDeviceGetApplicationsClock", APPLICATION_CLOCKS, least_mhz=1)
    return ClocksReading(table)


def read_clock_table(
    inquiry: Inquiry, function: str, clocks: Mapping[str, int], least_mhz: int = 0
) -> Mapping[str, float]:
    """Hertz by clock, as an NVML function of the clock type says in MHz; a value below `least_mhz` means unset."""
    table = {}
    for label, clock_type in clocks.items():
        mhz = inquiry.within(inquiry.ask(function, clock_type), 0, _MOST_MHZ)
        if mhz is not None and mhz >= least_mhz:
            table[label] = mhz * _HERTZ_PER_MHZ
    return table
