"""PCIe traffic by the call that blocks 20 ms a direction; off unless asked for."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import by_label
from gpu_triage.hardware.pcie_throughput import PcieThroughputReading, read_pcie_throughput


def render(reading: PcieThroughputReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's PCIe traffic."""
    yield from by_label(catalogue.PCIE_THROUGHPUT, reading.bytes_per_second, *gpu)


PCIE_THROUGHPUT = GpuCollector(
    name="pcie_throughput",
    about="PCIe traffic by a call that blocks 40 ms a GPU",
    tier=Tier.MEDIUM,
    metrics=(catalogue.PCIE_THROUGHPUT,),
    reader=lambda _config: read_pcie_throughput,
    render=render,
    default=False,
)
