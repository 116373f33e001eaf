"""Parses ``lspci -v`` to ``-vvv`` for NVIDIA devices and the ports above them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage.driver.kernel.pci_bus import normalize_bus_id, parse_link_speed, parse_link_width

_MOST_DEVICES: Final = 4096
_DEVICE: Final = re.compile(
    r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:\[]{3,60}?)(?: \[([0-9a-f]{4})\])?: (.{0,300})"
)
_IDS: Final = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]")
_LINK: Final = re.compile(r"\s+Lnk(Cap|Sta):\s.*?Speed ([0-9.]+ ?GT/s|unknown)[^,]*, Width x(\d+)")
_BUSES: Final = re.compile(r"\s+Bus: primary=[0-9a-f]{2}, secondary=([0-9a-f]{2})")
_DRIVER: Final = re.compile(r"\s+Kernel driver in use: ([\w-]{1,40})")
_NODE: Final = re.compile(r"\s+NUMA node: (-?\d{1,4})")
_GPU_CLASSES: Final = ("0300", "0302")
_GPU_WORDS: Final = ("VGA compatible controller", "3D controller")
_NVIDIA: Final = "10de"
_ENDINGS: Final = ("controller", "bridge", "Bridge", "device", "memory", "peripheral", "interface", "accelerators")


@dataclass(slots=True)
class PciDevice:
    """One PCI device; attributes missing from the listing are None or ""."""

    bus_id: str  # in sysfs notation
    model: str  # name in the PCI database
    is_gpu: bool = False  # whether it is an NVIDIA GPU
    is_dead: bool = False  # whether its configuration space reads all ones, like that of a device that fell off the bus
    secondary: str = ""  # for a port, the bus below it
    driver: str = ""  # the kernel driver in use; "none" if lspci -k shows none, "" without -k
    numa_node: int | None = None
    max_generation: int | None = None
    max_width: int | None = None
    generation: int | None = None
    width: int | None = None


class LspciParser:
    """Parses an lspci listing line by line; `devices` are those found, by bus id."""

    KIND: Final = "lspci"

    def __init__(self) -> None:
        self.devices: dict[str, PciDevice] = {}
        self._device = PciDevice("", "")  # which the next lines describe

    def start(self, line: str) -> bool:
        if (found := _DEVICE.match(line)) is None:
            return False
        address, kind, class_id, rest = found.groups()
        ids = _IDS.search(rest)
        is_nvidia = ids[1] == _NVIDIA if ids is not None else "NVIDIA" in rest or "nVidia" in rest
        is_display = class_id in _GPU_CLASSES if class_id else kind in _GPU_WORDS
        if ids is None and class_id is None and not kind.endswith(_ENDINGS):
            return False
        bus_id = normalize_bus_id(address if address.count(":") > 1 else f"0000:{address}")
        new = PciDevice(bus_id, _model(rest), is_nvidia and is_display, "(rev ff)" in rest)
        is_full = bus_id not in self.devices and len(self.devices) >= _MOST_DEVICES
        self._device = new if is_full else self.devices.setdefault(bus_id, new)
        return True

    def feed(self, line: str) -> None:
        device = self._device
        if link := _LINK.match(line):
            generation, width = parse_link_speed(link[2].replace("GT/s", " GT/s").replace("  ", " ")), link[3]
            if link[1] == "Cap":
                device.max_generation, device.max_width = generation, parse_link_width(width)
            else:
                device.generation, device.width = generation, parse_link_width(width)
        elif buses := _BUSES.match(line):
            device.secondary = buses[1]
        elif driver := _DRIVER.match(line):
            device.driver = driver[1]
        elif "Kernel modules: " in line:
            device.driver = device.driver or "none"  # the driver in use, if any, comes before
        elif node := _NODE.match(line):
            device.numa_node = int(node[1])
        elif "Unknown header type 7f" in line:
            device.is_dead = True


def _model(rest: str) -> str:
    """The product part of a device name: the text in brackets, or else the chip."""
    name = _IDS.sub("", rest.partition(" (rev")[0]).strip()
    bracketed = re.search(r"\[([^\[\]]{3,60})\]", name)
    return bracketed[1] if bracketed is not None else name


def ports_of(devices: Mapping[str, PciDevice]) -> Mapping[str, PciDevice]:
    """The ports in a listing, by domain and secondary bus number: ``0000:41``."""
    return {f"{each.bus_id.partition(':')[0]}:{each.secondary}": each for each in devices.values() if each.secondary}
