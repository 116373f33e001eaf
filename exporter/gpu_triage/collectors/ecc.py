"""Memory errors."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import by_label
from gpu_triage.hardware.ecc import EccReader, EccReading


def render(reading: EccReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's memory errors."""
    yield from by_label(catalogue.ECC_VOLATILE_ERRORS, reading.volatile_errors, *gpu)
    yield from by_label(catalogue.ECC_AGGREGATE_ERRORS, reading.aggregate_errors, *gpu)


ECC = GpuCollector(
    name="ecc",
    about="ECC error counters",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.ECC_VOLATILE_ERRORS,
        catalogue.ECC_AGGREGATE_ERRORS,
    ),
    reader=lambda _config: EccReader().read,
    render=render,
)
