"""The clocks that somebody set."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import by_label
from gpu_triage.hardware.clocks import ClocksReading, read_clock_targets


def render(reading: ClocksReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's clock targets."""
    yield from by_label(catalogue.CLOCK_TARGET, reading.hertz, *gpu)


CLOCK_TARGETS = GpuCollector(
    name="clock_targets",
    about="application clocks as set",
    # Not with the limits, which only a reboot or a new board changes: a job is slow from the moment they are set.
    tier=Tier.MEDIUM,
    metrics=(catalogue.CLOCK_TARGET,),
    reader=lambda _config: read_clock_targets,
    render=render,
)
