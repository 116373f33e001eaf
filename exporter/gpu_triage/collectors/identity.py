"""What the GPU is; kept while it is lost."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.hardware.identity import IdentityReading, read_identity


def render(reading: IdentityReading, gpu: GpuLabels) -> Iterator[Sample]:
    """The one sample that says what this GPU is."""
    yield catalogue.INFO.sample(
        1,
        *gpu,
        reading.name,
        reading.pci_bus_id,
        reading.serial,
        reading.architecture,
        reading.compute_capability,
        reading.vbios_version,
        reading.board_part_number,
    )


IDENTITY = GpuCollector(
    name="identity",
    about="what each GPU is",
    tier=Tier.SLOW,
    metrics=(catalogue.INFO,),
    reader=lambda _config: read_identity,
    render=render,
    kept=True,
)
