"""Whether the host is still what its baseline says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample
from gpu_triage.collectors.contract import GpuLabels

NAME = "baseline"
METRICS = (catalogue.BASELINE_MISMATCH, catalogue.BASELINE_INFO)

THE_HOST = GpuLabels("", "")
"""Labels of what is the host's; to Prometheus an empty label is none."""


@dataclass(frozen=True, slots=True)
class BaselineReading:
    """The baseline in use and what came of it.

    Attributes:
        sha256: of its file.
        recorded: when it was taken, as the file writes it.
        mismatches: whether a field differs, by the GPU's labels (THE_HOST for the host's) and field.
    """

    sha256: str
    recorded: str
    mismatches: Mapping[tuple[GpuLabels, str], bool]


def render(reading: BaselineReading | None) -> Iterator[Sample]:
    """Samples of one reading; none where there is no baseline to use."""
    if reading is None:
        return
    yield catalogue.BASELINE_INFO.sample(1, reading.sha256, reading.recorded)
    for (labels, field), differs in reading.mismatches.items():
        yield catalogue.BASELINE_MISMATCH.sample(differs, *labels, field)
