"""Metrics that compare the host with its recorded baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.metrics.metric import Sample, Tier, gpu_gauge, host_info

NAME = "baseline"
ABOUT = "whether the host is still what its baseline says"
TIER = Tier.MEDIUM

GPU_BASELINE_MISMATCH = gpu_gauge(
    "gpu_baseline_mismatch",
    "1 when the field differs from the baseline, 0 when it does not; absent without a baseline, and if either "
    "side does not report the field. Fields of the host have empty gpu and uuid labels. Kept while the GPU is "
    "lost.",
    labels=("field",),
    source="--baseline.file, or what --baseline.from-host learned, against the readings of the other collectors",
)
GPU_BASELINE_INFO = host_info(
    "gpu_baseline_info",
    "The baseline in use: the SHA-256 of its file and when it was recorded (UTC, RFC 3339); absent when there is "
    "none that can be used.",
    labels=("sha256", "recorded"),
    source="--baseline.file, or what --baseline.from-host learned",
)


@dataclass(frozen=True, slots=True)
class BaselineReading:
    """The baseline in use, and whether each field differs, by GPU labels (HOST_LABELS for the host) and field name."""

    sha256: str
    recorded: str
    mismatches: Mapping[tuple[GpuLabels, str], bool]


def render(reading: BaselineReading | None) -> Iterator[Sample]:
    """Render the samples of one reading; none without a usable baseline."""
    if reading is None:
        return
    yield GPU_BASELINE_INFO.sample(1, reading.sha256, reading.recorded)
    for (labels, field), differs in reading.mismatches.items():
        yield GPU_BASELINE_MISMATCH.sample(differs, *labels, field)
