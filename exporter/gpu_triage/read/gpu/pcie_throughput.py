"""PCIe traffic measured by the driver over 20 ms; each reading blocks that long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.read.gpu.pcie import on_pcie
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.metric import Tier, gpu_gauge
from gpu_triage.read.metrics.rounds import GpuRound

DIRECTIONS: Final = {"transmit": 0, "receive": 1}
"""Label to nvmlPcieUtilCounter_t."""

_BYTES_PER_KB: Final = 1000
_MOST_KB_PER_SECOND: Final = 1 << 30

GPU_PCIE_THROUGHPUT_BYTES_PER_SECOND = gpu_gauge(
    "gpu_pcie_throughput_bytes_per_second",
    "PCIe traffic over a 20 ms window; each reading blocks that long, so the collector is off by default.",
    labels={"direction": DIRECTIONS},
    source="nvmlDeviceGetPcieThroughput",
)


@dataclass(frozen=True, slots=True)
class PcieThroughputReading:
    """Bytes per second by direction (transmit, receive, from the GPU's perspective); missing where not reported."""

    bytes_per_second: Annotated[Mapping[str, float], GPU_PCIE_THROUGHPUT_BYTES_PER_SECOND]


def read_pcie_throughput(gpu: GpuRound) -> PcieThroughputReading:
    """Measure traffic over the next 40 ms (nvmlDeviceGetPcieThroughput)."""
    inquiry = gpu.inquiry
    if not on_pcie(inquiry):
        return PcieThroughputReading({})
    rates = {}
    for label, counter in DIRECTIONS.items():
        kb_per_second = inquiry.within(inquiry.ask("nvmlDeviceGetPcieThroughput", counter), 0, _MOST_KB_PER_SECOND)
        if kb_per_second is not None:
            rates[label] = kb_per_second * _BYTES_PER_KB
    return PcieThroughputReading(rates)


PCIE_THROUGHPUT = GpuCollector(
    name="pcie_throughput",
    about="PCIe traffic by a call that blocks 40 ms a GPU",
    tier=Tier.MEDIUM,
    reader=lambda _config: read_pcie_throughput,
    default=False,
)
