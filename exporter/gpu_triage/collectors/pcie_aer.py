"""PCIe errors as the kernel counts them, at both ends of the GPU's link."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.hardware.pcie_aer import PcieAerReader, PcieAerReading


def render(reading: PcieAerReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of the errors at both ends."""
    for (device, severity), errors in reading.errors.items():
        yield catalogue.PCIE_AER_ERRORS.sample(errors, *gpu, device, severity)


PCIE_AER = GpuCollector(
    name="pcie_aer",
    about="PCIe errors as the kernel counts them, of the GPU and the port above it",
    tier=Tier.MEDIUM,
    metrics=(catalogue.PCIE_AER_ERRORS,),
    reader=lambda _config: PcieAerReader().read,
    render=render,
)
