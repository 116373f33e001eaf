"""How the GPU is set up."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.modes import ModesReading, read_modes


def render(reading: ModesReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's modes."""
    yield from present(catalogue.PERSISTENCE_MODE, reading.persistence, *gpu)
    yield from present(catalogue.MIG_MODE, reading.mig, *gpu)
    if reading.compute is not None:
        yield catalogue.COMPUTE_MODE_INFO.sample(1, *gpu, reading.compute)


MODES = GpuCollector(
    name="modes",
    about="persistence, MIG and compute mode",
    tier=Tier.SLOW,
    metrics=(
        catalogue.PERSISTENCE_MODE,
        catalogue.MIG_MODE,
        catalogue.COMPUTE_MODE_INFO,
    ),
    reader=lambda _config: read_modes,
    render=render,
)
