"""Power, its cap, energy."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.power import PowerReader, PowerReading


def render(reading: PowerReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's power."""
    yield from present(catalogue.POWER, reading.power_watts, *gpu)
    yield from present(catalogue.POWER_LIMIT, reading.limit_watts, *gpu)
    yield from present(catalogue.ENERGY, reading.energy_joules, *gpu)


POWER = GpuCollector(
    name="power",
    about="power, power cap and energy",
    tier=Tier.FAST,
    metrics=(
        catalogue.POWER,
        catalogue.POWER_LIMIT,
        catalogue.ENERGY,
    ),
    reader=lambda _config: PowerReader().read,
    render=render,
)
