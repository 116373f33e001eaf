"""Errors of the PCIe link as the GPU counts them."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import by_label
from gpu_triage.hardware.pcie_errors import PcieErrorsReader, PcieErrorsReading


def render(reading: PcieErrorsReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's link errors."""
    yield from by_label(catalogue.PCIE_ERRORS, reading.errors, *gpu)


PCIE_ERRORS = GpuCollector(
    name="pcie_errors",
    about="PCIe errors as the GPU counts them",
    tier=Tier.MEDIUM,
    metrics=(catalogue.PCIE_ERRORS,),
    reader=lambda _config: PcieErrorsReader().read,
    render=render,
)
