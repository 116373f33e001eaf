"""Who reaches whom directly, over what, and which NUMA node a GPU hangs off."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpu_triage.hardware.nvml import Device
from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.pci_bus import numa_node_of
from gpu_triage.hardware.rounds import GpuRound

CAPABILITIES: Final = MappingProxyType({"read": 0, "write": 1, "nvlink": 2, "atomics": 3, "prop": 4})
"""Label to nvmlGpuP2PCapsIndex_t. pynvml's constant for the first is a tuple by mistake."""

P2P_STATUSES: Final = MappingProxyType(
    {
        0: "ok",
        1: "chipset_not_supported",
        2: "gpu_not_supported",
        3: "topology_not_supported",
        4: "disabled_by_regkey",
        5: "not_supported",
    }
)
"""nvmlGpuP2PStatus_t to label; any other is ``unknown``."""

LEVELS: Final = MappingProxyType({0: "internal", 10: "pix", 20: "pxb", 30: "phb", 40: "node", 50: "sys"})
"""nvmlGpuTopologyLevel_t to the word nvidia-smi topo prints."""


@dataclass(frozen=True, slots=True)
class PeerReading:
    """How one GPU reaches another.

    Attributes:
        gpu: NVML index of the peer, as text.
        uuid: of the peer.
        p2p: pairs of capability (read, write, nvlink, atomics, prop) and status (ok, …); not reported: left out.
        level: nearest common ancestor (pix, …, sys); None where not reported, and for the half of the pairs
            that the peer publishes.
    """

    gpu: str
    uuid: str
    p2p: tuple[tuple[str, str], ...]
    level: str | None


@dataclass(frozen=True, slots=True)
class TopologyReading:
    """One GPU's place on the host.

    Attributes:
        numa_node: of the PCI device; -1 when firmware does not say, None when sysfs has no word of it.
        peers: one entry per other GPU that answers.
    """

    numa_node: int | None
    peers: tuple[PeerReading, ...]


def read_topology(gpu: GpuRound) -> TopologyReading:
    """Topology (nvmlDeviceGetP2PStatus, nvmlDeviceGetTopologyCommonAncestor, sysfs numa_node)."""
    device = gpu.inquiry.device
    return TopologyReading(
        numa_node=numa_node_of(gpu.machine.sysfs, device.pci_bus_id) if device.pci_bus_id else None,
        peers=tuple(_peer(gpu.inquiry, peer) for peer in gpu.peers),
    )


def _peer(inquiry: Inquiry, peer: Device) -> PeerReading:
    statuses = []
    for capability, index in CAPABILITIES.items():
        status = inquiry.ask_pair("nvmlDeviceGetP2PStatus", peer, index)
        if status is not None:
            statuses.append((capability, P2P_STATUSES.get(status, "unknown")))
    level = None
    if inquiry.device.index < peer.index:
        ancestor = inquiry.ask_pair("nvmlDeviceGetTopologyCommonAncestor", peer)
        level = None if ancestor is None else LEVELS.get(ancestor)
    return PeerReading(str(peer.index), peer.uuid, tuple(statuses), level)
