"""Line rates of the links of GPUs, as read: PCIe generation and width, NVLink links by what they lead to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.read.gpu.nvlink import GPU_NVLINK_BANDWIDTH_BYTES_PER_SECOND, GPU_NVLINK_LINKS, GPU_NVLINK_LINKS_UP
from gpu_triage.read.gpu.pcie import (
    GPU_PCIE_LINK_DEVICE_MAX_GENERATION,
    GPU_PCIE_LINK_EXPECTED_GENERATION,
    GPU_PCIE_LINK_EXPECTED_WIDTH,
    GPU_PCIE_LINK_GENERATION,
    GPU_PCIE_LINK_SLOT_MAX_GENERATION,
    GPU_PCIE_LINK_WIDTH,
)
from gpu_triage.read.host.pcie_uplinks import GPU_HOST_PCIE_UPLINK_INFO, bytes_per_second, devices_behind


class Link(NamedTuple):
    """A link that a path uses."""

    owner: str  # ``GPU 3``, or the switch below an uplink
    words: str  # ``PCIe 4.0 x16``
    line_rate: float  # bytes per second and direction


def pcie_link(gpu: GpuEvidence) -> Link | None:
    """Return the GPU's PCIe link; None if it is not reported.

    An idle GPU lowers its generation, so that of an idle link is the one to reach under load.
    """
    width = gpu.last(GPU_PCIE_LINK_WIDTH) or gpu.last(GPU_PCIE_LINK_EXPECTED_WIDTH)
    now = gpu.last(GPU_PCIE_LINK_GENERATION)
    limits = (
        GPU_PCIE_LINK_EXPECTED_GENERATION,
        GPU_PCIE_LINK_DEVICE_MAX_GENERATION,
        GPU_PCIE_LINK_SLOT_MAX_GENERATION,
    )
    known = [limit for spec in limits if (limit := gpu.last(spec)) is not None]
    generation = now if gpu.recent.loaded or not known else min(known)
    if width is None or generation is None:
        return None
    return Link(
        f"GPU {gpu.gpu}", f"PCIe {generation:.0f}.0 x{width:.0f}", bytes_per_second(int(generation), int(width))
    )


@dataclass(frozen=True, slots=True)
class Uplink:
    """The link above a PCIe switch, which the GPUs behind it share."""

    bridge: str
    words: str
    line_rate: float
    behind: frozenset[str]  # keys of GPUs

    def share_of(self, group: tuple[GpuEvidence, ...], *, stays_below: bool) -> Link | None:
        """Return what each GPU of a group gets of it; None if the group's data do not pass it.

        With peer access (`stays_below`), data between GPUs behind one switch stay below it, and a ring crosses its
        uplink once. Through host memory, the data of each GPU behind it pass it.
        """
        count = sum(gpu.key in self.behind for gpu in group)
        if not count or (stays_below and count == len(group)):
            return None
        flows = 1 if stays_below else count
        shared = f", shared by {flows} GPUs" if flows > 1 else ""
        return Link(f"the uplink of switch {self.bridge}", f"{self.words}{shared}", self.line_rate / flows)


def uplinks_of(host: HostEvidence) -> tuple[Uplink, ...]:
    """Return the links above the host's PCIe switches; at rest, a link's generation is the one to reach under load."""
    found = []
    for labels in host.labels_of(GPU_HOST_PCIE_UPLINK_INFO):
        behind = devices_behind(labels)
        gpus = [gpu for gpu in host.answering if gpu.pci_bus_id in behind]
        loaded = any(gpu.recent.loaded for gpu in gpus)
        generation, width = int(labels["generation" if loaded else "expected_generation"]), int(labels["width"])
        words, rate = f"PCIe {generation}.0 x{width}", bytes_per_second(generation, width)
        found.append(Uplink(labels["bridge"], words, rate, frozenset(gpu.key for gpu in gpus)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Mesh:
    """NVLink line rates by a GPU's key: to each other GPU directly, and to NVSwitches or an unnamed far end."""

    direct: Mapping[str, Mapping[str, float]]
    switched: Mapping[str, float]
    links: Mapping[str, tuple[float, float]]  # links that are up, and all that lead somewhere

    @classmethod
    def of(cls, host: HostEvidence, gpus: tuple[GpuEvidence, ...]) -> Mesh:
        """Return the mesh of these GPUs; links to other GPUs of the host are known as such."""
        at = {gpu.pci_bus_id: gpu.key for gpu in host.gpus if gpu.pci_bus_id}
        direct: dict[str, dict[str, float]] = {gpu.key: {} for gpu in gpus}
        switched = dict.fromkeys(direct, 0.0)
        for gpu in gpus:
            for series in gpu.series(GPU_NVLINK_BANDWIDTH_BYTES_PER_SECOND):
                peer = at.get(series.labels["far_end"])
                if peer is None:
                    switched[gpu.key] += series.last
                else:
                    direct[gpu.key][peer] = series.last
        links = {gpu.key: (gpu.last(GPU_NVLINK_LINKS_UP) or 0.0, gpu.last(GPU_NVLINK_LINKS) or 0.0) for gpu in gpus}
        return cls(direct, switched, links)

    def slowest(self, group: tuple[GpuEvidence, ...]) -> Link | None:
        """Return the GPU of a group with the lowest rate to the others; None if a GPU reports none.

        Links to a switch serve any peer. Of links that lead to GPUs, only those into the group count.
        """
        links = [self._link(gpu, group) for gpu in group]
        known = [link for link in links if link is not None]
        return min(known, key=lambda link: link.line_rate) if len(known) == len(group) else None

    def _link(self, gpu: GpuEvidence, group: tuple[GpuEvidence, ...]) -> Link | None:
        direct, switched = self.direct[gpu.key], self.switched[gpu.key]
        members = {other.key for other in group}
        rate = switched if not direct else sum(each for peer, each in direct.items() if peer in members)
        up, lead_somewhere = self.links[gpu.key]
        if not rate or not up:
            return None
        total = switched + sum(direct.values())
        # Of links that lead to GPUs, others than those into the group are not missing.
        count, of = round(up * rate / total), "" if direct or up == lead_somewhere else f" of {lead_somewhere:.0f}"
        return Link(f"GPU {gpu.gpu}", f"{count}{of} links of {total / up / 1e9:.1f} GB/s", rate)
