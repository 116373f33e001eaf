"""The video engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gpu_triage.nvml.inquiry import Inquiry
from gpu_triage.subjects.contract import GpuCollector
from gpu_triage.subjects.metric import Tier, gpu_gauge
from gpu_triage.subjects.rounds import GpuRound

GPU_ENCODER_UTILIZATION_RATIO = gpu_gauge(
    "gpu_encoder_utilization_ratio",
    "Share of time the video encoder was busy, 0-1.",
    source="nvmlDeviceGetEncoderUtilization",
)
GPU_DECODER_UTILIZATION_RATIO = gpu_gauge(
    "gpu_decoder_utilization_ratio",
    "Share of time the video decoder was busy, 0-1.",
    source="nvmlDeviceGetDecoderUtilization",
)


@dataclass(frozen=True, slots=True)
class MediaReading:
    """Share of time the video encoder and decoder were busy, 0-1; None where not reported."""

    encoder_utilization_ratio: Annotated[float | None, GPU_ENCODER_UTILIZATION_RATIO]
    decoder_utilization_ratio: Annotated[float | None, GPU_DECODER_UTILIZATION_RATIO]


def read_media(gpu: GpuRound) -> MediaReading:
    """Video engines now (nvmlDeviceGetEncoderUtilization, nvmlDeviceGetDecoderUtilization)."""
    return MediaReading(
        encoder_utilization_ratio=_ratio(gpu.inquiry, "nvmlDeviceGetEncoderUtilization"),
        decoder_utilization_ratio=_ratio(gpu.inquiry, "nvmlDeviceGetDecoderUtilization"),
    )


def _ratio(inquiry: Inquiry, function: str) -> float | None:
    answer = inquiry.ask(function)  # [percent, sampling period in µs]
    percent = inquiry.within(answer[0] if answer else None, 0, 100)
    return None if percent is None else percent / 100


MEDIA = GpuCollector(
    name="media",
    about="video encoder and decoder",
    tier=Tier.MEDIUM,
    reader=lambda _config: read_media,
)
