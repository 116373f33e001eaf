"""Incidents of the last weeks, and when each GPU was last initialised anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample
from gpu_triage.collectors.contract import GpuLabels
from gpu_triage.hardware.incident_ledger import WINDOW_DAYS, Recent

NAME: Final = "incidents"
METRICS: Final = (catalogue.RESET_TIMESTAMP, catalogue.INCIDENTS_RECENT, catalogue.INCIDENT_BOARDS_RECENT)

NO_GPU: Final = GpuLabels("", "")
"""Labels of a slot whose GPU NVML has not shown; to Prometheus an empty label is none."""


@dataclass(frozen=True, slots=True)
class GpuIncidents:
    """What is remembered of one GPU, or of a slot.

    Attributes:
        labels: its index and UUID; NO_GPU where only the slot is known.
        pci_bus_id: its slot; "" where unknown.
        reset_at: Unix seconds at which it was last initialised anew; None where unknown.
        recent: incidents on the board and in the slot.
        boards: different boards that had incidents in the slot, by kind.
    """

    labels: GpuLabels
    pci_bus_id: str
    reset_at: float | None
    recent: tuple[Recent, ...]
    boards: Mapping[str, int]


def render(reading: tuple[GpuIncidents, ...]) -> Iterator[Sample]:
    """Samples of all GPUs."""
    for gpu in reading:
        if gpu.reset_at is not None:
            yield catalogue.RESET_TIMESTAMP.sample(gpu.reset_at, *gpu.labels)
    for gpu in reading:
        for seen in gpu.recent:
            place = (gpu.pci_bus_id, seen.by, seen.kind, str(seen.days))
            yield catalogue.INCIDENTS_RECENT.sample(seen.count, *gpu.labels, *place)
    for gpu in reading:
        for kind, boards in gpu.boards.items():
            yield catalogue.INCIDENT_BOARDS_RECENT.sample(
                boards, *gpu.labels, gpu.pci_bus_id, kind, str(WINDOW_DAYS[-1])
            )
