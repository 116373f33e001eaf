"""PCI topology level between a GPU and each network adapter, in the terms of ``nvidia-smi topo -m``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from gpu_triage.driver.kernel.files import is_present, read_names, real_path
from gpu_triage.driver.kernel.mounts import refuse_unmounted
from gpu_triage.driver.kernel.numa import read_numa_nodes
from gpu_triage.driver.kernel.pci_bus import numa_node_of
from gpu_triage.read.gpu.topology import LEVELS
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.metric import ANY, Tier, gpu_info
from gpu_triage.read.metrics.rounds import GpuRound

MOST_ADAPTERS: Final = 64
"""Maximum adapter names published per GPU."""

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
    "gpu_nic_topology_info",
    "Nearest common ancestor of the GPU and a network adapter on the bus: pix (at most one PCIe switch), pxb "
    "(several), phb (the host bridge), node (another host bridge of the NUMA node) or sys. An RDMA adapter has a "
    "series under each of its names; virtual functions of this host have none. Shown for pix and pxb, the adapters to "
    "use with GPUDirect; with --metrics.profile full for all.",
    labels={"nic": ANY, "level": [level for level in LEVELS.values() if level != "internal"]},
    default_samples=lambda sample: sample.labels[3] in {"pix", "pxb"},
    source="PCI paths in /sys/class/{net,infiniband}/*/device",
)


@dataclass(frozen=True, slots=True)
class NicTopologyReading:
    """Level by name of the network adapter (``ens1f0np0``, ``mlx5_0``), sorted by name.

    Adapters that are not on the PCI bus, or with unknown level, are missing.
    """

    levels: Annotated[Mapping[str, str], GPU_NIC_TOPOLOGY_INFO]


def read_nic_topology(gpu: GpuRound) -> NicTopologyReading:
    """Read the levels of the host's adapters.

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
    """Nearest common ancestor of two devices.

    ``pix``: at most one PCIe switch. ``pxb``: several switches, but not the host bridge. ``phb``: the host bridge.
    ``node``: the NUMA node, across two host bridges. ``sys``: only the interconnect between NUMA nodes. None if it
    depends on a node that the firmware does not report, which it need not on a host with one node.
    """
    common = 0
    for mine, theirs in zip(here.chain, there.chain, strict=False):
        if mine != theirs:
            break
        common += 1
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
    found = {}
    for kind in ("net", "infiniband"):
        for name in read_names(sysfs / "class" / kind) or ():
            device = sysfs / f"class/{kind}/{name}/device"
            # Skip virtual functions: they share the location of their physical function, and may number hundreds. In a
            # virtual machine, an assigned virtual function cannot be recognized as such.
            if is_present(device) and not is_present(device / "physfn"):
                found[name] = device
    yield from sorted(found.items())


def _place(sysfs: Path, device: Path) -> PciPlace | None:
    chain = pci_chain(real_path(device) or "")
    if not chain:
        return None
    node = numa_node_of(sysfs, chain[-1])
    return PciPlace(chain, node if node is not None and node >= 0 else None)


NIC_TOPOLOGY = GpuCollector(
    "nic_topology", "topology levels of GPUs and network adapters", Tier.SLOW, lambda _config: read_nic_topology
)
