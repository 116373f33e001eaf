"""The NVSwitch fabric as the GPU sees it."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.fabric import FabricReading, read_fabric


def render(reading: FabricReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's place in the fabric."""
    yield from present(catalogue.FABRIC_STATE, reading.state, *gpu)
    yield from present(catalogue.FABRIC_HEALTH, reading.health, *gpu)


FABRIC = GpuCollector(
    name="fabric",
    about="state and health of the NVSwitch fabric",
    tier=Tier.SLOW,
    metrics=(catalogue.FABRIC_STATE, catalogue.FABRIC_HEALTH),
    reader=lambda _config: read_fabric,
    render=render,
)
