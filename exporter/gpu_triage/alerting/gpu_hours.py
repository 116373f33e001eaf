"""The six words for GPU hours; rules, `gpu-triage report`, dashboards and the glossary quote these definitions."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

GPU_HOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "observed": "GPU hours in which an exporter reported the GPU, whether or not it answered.",
        "allocated": "GPU hours for which somebody had the GPU: given by the scheduler, or else held by processes or "
        "their memory. A shared GPU counts by shares.",
        "used": "GPU hours with work: kernels, or a video engine if that was busier; an hour at 30 % is 0.3.",
        "idle while allocated": "Allocated GPU hours in which the GPU worked for less than 5 % of 5 minutes. "
        "Targets labeled as serving count apart.",
        "lost": "GPU hours that jobs missed by the pace of their best hour: 8 GPUs at a pace of 0.7 lose 2.4 per hour.",
        "unavailable": "Observed GPU hours in which the GPU did not answer: it was lost, missing or stalled.",
    }
)
