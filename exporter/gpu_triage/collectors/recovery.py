"""What the driver asks for to get the GPU well."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.recovery import RecoveryReading, read_recovery


def render(reading: RecoveryReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's recovery action."""
    yield from present(catalogue.RECOVERY_ACTION, reading.action, *gpu)


RECOVERY = GpuCollector(
    name="recovery",
    about="what the driver asks for to get the GPU well",
    tier=Tier.MEDIUM,
    metrics=(catalogue.RECOVERY_ACTION,),
    reader=lambda _config: read_recovery,
    render=render,
)
