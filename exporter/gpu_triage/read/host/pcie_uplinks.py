"""PCIe uplinks: the links between root ports and the switches that GPUs and adapters share."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from gpu_triage.documents.pcie_values import TRANSFER_RATES
from gpu_triage.driver.kernel.files import read_names, refuse_unmounted, target_of, text_of
from gpu_triage.driver.kernel.pci_bus import is_bus_id, is_nvidias, link_of
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import Sample, Tier, host_gauge, host_info, no_sample

_KINDS: Final = {"0x03": "gpu", "0x02": "network", "0x0108": "nvme"}
"""Devices that move data, by prefix of their PCI class."""
_MOST_UPLINKS: Final = 64
_MOST_BEHIND: Final = 16
_MOST_DEVICES: Final = 4096
_SEARCH_SECONDS: Final = 60.0
_BITS: Final = 8
_Place = tuple[str, str, tuple[str, ...]]  # lower and upper end of an uplink, and the devices behind it
_ENCODED: Final = {1: 8 / 10, 2: 8 / 10}
_ENCODED_SINCE: Final = 128 / 130
"""Share of bits that carry data, by generation: line encoding overhead is small from generation 3 on."""

GPU_HOST_PCIE_UPLINK_RATIO = host_gauge(
    "Bandwidth of the link between a PCIe switch above GPUs and the port above it, over the most that both ends "
    "support: below 1, the link trained down. `bridge` is the switch's own port, `port` the one above.",
    labels=("bridge", "port"),
    source="sysfs {current,max}_link_{speed,width}",
    default_samples=lambda sample: sample.value < 1,
)
GPU_HOST_PCIE_UPLINK_INFO = host_info(
    "That link in detail: current and best lanes and generation, and the GPUs, network adapters and NVMe drives that "
    "share it.",
    labels=("bridge", "port", "width", "expected_width", "generation", "expected_generation", "behind"),
    source="as gpu_host_pcie_uplink_ratio",
    default_samples=no_sample,
)


@dataclass(frozen=True, slots=True)
class Uplink:
    """A link above a switch, now and at the best of both ends; devices `behind` it are as ``gpu 0000:18:00.0``."""

    bridge: str
    port: str
    behind: tuple[str, ...]
    width: int
    generation: int
    expected_width: int
    expected_generation: int

    @property
    def ratio(self) -> float:
        now = bytes_per_second(self.generation, self.width)
        return min(1.0, now / bytes_per_second(self.expected_generation, self.expected_width))


class PcieUplinksReader:
    def __init__(self) -> None:
        self._places: tuple[_Place, ...] = ()
        self._searched_at: float | None = None

    def read(self, round_: HostRound) -> tuple[Uplink, ...]:
        """Read the links above switches with GPUs behind them; those with missing values are left out."""
        sysfs, now = round_.machine.sysfs, round_.at.monotonic
        refuse_unmounted(sysfs)
        if self._searched_at is None or now - self._searched_at >= _SEARCH_SECONDS:
            self._places = _search(sysfs)
            self._searched_at = now
        return tuple(filter(None, (_uplink(sysfs, *place) for place in self._places)))


def _search(sysfs: Path) -> tuple[_Place, ...]:
    """All uplinks with GPUs behind them.

    A device's sysfs path contains the bridges above it: a root port, then for each switch its upstream port and one of
    its downstream ports. So every second pair is a link; the last link, from slot to device, is the device's own.
    """
    devices = sysfs / "bus" / "pci" / "devices"
    behind: dict[tuple[str, str], list[str]] = {}
    for name in (read_names(devices) or [])[:_MOST_DEVICES]:
        device = f"{devices}/{name}"
        kind = _kind(device)
        above = PurePosixPath(target_of(device)).parts[:-1] if kind is not None else ()
        chain = [part for part in above if is_bus_id(part)]
        # With an even number of bridges, one of them is something else, but there is no way to know which.
        for upper in range(0, len(chain) - 1, 2) if len(chain) % 2 else ():
            behind.setdefault((chain[upper], chain[upper + 1]), []).append(f"{kind} {name}")
    with_gpus = {ends: of for ends, of in behind.items() if any(each.startswith("gpu ") for each in of)}
    kept = sorted(with_gpus.items())[:_MOST_UPLINKS]
    return tuple((bridge, port, tuple(of[:_MOST_BEHIND])) for (port, bridge), of in kept)


def _kind(device: str) -> str | None:
    """Kind of a device; None if it does not move data of jobs."""
    pci_class = text_of(f"{device}/class")
    kind = next((kind for begin, kind in _KINDS.items() if pci_class.startswith(begin)), None)
    return None if kind == "gpu" and not is_nvidias(text_of(f"{device}/vendor")) else kind


def _uplink(sysfs: Path, bridge: str, port: str, behind: tuple[str, ...]) -> Uplink | None:
    lower, upper = link_of(sysfs, bridge), link_of(sysfs, port)
    width = lower.current_width or upper.current_width
    generation = lower.current_generation or upper.current_generation
    if lower.max_width is None or upper.max_width is None or width is None:
        return None
    if lower.max_generation is None or upper.max_generation is None or generation is None:
        return None
    most = min(lower.max_width, upper.max_width), min(lower.max_generation, upper.max_generation)
    return Uplink(bridge, port, behind, width, generation, *most)


def bytes_per_second(generation: int, width: int) -> float:
    """Maximum data rate of a PCIe link in one direction, before packet headers."""
    return TRANSFER_RATES[generation] * 1e9 * _ENCODED.get(generation, _ENCODED_SINCE) * width / _BITS


def render(reading: tuple[Uplink, ...]) -> Iterator[Sample]:
    for each in reading:
        yield GPU_HOST_PCIE_UPLINK_RATIO.sample(each.ratio, each.bridge, each.port)
        links = (each.width, each.expected_width, each.generation, each.expected_generation)
        facts = (each.bridge, each.port, *map(str, links), ", ".join(each.behind))
        yield GPU_HOST_PCIE_UPLINK_INFO.sample(1, *facts)


def devices_behind(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the kinds of the devices behind an uplink by their bus IDs, from the labels of its info metric."""
    return {bus_id: kind for kind, bus_id in (each.split(" ") for each in labels["behind"].split(", "))}


PCIE_UPLINKS = HostCollector(
    about="PCIe links above the switches that GPUs share",
    tier=Tier.MEDIUM,
    reader=lambda _config: PcieUplinksReader().read,
    render=render,
    own_lane=True,
)
