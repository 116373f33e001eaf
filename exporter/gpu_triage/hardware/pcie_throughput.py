"""PCIe traffic measured by the driver over 20 ms; each reading blocks that long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpu_triage.hardware.pcie import on_pcie
from gpu_triage.hardware.rounds import GpuRound

DIRECTIONS: Final = MappingProxyType({"transmit": 0, "receive": 1})
"""Label to nvmlPcieUtilCounter_t."""

_BYTES_PER_KB: Final = 1000
_MOST_KB_PER_SECOND: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class PcieThroughputReading:
    """Bytes per second by direction (transmit, receive: as the GPU sees it); one not reported is not in it."""

    bytes_per_second: Mapping[str, float]


def read_pcie_throughput(gpu: GpuRound) -> PcieThroughputReading:
    """Traffic over the next 40 ms (nvmlDeviceGetPcieThroughput)."""
    inquiry = gpu.inquiry
    if not on_pcie(inquiry):
        return PcieThroughputReading({})
    rates = {}
    for label, counter in DIRECTIONS.items():
        kb_per_second = inquiry.within(inquiry.ask("nvmlDeviceGetPcieThroughput", counter), 0, _MOST_KB_PER_SECOND)
        if kb_per_second is not None:
            rates[label] = kb_per_second * _BYTES_PER_KB
    return PcieThroughputReading(rates)
