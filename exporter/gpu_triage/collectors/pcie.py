"""The PCIe link now."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.pcie import PcieReader, PcieReading


def render(reading: PcieReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's link."""
    yield from present(catalogue.PCIE_GENERATION, reading.generation, *gpu)
    yield from present(catalogue.PCIE_WIDTH, reading.width, *gpu)
    yield from present(catalogue.PCIE_TRANSITIONS, reading.generation_transitions, *gpu, "generation")
    yield from present(catalogue.PCIE_TRANSITIONS, reading.width_transitions, *gpu, "width")
    yield from present(catalogue.PCIE_TRANSMIT_BYTES, reading.transmit_bytes, *gpu)
    yield from present(catalogue.PCIE_RECEIVE_BYTES, reading.receive_bytes, *gpu)
    yield from present(catalogue.PCIE_REPLAYS, reading.replays, *gpu)


PCIE = GpuCollector(
    name="pcie",
    about="PCIe generation, width, traffic and replays",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.PCIE_GENERATION,
        catalogue.PCIE_WIDTH,
        catalogue.PCIE_TRANSITIONS,
        catalogue.PCIE_TRANSMIT_BYTES,
        catalogue.PCIE_RECEIVE_BYTES,
        catalogue.PCIE_REPLAYS,
    ),
    reader=lambda _config: PcieReader().read,
    render=render,
)
