"""Video encoder and decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.metric import Tier, gpu_gauge
from gpu_triage.read.metrics.rounds import GpuRound

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
GPU_ENCODER_SESSIONS = gpu_gauge(
    "gpu_encoder_sessions",
    "Open sessions of the video encoder (NVENC), of all processes. GeForce drivers allow a few at a time: a process "
    "that cannot open one fails. Absent where the driver does not count them.",
    source="nvmlDeviceGetEncoderStats",
)

_MOST_SESSIONS: Final = 4096
"""More than any driver allows on one GPU."""


@dataclass(frozen=True, slots=True)
class MediaReading:
    """Video engine activity; None where not reported."""

    encoder_utilization_ratio: Annotated[float | None, GPU_ENCODER_UTILIZATION_RATIO]
    decoder_utilization_ratio: Annotated[float | None, GPU_DECODER_UTILIZATION_RATIO]
    encoder_sessions: Annotated[int | None, GPU_ENCODER_SESSIONS]


def read_media(gpu: GpuRound) -> MediaReading:
    """Read the video engines (nvmlDeviceGetEncoderStats, nvmlDeviceGetEncoderUtilization, …DecoderUtilization)."""
    stats = gpu.inquiry.ask("nvmlDeviceGetEncoderStats")  # [sessions, average frames per second, average latency in µs]
    return MediaReading(
        encoder_sessions=gpu.inquiry.within(stats[0] if stats else None, 0, _MOST_SESSIONS),
        encoder_utilization_ratio=_ratio(gpu.inquiry, "nvmlDeviceGetEncoderUtilization"),
        decoder_utilization_ratio=_ratio(gpu.inquiry, "nvmlDeviceGetDecoderUtilization"),
    )


def _ratio(inquiry: Inquiry, function: str) -> float | None:
    answer = inquiry.ask(function)  # [percent, sampling period in µs]
    return inquiry.ratio(answer[0] if answer else None)


MEDIA = GpuCollector("media", "video encoder and decoder", Tier.MEDIUM, lambda _config: read_media)
