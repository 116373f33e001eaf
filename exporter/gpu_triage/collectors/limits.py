"""What the board may do."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import by_label, present
from gpu_triage.hardware.limits import LimitsReading, read_limits


def render(reading: LimitsReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's limits."""
    yield from by_label(catalogue.CLOCK_MAX, reading.clock_max_hertz, *gpu)
    yield from by_label(catalogue.CLOCK_DEFAULT, reading.clock_default_hertz, *gpu)
    yield from present(catalogue.POWER_DEFAULT_LIMIT, reading.power_default_watts, *gpu)
    yield from present(catalogue.POWER_MIN_LIMIT, reading.power_min_watts, *gpu)
    yield from present(catalogue.POWER_MAX_LIMIT, reading.power_max_watts, *gpu)
    yield from by_label(catalogue.TEMPERATURE_THRESHOLD, reading.threshold_celsius, *gpu)


LIMITS = GpuCollector(
    name="limits",
    about="clock and power limits, temperature thresholds",
    tier=Tier.SLOW,
    metrics=(
        catalogue.CLOCK_MAX,
        catalogue.CLOCK_DEFAULT,
        catalogue.POWER_DEFAULT_LIMIT,
        catalogue.POWER_MIN_LIMIT,
        catalogue.POWER_MAX_LIMIT,
        catalogue.TEMPERATURE_THRESHOLD,
    ),
    reader=lambda _config: read_limits,
    render=render,
)
