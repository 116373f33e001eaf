"""Device memory."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.device_memory import DeviceMemoryReading, read_device_memory


def render(reading: DeviceMemoryReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's memory."""
    yield from present(catalogue.MEMORY_TOTAL, reading.total_bytes, *gpu)
    yield from present(catalogue.MEMORY_USED, reading.used_bytes, *gpu)
    yield from present(catalogue.MEMORY_FREE, reading.free_bytes, *gpu)
    yield from present(catalogue.MEMORY_RESERVED, reading.reserved_bytes, *gpu)
    yield from present(catalogue.BAR1_TOTAL, reading.bar1_total_bytes, *gpu)
    yield from present(catalogue.BAR1_USED, reading.bar1_used_bytes, *gpu)


MEMORY = GpuCollector(
    name="memory",
    about="device memory and BAR1",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.MEMORY_TOTAL,
        catalogue.MEMORY_USED,
        catalogue.MEMORY_FREE,
        catalogue.MEMORY_RESERVED,
        catalogue.BAR1_TOTAL,
        catalogue.BAR1_USED,
    ),
    reader=lambda _config: read_device_memory,
    render=render,
)
