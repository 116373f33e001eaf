"""What the SMs do while the GPU is busy."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels, max_gap_seconds
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.gpm import GpmReader, GpmReading


def render(reading: GpmReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's SMs."""
    yield from present(catalogue.SM_ACTIVE, reading.sm_active_ratio, *gpu)
    yield from present(catalogue.SM_OCCUPANCY, reading.sm_occupancy_ratio, *gpu)
    yield from present(catalogue.TENSOR_ACTIVE, reading.tensor_active_ratio, *gpu)
    yield from present(catalogue.DRAM_ACTIVE, reading.dram_active_ratio, *gpu)
    yield from present(catalogue.FP64_ACTIVE, reading.fp64_active_ratio, *gpu)
    yield from present(catalogue.FP32_ACTIVE, reading.fp32_active_ratio, *gpu)
    yield from present(catalogue.FP16_ACTIVE, reading.fp16_active_ratio, *gpu)


GPM = GpuCollector(
    name="gpm",
    about="activity inside the SMs (GPM, Hopper and later)",
    tier=Tier.FAST,
    metrics=(
        catalogue.SM_ACTIVE,
        catalogue.SM_OCCUPANCY,
        catalogue.TENSOR_ACTIVE,
        catalogue.DRAM_ACTIVE,
        catalogue.FP64_ACTIVE,
        catalogue.FP32_ACTIVE,
        catalogue.FP16_ACTIVE,
    ),
    reader=lambda config: GpmReader(max_gap_seconds(config), config.sample_slow_seconds).read,
    render=render,
)
