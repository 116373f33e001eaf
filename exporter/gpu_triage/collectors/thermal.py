"""Heat."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.thermal import ThermalReading, read_thermal


def render(reading: ThermalReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's heat."""
    yield from present(catalogue.TEMPERATURE, reading.gpu_celsius, *gpu, "gpu")
    yield from present(catalogue.TEMPERATURE, reading.memory_celsius, *gpu, "memory")
    yield from present(catalogue.TEMPERATURE_MARGIN, reading.margin_celsius, *gpu)
    for fan, ratio in enumerate(reading.fan_ratios):
        yield from present(catalogue.FAN_SPEED, ratio, *gpu, str(fan))


THERMAL = GpuCollector(
    name="thermal",
    about="temperatures, margin and fans",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.TEMPERATURE,
        catalogue.TEMPERATURE_MARGIN,
        catalogue.FAN_SPEED,
    ),
    reader=lambda _config: read_thermal,
    render=render,
)
