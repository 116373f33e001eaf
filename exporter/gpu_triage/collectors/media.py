"""The video engines."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.media import MediaReading, read_media


def render(reading: MediaReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's video engines."""
    yield from present(catalogue.ENCODER_UTILIZATION, reading.encoder_utilization_ratio, *gpu)
    yield from present(catalogue.DECODER_UTILIZATION, reading.decoder_utilization_ratio, *gpu)


MEDIA = GpuCollector(
    name="media",
    about="video encoder and decoder",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.ENCODER_UTILIZATION,
        catalogue.DECODER_UTILIZATION,
    ),
    reader=lambda _config: read_media,
    render=render,
)
