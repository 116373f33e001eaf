"""How near each network adapter is to a GPU on the PCI bus, as ``nvidia-smi topo -m`` words it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from gpu_triage.gpu.topology import LEVELS
from gpu_triage.host.numa import read_numa_nodes
from gpu_triage.kernel.files import is_present, read_names
from gpu_triage.kernel.mounts import refuse_unmounted
from gpu_triage.kernel.pci_bus import numa_node_of
from gpu_triage.subjects.contract import GpuCollector
from gpu_triage.subjects.metric import ANY, Tier, gpu_info
from gpu_triage.subjects.rounds import GpuRound

MOST_ADAPTERS: Final = 64
"""Names of adapters that are published for each GPU."""

_DEVICE: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_VIRTIO: Final = re.compile(r"virtio[0-9]+")


class PciPlace(NamedTuple):
    """Where a PCI device is.

    Attributes:
        chain: the host bridge (``pci0000:15``), the ports below it, and the device's own address, top first.
        node: its NUMA node; None when the firmware does not say.
    """

    chain: tuple[str, ...]
    node: int | None


GPU_NIC_TOPOLOGY_INFO = gpu_info(
    "gpu_nic_topology_info",
    "Nearest common ancestor of the GPU and a network adapter on the bus: pix (at most one PCIe switch), pxb "
    "(several), phb (the host bridge), node (another host bridge of the NUMA node) or sys. An RDMA adapter has a "
    "series under each of its names; virtual functions of this host have none. Shown for pix and pxb, the adapters to "
    "use with GPUDirect; with --metrics.profile full for all.",
    labels={"nic": ANY, "level": [level for level in LEVELS.values() if level != "internal"]},
    brief=lambda sample: sample.labels[3] in {"pix", "pxb"},
    source="PCI paths in /sys/class/{net,infiniband}/*/device",
)


@dataclass(frozen=True, slots=True)
class NicTopologyReading:
    """Level by name of the network adapter (``ens1f0np0``, ``mlx5_0``), in the order of the names.

    An adapter that is not on the PCI bus, or whose level is not known, is left out.
    """

    levels: Annotated[Mapping[str, str], GPU_NIC_TOPOLOGY_INFO]


def read_nic_topology(gpu: GpuRound) -> NicTopologyReading:
    """Levels of the host's adapters.

    Source: ``/sys/class/net/*/device``, ``/sys/class/infiniband/*/device`` and ``/sys/bus/pci/devices``

    Raises:
        HostReadFailed: adapters or NUMA nodes cannot be read, or no sysfs is mounted.
    """
    sysfs, bus_id = gpu.machine.sysfs, gpu.inquiry.device.pci_bus_id
    refuse_unmounted(sysfs)
    here = _place(sysfs, sysfs / "bus" / "pci" / "devices" / bus_id) if bus_id else None
    if here is None:
        return NicTopologyReading({})
    one_node = len(read_numa_nodes(sysfs)) <= 1
    levels: dict[str, str] = {}
    for name, device in _adapters(sysfs):
        there = _place(sysfs, device)
        level = level_between(here, there, one_node=one_node) if there else None
        if level is not None and len(levels) < MOST_ADAPTERS:
            levels[name] = level
    return NicTopologyReading(levels)


def level_between(here: PciPlace, there: PciPlace, *, one_node: bool) -> str | None:
    """The nearest thing two devices have in common.

    ``pix``: one PCIe switch at most. ``pxb``: several switches, the host bridge not among them. ``phb``: the host
    bridge. ``node``: the NUMA node, by way of two host bridges. ``sys``: nothing nearer than what connects the
    nodes. None where that depends on a node which the firmware does not tell.

    Args:
        here: one device.
        there: the other.
        one_node: whether the host lists no second NUMA node, so that no firmware need tell.
    """
    common = 0
    for mine, theirs in zip(here.chain, there.chain, strict=False):
        if mine != theirs:
            break
        common += 1
    if common == 1:
        return "phb"
    if common > 1:
        # A switch is a port towards the host with a port for each device below it: below the port they share,
        # devices of one switch have one port of their own each, and devices of one slot have none.
        ports = max(len(here.chain), len(there.chain)) - common - 1
        return "pix" if ports <= 1 else "pxb"
    if here.node is None or there.node is None:
        return "node" if one_node else None
    return "node" if here.node == there.node else "sys"


def pci_chain(path: str) -> tuple[str, ...]:
    """The host bridge, ports and address of the PCI device behind a resolved path of sysfs.

    ``/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0`` gives the last three parts. Empty for what is not a PCI
    device: a USB adapter below one is as far from a GPU as its bus makes it, a virtio one is where its device is.
    """
    parts = path.split("/")
    if _VIRTIO.fullmatch(parts[-1]):
        parts.pop()
    bridge = next((i for i, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)), len(parts))
    chain = tuple(parts[bridge:])
    return chain if len(chain) > 1 and _DEVICE.fullmatch(chain[-1]) else ()


def _adapters(sysfs: Path) -> Iterator[tuple[str, Path]]:
    """Names of physical adapters, each with the link to its device."""
    found = {}
    for kind in ("net", "infiniband"):
        for name in read_names(sysfs / "class" / kind) or ():
            device = sysfs / f"class/{kind}/{name}/device"
            # A virtual function is where its physical one is, and there may be hundreds. In a virtual machine
            # that was given one, nothing shows that it is virtual.
            if is_present(device) and not is_present(device / "physfn"):
                found[name] = device
    yield from sorted(found.items())


def _place(sysfs: Path, device: Path) -> PciPlace | None:
    try:
        chain = pci_chain(str(device.resolve(strict=True)))
    except (OSError, RuntimeError):  # RuntimeError: a loop of links, before Python 3.13
        return None
    if not chain:
        return None
    node = numa_node_of(sysfs, chain[-1])
    return PciPlace(chain, node if node is not None and node >= 0 else None)


NIC_TOPOLOGY = GpuCollector(
    name="nic_topology",
    about="topology levels of GPUs and network adapters",
    tier=Tier.SLOW,
    reader=lambda _config: read_nic_topology,
)
