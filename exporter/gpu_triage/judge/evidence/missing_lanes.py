"""Lanes that a PCIe link lacks, and whether it lost them or never had them.

On a board that splits the lanes of one slot over two, card and slot claim 16 lanes and the CPU gives 8 to each. Cloud
instances do the same: card and driver of an A10G or a T4 claim 16, and each has 8. Errors of the
link, and the lanes that it had earlier in this boot, tell the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from gpu_triage.documents.pcie_values import BUILT_LANES
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.read.gpu.pcie import (
    GPU_PCIE_AER_ERRORS_TOTAL,
    GPU_PCIE_LINK_EXPECTED_WIDTH,
    GPU_PCIE_LINK_EXPECTED_WIDTH_DECLARED,
    GPU_PCIE_LINK_WIDTH,
    GPU_PCIE_REPLAYS_TOTAL,
)


def many_replays(gpu: GpuEvidence) -> float | None:
    """Return how often the link replayed packets lately; None unless that is too often."""
    return gpu.rose(GPU_PCIE_REPLAYS_TOTAL, gpu.limit("pcie.replays", "count"))


def aer_errors(gpu: GpuEvidence) -> Iterator[tuple[float, str, float]]:
    """Yield link errors that matter: how many, which, and over how many seconds."""
    if not gpu.risen(GPU_PCIE_AER_ERRORS_TOTAL, thresholds.SEVERE_AER_SECONDS).amount:
        return
    for device in ("gpu", "port"):
        most = gpu.limit("pcie.aer", "count")
        correctable = gpu.rose(GPU_PCIE_AER_ERRORS_TOTAL, most, device=device, severity="correctable")
        if correctable is not None:
            yield correctable, f"correctable on the {device}", thresholds.EVENTS_REMEMBERED_SECONDS
        for severity in ("nonfatal", "fatal"):
            seconds = thresholds.SEVERE_AER_SECONDS
            errors = gpu.risen(GPU_PCIE_AER_ERRORS_TOTAL, seconds, device=device, severity=severity).amount
            if errors > 0:
                yield errors, f"{severity} on the {device}", seconds


def has_errors(gpu: GpuEvidence) -> bool:
    return many_replays(gpu) is not None or any(True for _ in aer_errors(gpu))


class Shortage(Enum):
    """How a link came to have fewer lanes than card and slot claim."""

    LOST = "lost"  # it, its siblings or the baseline had more, or it has errors
    BUILT = "built"  # it and all its siblings have had these since boot, and they are enough
    FROM_BOOT = "from boot"  # it has had no more since boot, and nothing explains it


class MissingLanes(NamedTuple):
    """A link with fewer lanes than it should have."""

    kind: Shortage
    lanes: float
    expected: float
    siblings: tuple[GpuEvidence, ...]  # other GPUs of the host with links that claim as much

    @property
    def text(self) -> str:
        return f"{self.lanes:.0f} of {self.expected:.0f} lanes"


def missing_lanes(host: HostEvidence, gpu: GpuEvidence) -> MissingLanes | None:
    """Return what the link lacks; None unless it lacked lanes throughout the last part of the window."""
    width, expected = gpu.recent.one(GPU_PCIE_LINK_WIDTH), gpu.last(GPU_PCIE_LINK_EXPECTED_WIDTH)
    if width is None or expected is None or width.high >= expected:
        return None
    # A GPU that does not respond has no readings, but had a link that is known.
    siblings = tuple(
        other
        for other in host.gpus
        if other.key != gpu.key
        and (other.last(GPU_PCIE_LINK_EXPECTED_WIDTH) == expected if other.up else widest(other) > 0)
    )
    return MissingLanes(_kind(gpu, width.high, siblings), width.last, expected, siblings)


def _kind(gpu: GpuEvidence, lanes: float, siblings: tuple[GpuEvidence, ...]) -> Shortage:
    if gpu.last(GPU_PCIE_LINK_EXPECTED_WIDTH_DECLARED) or widest(gpu) > lanes or has_errors(gpu):
        return Shortage.LOST
    if any(gpu.name and other.name == gpu.name and widest(other) > lanes for other in siblings):
        return Shortage.LOST
    theirs = [widest(other) for other in siblings]
    shared = theirs and max(theirs) == lanes
    return Shortage.BUILT if shared and lanes >= BUILT_LANES else Shortage.FROM_BOOT


def widest(gpu: GpuEvidence) -> float:
    """Return the most lanes that the link has had since boot, as far as was seen; 0 if not reported."""
    width = gpu.one(GPU_PCIE_LINK_WIDTH)
    return max(0.0 if width is None else width.high, gpu.memory.widest.of(gpu.key, gpu.pci_bus_id))
