"""The instances a GPU in MIG mode is cut into."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import present
from gpu_triage.config import Config
from gpu_triage.hardware.mig import MigInstanceReading, MigReader, MigReading


def render(reading: MigReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's MIG devices."""
    for instance in reading.instances:
        yield from _render_instance(instance, gpu)


def _render_instance(instance: MigInstanceReading, gpu: GpuLabels) -> Iterator[Sample]:
    labels = (*gpu, instance.uuid)
    ids = (instance.gpu_instance, instance.compute_instance)
    gi, ci = ("" if number is None else str(number) for number in ids)
    yield catalogue.MIG_INFO.sample(1, *labels, gi, ci, instance.profile)
    yield from present(catalogue.MIG_MEMORY_USED, instance.memory_used_bytes, *labels)
    yield from present(catalogue.MIG_MEMORY_TOTAL, instance.memory_total_bytes, *labels)
    yield from present(catalogue.MIG_SM_ACTIVE, instance.sm_active_ratio, *labels)
    yield from present(catalogue.MIG_TENSOR_ACTIVE, instance.tensor_active_ratio, *labels)
    yield from present(catalogue.MIG_DRAM_ACTIVE, instance.dram_active_ratio, *labels)


def _reader(config: Config) -> MigReader:
    return MigReader(config.stale_after * config.sample_medium_seconds, config.sample_slow_seconds)


MIG = GpuCollector(
    name="mig",
    about="MIG instances: memory and activity",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.MIG_INFO,
        catalogue.MIG_MEMORY_USED,
        catalogue.MIG_MEMORY_TOTAL,
        catalogue.MIG_SM_ACTIVE,
        catalogue.MIG_TENSOR_ACTIVE,
        catalogue.MIG_DRAM_ACTIVE,
    ),
    reader=lambda config: _reader(config).read,
    render=render,
)
