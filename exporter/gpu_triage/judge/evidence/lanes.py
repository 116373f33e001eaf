"""Lanes that a PCIe link lacks, and whether it lost them or never had them.

On a board that splits the lanes of one slot over two, card and slot claim 16 lanes and the CPU gives 8 to each. Cloud
instances do the same: card and driver of an A10G or a T4 claim 16, and each has 8.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gpu_triage.documents.pcie import BUILT_LANES
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.link_errors import has_errors
from gpu_triage.read.gpu.pcie import (
    GPU_PCIE_LINK_EXPECTED_WIDTH,
    GPU_PCIE_LINK_EXPECTED_WIDTH_DECLARED,
    GPU_PCIE_LINK_WIDTH,
)


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
