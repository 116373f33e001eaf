"""Clock frequencies now."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import by_label
from gpu_triage.hardware.clocks import ClocksReading, read_clocks


def render(reading: ClocksReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's clocks."""
    yield from by_label(catalogue.CLOCK, reading.hertz, *gpu)


CLOCKS = GpuCollector(
    name="clocks",
    about="clock frequencies",
    tier=Tier.FAST,
    metrics=(catalogue.CLOCK,),
    reader=lambda _config: read_clocks,
    render=render,
)
