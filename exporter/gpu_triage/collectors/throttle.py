"""What holds the clocks back."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels, max_gap_seconds
from gpu_triage.collectors.rendering import by_label
from gpu_triage.hardware.throttle import ThrottleReader, ThrottleReading


def render(reading: ThrottleReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's throttle reasons."""
    yield from by_label(catalogue.THROTTLE_ACTIVE, reading.active or {}, *gpu)
    yield from by_label(catalogue.THROTTLE_SECONDS, reading.seconds, *gpu)


THROTTLE = GpuCollector(
    name="throttle",
    about="throttle reasons and the time they took",
    tier=Tier.FAST,
    metrics=(
        catalogue.THROTTLE_ACTIVE,
        catalogue.THROTTLE_SECONDS,
    ),
    reader=lambda config: ThrottleReader(max_gap_seconds(config)).read,
    render=render,
)
