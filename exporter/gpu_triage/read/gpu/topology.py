"""P2P access between GPUs, their PCI topology levels, and NUMA nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.driver.kernel.pci_bus import numa_node_of
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device
from gpu_triage.read.metrics.contract import GpuCollector, GpuLabels
from gpu_triage.read.metrics.metric import ANY, Sample, Tier, gpu_gauge, gpu_info
from gpu_triage.read.metrics.rendering import samples
from gpu_triage.read.metrics.rounds import GpuRound

CAPABILITIES: Final = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3, "prop": 4}
"""Label to nvmlGpuP2PCapsIndex_t. pynvml's constant for the first is mistakenly a tuple."""

_COUNTED: Final = frozenset({"read", "write", "nvlink"})
"""Capabilities that jobs depend on, for which peers are counted."""

P2P_STATUSES: Final = {
    0: "ok",
    1: "chipset_not_supported",
    2: "gpu_not_supported",
    3: "topology_not_supported",
    4: "disabled_by_regkey",
    5: "not_supported",
    6: "unknown",
}
"""nvmlGpuP2PStatus_t to label; other values are ``unknown``."""

LEVELS: Final = {0: "internal", 10: "pix", 20: "pxb", 30: "phb", 40: "node", 50: "sys"}
"""nvmlGpuTopologyLevel_t to the term that nvidia-smi topo prints, nearest first."""

GPU_NUMA_NODE = gpu_gauge(
    "gpu_numa_node",
    "NUMA node that the GPU is attached to; -1 if the firmware does not report it.",
    source="sysfs numa_node of the PCI device",
)
GPU_P2P_PEERS = gpu_gauge(
    "gpu_p2p_peers",
    "Other GPUs by what the driver says of this GPU's direct access to them: capability (read, write, nvlink), status "
    "(ok, or why not) and level, the nearest common ancestor on the bus (empty where unknown). A combination that no "
    "other GPU has is absent.",
    labels={
        "capability": [name for name in CAPABILITIES if name in _COUNTED],
        "status": P2P_STATUSES.values(),
        "level": ("", *LEVELS.values()),
    },
    source="nvmlDeviceGetP2PStatus",
)
GPU_P2P_STATUS = gpu_info(
    "gpu_p2p_status",
    "Whether this GPU can reach that peer directly, by capability; level is their nearest common ancestor on the bus, "
    "empty where unknown. One series per ordered pair that is refused to read or write; with --metrics.profile full "
    "one per ordered pair and capability.",
    labels={
        "peer_gpu": ANY,
        "peer_uuid": ANY,
        "capability": CAPABILITIES,
        "status": P2P_STATUSES.values(),
        "level": ("", *LEVELS.values()),
    },
    default_samples=lambda sample: sample.labels[4] in {"read", "write"} and sample.labels[5] not in {"ok", "unknown"},
    source="nvmlDeviceGetP2PStatus, nvmlDeviceGetTopologyCommonAncestor",
)
GPU_TOPOLOGY_INFO = gpu_info(
    "gpu_topology_info",
    "Nearest common ancestor of two GPUs on the bus: internal, pix, pxb, phb, node or sys; one series per unordered "
    "pair.",
    labels={"peer_gpu": ANY, "peer_uuid": ANY, "level": LEVELS.values()},
    source="nvmlDeviceGetTopologyCommonAncestor",
)


@dataclass(frozen=True, slots=True)
class PeerReading:
    """How one GPU reaches another: P2P status by capability, and the level; missing and None where not reported."""

    gpu: str
    uuid: str
    p2p: Mapping[str, str]
    level: str | None


@dataclass(frozen=True, slots=True)
class TopologyReading:
    """Topology of one GPU, with one entry per other GPU that answers."""

    numa_node: Annotated[int | None, GPU_NUMA_NODE]
    peers: tuple[PeerReading, ...]


def read_topology(gpu: GpuRound) -> TopologyReading:
    """Read topology (nvmlDeviceGetP2PStatus, nvmlDeviceGetTopologyCommonAncestor, sysfs numa_node)."""
    device = gpu.inquiry.device
    return TopologyReading(
        numa_node=numa_node_of(gpu.machine.sysfs, device.pci_bus_id) if device.pci_bus_id else None,
        peers=tuple(_peer(gpu.inquiry, peer) for peer in gpu.peers),
    )


def _peer(inquiry: Inquiry, peer: Device) -> PeerReading:
    statuses: dict[str, str] = {}
    for capability, index in CAPABILITIES.items():
        status = inquiry.ask_pair("nvmlDeviceGetP2PStatus", peer, index)
        if status is not None:
            statuses[capability] = P2P_STATUSES.get(status, "unknown")
    ancestor = inquiry.ask_pair("nvmlDeviceGetTopologyCommonAncestor", peer)
    level = None if ancestor is None else LEVELS.get(ancestor)
    return PeerReading(str(peer.index), peer.uuid, statuses, level)


def render(reading: TopologyReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Render the samples of one GPU's topology."""
    yield from samples(reading, gpu)
    counts = Counter(
        (capability, status, peer.level or "")
        for peer in reading.peers
        for capability, status in peer.p2p.items()
        if capability in _COUNTED
    )
    for labels, count in counts.items():
        yield GPU_P2P_PEERS.sample(count, *gpu, *labels)
    for peer in reading.peers:
        for capability, status in peer.p2p.items():
            yield GPU_P2P_STATUS.sample(1, *gpu, peer.gpu, peer.uuid, capability, status, peer.level or "")
        # The level is symmetric, so only the GPU with the lower index reports it.
        if peer.level is not None and int(gpu.gpu) < int(peer.gpu):
            yield GPU_TOPOLOGY_INFO.sample(1, *gpu, peer.gpu, peer.uuid, peer.level)


TOPOLOGY = GpuCollector(
    name="topology",
    about="P2P, topology levels and NUMA nodes",
    tier=Tier.SLOW,
    reader=lambda _config: read_topology,
    render=render,
    asks_peers=True,
)
