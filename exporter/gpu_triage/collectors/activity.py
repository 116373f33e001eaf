"""Is the GPU doing work?"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels, max_gap_seconds
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.activity import ActivityReader, ActivityReading


def render(reading: ActivityReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's activity."""
    yield from present(catalogue.SM_UTILIZATION, reading.sm_utilization_ratio, *gpu)
    yield from present(catalogue.MEMORY_UTILIZATION, reading.memory_utilization_ratio, *gpu)
    yield from present(catalogue.BUSY_SECONDS, reading.busy_seconds, *gpu)
    yield from present(catalogue.PERFORMANCE_STATE, reading.performance_state, *gpu)


ACTIVITY = GpuCollector(
    name="activity",
    about="utilisation, busy time and performance state",
    tier=Tier.FAST,
    metrics=(
        catalogue.SM_UTILIZATION,
        catalogue.MEMORY_UTILIZATION,
        catalogue.BUSY_SECONDS,
        catalogue.PERFORMANCE_STATE,
    ),
    reader=lambda config: ActivityReader(max_gap_seconds(config)).read,
    render=render,
)
