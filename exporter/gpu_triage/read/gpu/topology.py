"""How GPUs are connected to each other, to the host's memory, and to network adapters."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from gpu_triage.driver.kernel.files import is_present, read_names, real_path, refuse_unmounted
from gpu_triage.driver.kernel.numa import read_numa_nodes
from gpu_triage.driver.kernel.pci_bus import numa_node_of
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device
from gpu_triage.read.metrics.contract import GpuCollector, GpuLabels, GpuRound, known
from gpu_triage.read.metrics.metric import ANY, Sample, Tier, gpu_gauge, gpu_info
from gpu_triage.read.metrics.rendering import samples

CAPABILITIES: Final = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3, "prop": 4}
"""Label to nvmlGpuP2PCapsIndex_t. pynvml's constant for the first is mistakenly a tuple."""

_COUNTED: Final = frozenset({"read", "write", "nvlink"})
"""Capabilities that jobs depend on, for which peers are counted."""

_STATUSES: Final = (
    *("ok", "chipset_not_supported", "gpu_not_supported", "topology_not_supported", "disabled_by_regkey"),
    *("not_supported", "unknown"),
)
P2P_STATUSES: Final = dict(enumerate(_STATUSES))
"""nvmlGpuP2PStatus_t to label; other values are ``unknown``."""

LEVELS: Final = {0: "internal", 10: "pix", 20: "pxb", 30: "phb", 40: "node", 50: "sys"}
"""nvmlGpuTopologyLevel_t to the term that nvidia-smi topo prints, nearest first."""

GPU_NUMA_NODE = gpu_gauge(
    "NUMA node of the GPU; -1 if the firmware does not report it.", source="sysfs numa_node of the PCI device"
)
GPU_P2P_PEERS = gpu_gauge(
    "Number of other GPUs by this GPU's direct access to them: capability (read, write, nvlink), status (ok, or why "
    "not) and level, the nearest common ancestor on the bus (empty if unknown). Combinations without a GPU are absent.",
    labels={
        "capability": [name for name in CAPABILITIES if name in _COUNTED],
        "status": P2P_STATUSES.values(),
        "level": ("", *LEVELS.values()),
    },
    source="nvmlDeviceGetP2PStatus",
)
GPU_P2P_STATUS = gpu_info(
    "Whether this GPU can reach that peer directly, by capability. Only ordered pairs refused to read or write; with "
    "--metrics.profile full every ordered pair and capability.",
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
    "Nearest common ancestor of two GPUs on the bus: internal, pix, pxb, phb, node or sys. One series per unordered "
    "pair.",
    labels={"peer_gpu": ANY, "peer_uuid": ANY, "level": LEVELS.values()},
    source="nvmlDeviceGetTopologyCommonAncestor",
)


@dataclass(frozen=True, slots=True)
class PeerReading:
    gpu: str
    uuid: str
    p2p: Mapping[str, str]
    level: str | None


@dataclass(frozen=True, slots=True)
class TopologyReading:
    numa_node: Annotated[int | None, GPU_NUMA_NODE]
    peers: tuple[PeerReading, ...]


def read_topology(gpu: GpuRound) -> TopologyReading:
    device = gpu.inquiry.device
    return TopologyReading(
        numa_node=numa_node_of(gpu.machine.sysfs, device.pci_bus_id) if device.pci_bus_id else None,
        peers=tuple(_peer(gpu.inquiry, peer) for peer in gpu.peers),
    )


def _peer(inquiry: Inquiry, peer: Device) -> PeerReading:
    answers = {name: inquiry.ask_pair("nvmlDeviceGetP2PStatus", peer, index) for name, index in CAPABILITIES.items()}
    statuses = {name: P2P_STATUSES.get(status, "unknown") for name, status in known(answers).items()}
    ancestor = inquiry.ask_pair("nvmlDeviceGetTopologyCommonAncestor", peer)
    level = None if ancestor is None else LEVELS.get(ancestor)
    return PeerReading(str(peer.index), peer.uuid, statuses, level)


def render(reading: TopologyReading, gpu: GpuLabels) -> Iterator[Sample]:
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
    "P2P, topology levels and NUMA nodes", Tier.SLOW, lambda _config: read_topology, render, asks_peers=True
)

MOST_ADAPTERS: Final = 64  # maximum adapter names published per GPU
_DEVICE: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_VIRTIO: Final = re.compile(r"virtio[0-9]+")


class PciPlace(NamedTuple):
    """Location of a PCI device, and its NUMA node; None if the firmware does not report it.

    The chain is the host bridge (``pci0000:15``), the ports below it, and the device's own address, in this order.
    """

    chain: tuple[str, ...]
    node: int | None


GPU_NIC_TOPOLOGY_INFO = gpu_info(
    "Nearest common ancestor of the GPU and a network adapter on the bus: pix (at most one PCIe switch), pxb "
    "(several), phb (the host bridge), node (another host bridge of the NUMA node) or sys. Only pix and pxb (for "
    "GPUDirect); with --metrics.profile full all.",
    labels={"nic": ANY, "level": [level for level in LEVELS.values() if level != "internal"]},
    default_samples=lambda sample: sample.labels[3] in {"pix", "pxb"},
    source="PCI paths in /sys/class/{net,infiniband}/*/device",
)


@dataclass(frozen=True, slots=True)
class NicTopologyReading:
    """Level by network adapter (``ens1f0np0``, ``mlx5_0``), sorted; those of unknown level or off PCI are missing."""

    levels: Annotated[Mapping[str, str], GPU_NIC_TOPOLOGY_INFO]


def read_nic_topology(gpu: GpuRound) -> NicTopologyReading:
    sysfs, bus_id = gpu.machine.sysfs, gpu.inquiry.device.pci_bus_id
    refuse_unmounted(sysfs)
    here = _place(sysfs, sysfs / "bus" / "pci" / "devices" / bus_id) if bus_id else None
    if here is None:
        return NicTopologyReading({})
    one_node = len(read_numa_nodes(sysfs)) <= 1
    places = known({name: _place(sysfs, device) for name, device in _adapters(sysfs)})
    levels = known({name: level_between(here, there, one_node=one_node) for name, there in places.items()})
    return NicTopologyReading(dict(islice(levels.items(), MOST_ADAPTERS)))


def level_between(here: PciPlace, there: PciPlace, *, one_node: bool) -> str | None:
    """Nearest common ancestor of two devices.

    ``pix``: at most one PCIe switch. ``pxb``: several switches, but not the host bridge. ``phb``: the host bridge.
    ``node``: the NUMA node, across two host bridges. ``sys``: only the interconnect between NUMA nodes. None if it
    depends on a node that the firmware does not report, which it need not on a host with one node.
    """
    pairs = zip(here.chain, there.chain, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if common == 1:
        return "phb"
    if common > 1:
        # A PCIe switch has an upstream port, plus a downstream port per device. Below their common port, devices of
        # one switch have one port each, and devices in one slot have none.
        ports = max(len(here.chain), len(there.chain)) - common - 1
        return "pix" if ports <= 1 else "pxb"
    if here.node is None or there.node is None:
        return "node" if one_node else None
    return "node" if here.node == there.node else "sys"


def pci_chain(path: str) -> tuple[str, ...]:
    """Parse a resolved sysfs path of a PCI device into its host bridge, ports and address.

    ``/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0`` gives the last three parts. Empty for anything but PCI devices
    and virtio devices, which are located at their PCI device; a USB adapter's distance depends on its USB bus.
    """
    parts = path.split("/")
    if _VIRTIO.fullmatch(parts[-1]):
        parts.pop()
    bridge = next((i for i, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)), len(parts))
    chain = tuple(parts[bridge:])
    return chain if len(chain) > 1 and _DEVICE.fullmatch(chain[-1]) else ()


def _adapters(sysfs: Path) -> Iterator[tuple[str, Path]]:
    names = ((kind, name) for kind in ("net", "infiniband") for name in read_names(sysfs / "class" / kind) or ())
    devices = {name: sysfs / f"class/{kind}/{name}/device" for kind, name in names}
    for name, device in sorted(devices.items()):
        # Skip virtual functions: they share the location of their physical function, and may number hundreds. In a
        # virtual machine, an assigned virtual function cannot be recognized as such.
        if is_present(device) and not is_present(device / "physfn"):
            yield name, device


def _place(sysfs: Path, device: Path) -> PciPlace | None:
    chain = pci_chain(real_path(device) or "")
    if not chain:
        return None
    node = numa_node_of(sysfs, chain[-1])
    return PciPlace(chain, node if node is not None and node >= 0 else None)


NIC_TOPOLOGY = GpuCollector(
    "topology levels of GPUs and network adapters", Tier.SLOW, lambda _config: read_nic_topology
)
