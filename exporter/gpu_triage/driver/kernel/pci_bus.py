"""The PCI bus: NVIDIA GPUs, and the links and ports of single devices, in sysfs; and the kernel's uevents."""

import logging
import re
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from gpu_triage.documents.pcie_values import TRANSFER_RATES, WIDTHS
from gpu_triage.driver.kernel import files

_BUS_ID = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
# Display controllers: VGA-compatible and 3D. NVSwitches are bridges (0x0680), a GPU's audio device is 0x0403.
_GPU_CLASSES = ("0x0300", "0x0302")
_BRIDGE_CLASS = "0x0604"
# Of emulated devices: Red Hat (QEMU), Xen, VMware, Microsoft (Hyper-V), Amazon.
_HYPERVISORS = frozenset({"0x1b36", "0x5853", "0x15ad", "0x1414", "0x1d0f"})
# Root port and root complex event collector.
_AER_SERVICES = (":pcie002", ":pcie602")
_MOST_DEVICES = 1024
"""Number of device Paths cached: creating a Path costs as much as reading a file."""
PASS_THROUGH = frozenset({"vfio-pci", "pci-stub", "xen-pciback"})
"""Drivers that hold a device for passthrough to a virtual machine."""
_LINK_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")
_GENERATIONS = {rate: generation for generation, rate in TRANSFER_RATES.items()}


@dataclass(frozen=True, slots=True)
class PciGpu:
    """One NVIDIA GPU on the bus, whether or not its driver works; `driver` is the kernel driver bound to it."""

    bus_id: str
    driver: str | None

    @property
    def passed_through(self) -> bool:
        """Whether it is reserved for a virtual machine, so that this host's NVIDIA driver cannot see it."""
        return self.driver in PASS_THROUGH


@dataclass(frozen=True, slots=True)
class PcieLink:
    """The link of a device or port; its maximum is its own, whatever its partner can do. None: not in sysfs."""

    current_generation: int | None
    current_width: int | None
    max_generation: int | None
    max_width: int | None


def read_pci_gpus(sysfs: Path, failures: list[str]) -> tuple[PciGpu, ...] | None:
    """NVIDIA GPUs on the bus, by bus ID; None if there is no PCI bus.

    Source: ``/sys/bus/pci/devices/*/{vendor,class,driver}``. Devices that cannot be read are counted in `failures`.
    """
    inquiry = files.HostInquiry(failures)
    devices = sysfs / "bus" / "pci" / "devices"
    names = inquiry.ask(lambda: files.read_names(devices))
    gpus = [inquiry.ask(partial(_nvidia_gpu, f"{devices}/{name}")) for name in names or () if _BUS_ID.fullmatch(name)]
    inquiry.finish()
    return None if names is None else tuple(gpu for gpu in gpus if gpu is not None)


def link_of(sysfs: Path, bus_id: str) -> PcieLink:
    """Link of one device; a field is None if its file is missing, unreadable or invalid."""
    device = device_directory(sysfs, bus_id)
    return PcieLink(
        current_generation=parse_link_speed(files.text_of(device / "current_link_speed")),
        current_width=parse_link_width(files.text_of(device / "current_link_width")),
        max_generation=parse_link_speed(files.text_of(device / "max_link_speed")),
        max_width=parse_link_width(files.text_of(device / "max_link_width")),
    )


def port_above(sysfs: Path, bus_id: str) -> str | None:
    """Bus ID of the upstream port, the other end of the device's link."""
    device = device_directory(sysfs, bus_id)
    # The symlink contains the upstream bridges: ../../../devices/pci0000:60/0000:60:01.0/0000:65:00.0.
    port = PurePosixPath(files.target_of(device)).parent.name
    is_bridge = _BUS_ID.fullmatch(port) and files.text_of(device_directory(sysfs, port) / "class").startswith(
        _BRIDGE_CLASS
    )
    return port.lower() if is_bridge else None


def is_emulated(sysfs: Path, port: str) -> bool:
    """Whether a port is a hypervisor's, by its vendor: what it supports is nothing of a slot."""
    return files.text_of(device_directory(sysfs, port) / "vendor").strip() in _HYPERVISORS


def handles_aer(sysfs: Path, bus_id: str | None = None) -> bool | None:
    """Whether the kernel itself handles PCIe errors (AER) of the root port above a device, or of any root port.

    False if the firmware retained control of AER (``_OSC``) or a hypervisor owns the ports: then the kernel's error
    counters always stay at 0. None if unknown. Source: a port's AER service is a device
    ``<port>:pcie<type and service>`` (``get_descriptor_id`` of drivers/pci/pcie/portdrv.h).
    """
    services = sysfs / "bus" / "pci_express" / "devices"
    names = [name for name in files.names_in(services) if name.endswith(_AER_SERVICES)]
    if not files.is_present(services):
        return None
    if bus_id is None:
        return bool(names)
    path = files.target_of(device_directory(sysfs, bus_id))
    if not path:
        return None
    ports = [part for part in PurePosixPath(path).parts[:-1] if _BUS_ID.fullmatch(part)]
    return f"{ports[0]}{_AER_SERVICES[0]}" in names if ports else False


def is_nvidias(vendor: str) -> bool:
    return vendor.strip() == "0x10de"


def is_bus_id(name: str) -> bool:
    return _BUS_ID.fullmatch(name) is not None


def numa_node_of(sysfs: Path, bus_id: str) -> int | None:
    """NUMA node of a device: -1 if the firmware does not report it; None if it cannot be read."""
    node = files.if_readable(files.read_int, device_directory(sysfs, bus_id) / "numa_node")
    return node if node is not None and node >= -1 else None


def normalize_bus_id(bus_id: str) -> str:
    """NVML's bus ID as in sysfs: ``0000:65:00.0`` for ``00000000:65:00.0``; Intel VMD's domains (``10000``) stay."""
    match = _BUS_ID.fullmatch(bus_id)
    if match is None:
        raise ValueError(f"{bus_id[:40]!r} is no PCI bus id")
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def parse_link_speed(text: str) -> int | None:
    """PCIe generation of a speed such as ``16.0 GT/s PCIe`` or ``16 GT/s``; None if unknown."""
    match = _LINK_SPEED.match(text.strip())
    return _GENERATIONS.get(float(match[1])) if match else None


def parse_link_width(text: str) -> int | None:
    """Number of lanes from text such as ``16``; None for invalid PCIe widths (``Unknown``, 0, 63, 255)."""
    stripped = text.strip()
    width = int(stripped) if re.fullmatch(r"[0-9]{1,3}", stripped) else 0
    # A link that is down reads 0, a device that fell off the bus 63 (six 1 bits), a virtual device 255.
    return width if width in WIDTHS else None


@lru_cache(_MOST_DEVICES)
def device_directory(sysfs: Path, bus_id: str) -> Path:
    return sysfs / f"bus/pci/devices/{bus_id}"


def _nvidia_gpu(device: str) -> PciGpu | None:
    # Most devices are not NVIDIA's. They cost one read each and no Path, which would double the cost.
    if not is_nvidias(files.read_text(f"{device}/vendor", limit=4096) or ""):
        return None
    if not (files.read_text(f"{device}/class", limit=4096) or "").startswith(_GPU_CLASSES):
        return None
    driver = files.read_link(f"{device}/driver")
    bus_id = device.rpartition("/")[2].lower()
    return PciGpu(bus_id=bus_id, driver=driver.rpartition("/")[2] if driver else None)


log = logging.getLogger(__name__)


class BusEvents:
    """Listens for uevents of PCI devices (netlink, the kernel's own multicast group), which trigger an early scan.

    udev's multicast group is not used: without udevd, as in most containers, it is silent without an error.
    """

    def __init__(self) -> None:
        self._monitor = _listen()

    def seen(self) -> bool:
        """Whether a PCI device was added, removed or changed since the last call. Never blocks, never raises."""
        happened = False
        try:
            while self._monitor is not None and self._monitor.poll(timeout=0) is not None:
                happened = True
        except OSError as error:
            # The kernel drops events when the buffer is full: something happened, but what is unknown.
            log.debug("PCI events were dropped: %s", error)
            happened = True
        return happened


def _listen() -> Any | None:
    try:
        # Imported here: without libudev the import fails, and periodic scans must suffice.
        import pyudev  # noqa: PLC0415

        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        monitor.filter_by("pci")
        monitor.start()
    except (ImportError, OSError) as error:
        log.info("no PCI events on this host, the bus is scanned periodically: %s", error)
        return None
    return monitor
