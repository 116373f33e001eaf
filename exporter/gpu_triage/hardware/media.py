"""The video engines."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.rounds import GpuRound


@dataclass(frozen=True, slots=True)
class MediaReading:
    """Share of time the video encoder and decoder were busy, 0-1; None where not reported."""

    encoder_utilization_ratio: float | None
    decoder_utilization_ratio: float | None


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
