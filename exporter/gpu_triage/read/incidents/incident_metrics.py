"""Metrics for incidents of the last weeks, and for when each GPU was last reset."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.read.metrics.contract import GpuLabels, OwnSubject
from gpu_triage.read.metrics.metric import ANY, Sample, Tier, gpu_gauge
from gpu_triage.read.metrics.rendering import samples

WINDOW_DAYS: Final = (7, 30)  # time windows over which incidents are counted

GPU_RESET_TIMESTAMP_SECONDS = gpu_gauge(
    "Unix time at which the GPU was last initialized, as far as known: boot, driver load, a card that appeared on "
    "the bus, GPUs released and reopened, a required reset no longer required, volatile ECC errors that decreased. "
    "Absent if unknown.",
    source="/proc/stat, btime; /dev/kmsg; the sampler",
)
GPU_INCIDENTS_RECENT = gpu_gauge(
    "Incidents of one kind within the last 7 or 30 days, on this board in any slot (by=board) or in this slot with "
    "any board (by=slot); absent if none. Without gpu and uuid: a slot with Xids of a GPU that the driver has not "
    "listed. Kinds: Xids that need a page or a ticket, lost, uncorrected (memory errors), reset. Without a state "
    "directory, since the exporter started.",
    labels={"pci_bus_id": ANY, "by": ("board", "slot"), "kind": ANY, "days": map(str, WINDOW_DAYS)},
    source="the sampler; the state directory",
)
GPU_INCIDENT_BOARDS_RECENT = gpu_gauge(
    "Different boards with an incident of this kind in this GPU's slot within the last 30 days: more than one points "
    "to the slot. Absent if none.",
    labels={"pci_bus_id": ANY, "kind": ANY, "days": [str(WINDOW_DAYS[-1])]},
    source="the sampler; the state directory",
)
GPU_REPAIRED_TIMESTAMP_SECONDS = gpu_gauge(
    "Unix time of the last recorded repair of the GPU or its slot: earlier incidents no longer count. Absent if none.",
    labels=("pci_bus_id", "by", "note"),
    source="the state directory",
)


@dataclass(frozen=True, slots=True)
class GpuIncidents:
    """Incidents of a GPU or slot (HOST_LABELS), its last initialization (Unix seconds), how many `boards` had any."""

    labels: GpuLabels
    pci_bus_id: str
    reset_at: float | None
    recent: Annotated[Mapping[tuple[str, str, str], int], GPU_INCIDENTS_RECENT]
    boards: Annotated[Mapping[tuple[str, str], int], GPU_INCIDENT_BOARDS_RECENT]
    repaired: Annotated[Mapping[tuple[str, str], float], GPU_REPAIRED_TIMESTAMP_SECONDS]


def render(reading: tuple[GpuIncidents, ...]) -> Iterator[Sample]:
    for gpu in reading:
        if gpu.reset_at is not None:
            yield GPU_RESET_TIMESTAMP_SECONDS.sample(gpu.reset_at, *gpu.labels)
        yield from samples(gpu, (*gpu.labels, gpu.pci_bus_id))


INCIDENTS = OwnSubject("incidents of the last weeks, and when each GPU was last reset", Tier.EVENT, render)
