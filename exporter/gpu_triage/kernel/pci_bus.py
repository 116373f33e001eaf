"""The PCI bus as sysfs shows it: which NVIDIA GPUs are on it, and the links and ports of single devices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gpu_triage.errors import HostReadFailed
from gpu_triage.kernel.files import is_present, names_in, read_int, read_link, read_names, read_text, text_of
from gpu_triage.kernel.inquiry import HostInquiry
from gpu_triage.pcie import TRANSFER_RATES, WIDTHS

if TYPE_CHECKING:
    from pathlib import Path

_BUS_ID = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_NVIDIA = "0x10de"
# Display controllers: VGA compatible and 3D. NVSwitches are bridges (0x0680), a card's sound is 0x0403.
_GPU_CLASSES = ("0x0300", "0x0302")
_BRIDGE_CLASS = "0x0604"
# Of a root port, and of a root complex event collector.
_AER_SERVICES = (":pcie002", ":pcie602")
_MOST_DEVICES = 1024
"""Whose folders are remembered by name: making a Path costs as much as reading a file."""
_PASS_THROUGH = frozenset({"vfio-pci", "pci-stub", "xen-pciback"})
_LINK_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")
_GENERATIONS = {rate: generation for generation, rate in TRANSFER_RATES.items()}


@dataclass(frozen=True, slots=True)
class PciGpu:
    """One NVIDIA GPU on the bus, whether or not its driver works.

    Attributes:
        bus_id: as sysfs writes it, ``0000:65:00.0``.
        driver: kernel driver bound to it (``nvidia``, ``vfio-pci``, ``nouveau``), None when there is none.
    """

    bus_id: str
    driver: str | None

    @property
    def lent(self) -> bool:
        """Whether it is set aside for a virtual machine, so that the NVIDIA driver of this host cannot show it."""
        return self.driver in _PASS_THROUGH


@dataclass(frozen=True, slots=True)
class PcieLink:
    """The link of one device or port towards its partner; None for what sysfs does not know.

    Attributes:
        current_generation: now.
        current_width: lanes now.
        max_generation: highest the device can do, whatever its partner can.
        max_width: most lanes the device can use, whatever its partner can.
    """

    current_generation: int | None
    current_width: int | None
    max_generation: int | None
    max_width: int | None


def read_pci_gpus(sysfs: Path, failures: list[str]) -> tuple[PciGpu, ...] | None:
    """NVIDIA GPUs on the bus, by bus id; None when there is no PCI bus to look at.

    Source: ``/sys/bus/pci/devices/*/{vendor,class,driver}``. A device that cannot be read costs only itself.

    Args:
        sysfs: root of sysfs.
        failures: names of what could not be read are appended to it, one entry a failure.

    Raises:
        HostReadFailed: the bus cannot be read.
    """
    inquiry = HostInquiry(failures)
    devices = sysfs / "bus" / "pci" / "devices"
    names = inquiry.ask(lambda: read_names(devices))
    gpus = [inquiry.ask(partial(_nvidia_gpu, f"{devices}/{name}")) for name in names or () if _BUS_ID.fullmatch(name)]
    inquiry.finish()
    return None if names is None else tuple(gpu for gpu in gpus if gpu is not None)


def link_of(sysfs: Path, bus_id: str) -> PcieLink:
    """The link of one device; every part None that is absent, unreadable or not understood.

    Source: ``{current,max}_link_{speed,width}`` under ``/sys/bus/pci/devices/<bus_id>``.

    Args:
        sysfs: root of sysfs.
        bus_id: as sysfs writes it.
    """
    device = device_directory(sysfs, bus_id)
    return PcieLink(
        current_generation=parse_link_speed(text_of(device / "current_link_speed")),
        current_width=parse_link_width(text_of(device / "current_link_width")),
        max_generation=parse_link_speed(text_of(device / "max_link_speed")),
        max_width=parse_link_width(text_of(device / "max_link_width")),
    )


def port_above(sysfs: Path, bus_id: str) -> str | None:
    """Bus id of the port the device is plugged into: the other end of its link.

    None when there is none to see, as in most virtual machines, where the device hangs off the host bridge.

    Args:
        sysfs: root of sysfs.
        bus_id: as sysfs writes it.
    """
    device = device_directory(sysfs, bus_id)
    try:
        # The link leads through the bridges above: ../../../devices/pci0000:60/0000:60:01.0/0000:65:00.0.
        port = PurePosixPath(read_link(device) or "").parent.name
    except HostReadFailed:
        return None
    is_bridge = _BUS_ID.fullmatch(port) and text_of(device_directory(sysfs, port) / "class").startswith(_BRIDGE_CLASS)
    return port.lower() if is_bridge else None


def handles_aer(sysfs: Path, bus_id: str | None = None) -> bool | None:
    """Whether the kernel itself handles the PCIe errors of the root port above a device, or of any.

    False where the firmware kept that to itself (``_OSC``), or a hypervisor has the ports: the kernel's counters of
    errors stay at 0 then, whatever happens. None where that is not known. Source: the service AER of a port is a device
    ``<port>:pcie<type and service>`` (``get_descriptor_id`` of drivers/pci/pcie/portdrv.h).

    Args:
        sysfs: root of sysfs.
        bus_id: of the device; None for any.
    """
    services = sysfs / "bus" / "pci_express" / "devices"
    names = [name for name in names_in(services) if name.endswith(_AER_SERVICES)]
    if not is_present(services):
        return None
    if bus_id is None:
        return bool(names)
    try:
        path = PurePosixPath(read_link(device_directory(sysfs, bus_id)) or "")
    except HostReadFailed:
        return None
    ports = [part for part in path.parts[:-1] if _BUS_ID.fullmatch(part)]
    return f"{ports[0]}{_AER_SERVICES[0]}" in names if ports else False


def is_bus_id(name: str) -> bool:
    """Whether a name in sysfs is that of a PCI device."""
    return _BUS_ID.fullmatch(name) is not None


def numa_node_of(sysfs: Path, bus_id: str) -> int | None:
    """NUMA node of one device: -1 when the firmware does not say; None when it cannot be read.

    Args:
        sysfs: root of sysfs.
        bus_id: as sysfs writes it.
    """
    try:
        node = read_int(device_directory(sysfs, bus_id) / "numa_node")
    except HostReadFailed:
        return None
    return node if node is not None and node >= -1 else None


def normalise_bus_id(bus_id: str) -> str:
    """A bus id as sysfs writes it, from NVML's: ``00000000:65:00.0`` gives ``0000:65:00.0``.

    Domains of more than four digits stay (``10000:01:00.0``, behind Intel VMD).

    Raises:
        ValueError: it is no PCI bus id.
    """
    match = _BUS_ID.fullmatch(bus_id)
    if match is None:
        raise ValueError(f"{bus_id[:40]!r} is no PCI bus id")
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def parse_link_speed(text: str) -> int | None:
    """PCIe generation of a speed such as ``16.0 GT/s PCIe`` or ``16 GT/s``; None for any other."""
    match = _LINK_SPEED.match(text.strip())
    return _GENERATIONS.get(float(match[1])) if match else None


def parse_link_width(text: str) -> int | None:
    """Lanes of a width such as ``16``; None for what no PCIe link can have (``Unknown``, 0, 63, 255)."""
    stripped = text.strip()
    width = int(stripped) if re.fullmatch(r"[0-9]{1,3}", stripped) else 0
    # A link that is down reads 0, a device that fell off the bus 63 (six bits of ones) and a virtual one 255.
    return width if width in WIDTHS else None


@lru_cache(_MOST_DEVICES)
def device_directory(sysfs: Path, bus_id: str) -> Path:
    """Where sysfs has the files of a device, whether or not it exists.

    Args:
        sysfs: root of sysfs.
        bus_id: as sysfs writes it.
    """
    return sysfs / f"bus/pci/devices/{bus_id}"


def _nvidia_gpu(device: str) -> PciGpu | None:
    # Most devices of a host are not NVIDIA's: they cost one read each, and no Path, which would cost as much again.
    if (read_text(f"{device}/vendor", limit=4096) or "").strip() != _NVIDIA:
        return None
    if not (read_text(f"{device}/class", limit=4096) or "").startswith(_GPU_CLASSES):
        return None
    driver = read_link(f"{device}/driver")
    bus_id = device.rpartition("/")[2].lower()
    return PciGpu(bus_id=bus_id, driver=driver.rpartition("/")[2] if driver else None)
