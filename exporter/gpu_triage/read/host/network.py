"""Traffic, errors and drops of the host's network interfaces.

None of these reads waits for the networking lock (RTNL): the kernel reads statistics without it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, NamedTuple

from gpu_triage.driver.kernel.files import is_present, parse_count, read_int, read_text
from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.errors import HostReadFailed
from gpu_triage.options.config import Config, LineRate
from gpu_triage.read.metrics.bounds import MOST_DEVICES, Bound, is_virtual_function
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter, host_gauge
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rendering import Each
from gpu_triage.read.metrics.rounds import HostRound

_COLUMNS = 16
_VIRTUAL = re.compile(
    r"lo|(?:veth|docker|br-|cni|flannel|cali|cilium|lxc|virbr|tun|tap|wg|dummy|vxlan).*"
    r"|.*\..*"  # eth0.100: a VLAN, already counted by its parent
)

_REPRESENTOR = re.compile(r"(?:c[0-9]+)?pf[0-9]+(?:vf|sf)[0-9]+$")
"""Suffix that udev gives ports of an adapter's switch that lead to virtual functions: ``enp8s0f0npf0vf1``."""


@dataclass(frozen=True, slots=True)
class NetworkDevices:
    """Patterns of devices, by kernel names of interfaces and of InfiniBand and RoCE adapters.

    If `include` is empty, all are included; `exclude` overrides it. Of the line rates, the first that matches applies.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rates: tuple[LineRate, ...] = ()

    def chosen(self, name: str) -> bool:
        """Whether a device is selected."""
        included = not self.include or any(fnmatchcase(name, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(name, pattern) for pattern in self.exclude)

    def line_rate(self, name: str) -> int | None:
        """Configured line rate of a device in bytes per second; None if not configured."""
        return next((rate.bytes_per_second for rate in self.rates if fnmatchcase(name, rate.device)), None)


EVERY_DEVICE = NetworkDevices()


def network_devices(config: Config) -> NetworkDevices:
    """Create the selection from the configuration."""
    return NetworkDevices(config.network_device_include, config.network_device_exclude, config.network_line_rate)


GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL = host_counter(
    "gpu_host_network_receive_bytes_total",
    "Bytes the physical or bond interface received since it appeared. A bond is listed beside its members: do not "
    "sum over device.",
    labels=("device",),
    source="/proc/1/net/dev, else /proc/net/dev",
)
GPU_HOST_NETWORK_TRANSMIT_BYTES_TOTAL = host_counter(
    "gpu_host_network_transmit_bytes_total",
    "Bytes the physical or bond interface sent since it appeared. A bond is listed beside its members: do not sum "
    "over device.",
    labels=("device",),
    source="/proc/1/net/dev, else /proc/net/dev",
)
GPU_HOST_NETWORK_ERRORS_TOTAL = host_counter(
    "gpu_host_network_errors_total",
    "Bad packets by direction ({direction}) since the interface appeared.",
    labels={"device": ANY, "direction": ("receive", "transmit")},
    source="/proc/1/net/dev, else /proc/net/dev",
)
GPU_HOST_NETWORK_DROPS_TOTAL = host_counter(
    "gpu_host_network_drops_total",
    "Good packets dropped by direction ({direction}) since the interface appeared.",
    labels={"device": ANY, "direction": ("receive", "transmit")},
    source="/proc/1/net/dev, else /proc/net/dev",
)
GPU_HOST_NETWORK_NUMA_NODE = host_gauge(
    "gpu_host_network_numa_node",
    "NUMA node that the interface is attached to; absent if the firmware does not report it, and for bonds.",
    labels=("device",),
    source="/sys/class/net/*/device/numa_node",
)


@dataclass(frozen=True, slots=True)
class NetworkInterface:
    """Monotonic counters of one interface (``eth0``, ``ib0``, ``bond0``) that carries the host's data."""

    device: str
    receive_bytes: Annotated[int, GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL]
    transmit_bytes: Annotated[int, GPU_HOST_NETWORK_TRANSMIT_BYTES_TOTAL]
    receive_errors: Annotated[int, GPU_HOST_NETWORK_ERRORS_TOTAL, "receive"]
    transmit_errors: Annotated[int, GPU_HOST_NETWORK_ERRORS_TOTAL, "transmit"]
    receive_drops: Annotated[int, GPU_HOST_NETWORK_DROPS_TOTAL, "receive"]
    transmit_drops: Annotated[int, GPU_HOST_NETWORK_DROPS_TOTAL, "transmit"]
    numa_node: Annotated[int | None, GPU_HOST_NETWORK_NUMA_NODE]


@dataclass(frozen=True, slots=True)
class HostNetworkReading:
    """Interfaces of the host that carry its data, by name."""

    interfaces: Annotated[tuple[NetworkInterface, ...], Each("device")]


class InterfaceCounts(NamedTuple):
    """The values used from one line of /proc/net/dev."""

    receive_bytes: int
    receive_errors: int
    receive_drops: int
    transmit_bytes: int
    transmit_errors: int
    transmit_drops: int


class HostNetworkReader:
    """Reads interface statistics; continues counters when a reloaded driver restarts them at 0."""

    def __init__(self, devices: NetworkDevices = EVERY_DEVICE) -> None:
        self._devices = devices
        self._counters: MonotoneCounters[tuple[str, str]] = MonotoneCounters()
        self._bound = Bound(MOST_DEVICES, "too_many_interfaces")

    def read(self, round_: HostRound) -> HostNetworkReading:
        """Read physical interfaces of the host, including virtual functions, and bonds.

        Source: ``/proc/net/dev`` of the host's network namespace and ``/sys/class/net``.

        Raises:
            HostReadFailed: statistics are missing, or cannot be read or parsed.
        """
        inquiry = HostInquiry(round_.failures)
        lines = _statistics(inquiry, round_.machine.procfs)
        classes = round_.machine.sysfs / "class" / "net"
        known_to_sysfs = shows_interfaces(round_.machine.sysfs, dict(lines or ()))
        found = [
            (name, counts)
            for name, counts in sorted(dict(lines or ()).items())
            if self._devices.chosen(name)
            and (carries_data(classes / name) if known_to_sysfs else is_named_like_hardware(name))
            and not _REPRESENTOR.search(name)
        ]
        kept = self._bound.kept(found, round_.failures, lambda each: is_virtual_function(classes / each[0]))
        interfaces = tuple(self._interface(inquiry, classes / name, name, counts) for name, counts in kept)
        inquiry.finish()
        return HostNetworkReading(interfaces=interfaces)

    def _interface(self, inquiry: HostInquiry, device: Path, name: str, counts: InterfaceCounts) -> NetworkInterface:
        now = {field: self._counters.published((name, field), value) for field, value in counts._asdict().items()}
        node = inquiry.ask(lambda: read_int(device / "device" / "numa_node"))
        return NetworkInterface(device=name, **now, numa_node=node if node is not None and node >= 0 else None)


def parse_interface(line: str) -> tuple[str, InterfaceCounts] | None:
    """Parse a line of /proc/net/dev into name and counts; None for its two header lines.

    Raises:
        ValueError: a column used is missing or not a count.
    """
    name, colon, rest = line.rpartition(":")
    if not colon and "|" in line:
        return None
    columns = rest.split()
    if not name.strip() or len(columns) < _COLUMNS:
        raise ValueError(f"{line[:80]!r} is no line of /proc/net/dev")
    counts = [parse_count(column) for column in columns[:_COLUMNS]]
    return name.strip(), InterfaceCounts(
        receive_bytes=counts[0],
        receive_errors=counts[2],
        receive_drops=counts[3],
        transmit_bytes=counts[8],
        transmit_errors=counts[10],
        transmit_drops=counts[11],
    )


def shows_interfaces(sysfs: Path, names: Collection[str]) -> bool:
    """Whether this sysfs belongs to the network namespace with these interfaces.

    A sysfs that a container mounted itself shows the container's interfaces. Half of the names must match, since some
    interfaces may have appeared in between.
    """
    classes = sysfs / "class" / "net"
    others = [name for name in names if name != "lo"]
    return is_present(classes) and 2 * sum(is_present(classes / name) for name in others) >= len(others)


def interface_names(procfs: Path) -> frozenset[str]:
    """Interfaces in the host's network namespace, or in the exporter's own if not visible; empty if unreadable."""
    failures: list[str] = []
    return frozenset(dict(_statistics(HostInquiry(failures), procfs) or ()))


def is_named_like_hardware(name: str) -> bool:
    """Whether the name differs from those of loopback, container, bridge, tunnel and VLAN interfaces."""
    return _VIRTUAL.fullmatch(name) is None


def _statistics(inquiry: HostInquiry, procfs: Path) -> list[tuple[str, InterfaceCounts]] | None:
    # net/ is the reader's own network namespace, such as a container's; 1/net/ is the host's. Without access to
    # process 1, use our own.
    hosts = procfs / "1" / "net" / "dev"
    try:
        visible = read_text(hosts) is not None
    except HostReadFailed:
        visible = False
    return inquiry.lines(hosts if visible else procfs / "net" / "dev", parse_interface, required=True)


def carries_data(device: Path) -> bool:
    """Whether an interface of /sys/class/net is hardware, or a bond."""
    return is_present(device / "device") or is_present(device / "bonding")


HOST_NETWORK = HostCollector(
    name="host_network",
    about="network interfaces",
    tier=Tier.MEDIUM,
    reader=lambda config: HostNetworkReader(network_devices(config)).read,
    # Reading statistics calls into drivers.
    own_lane=True,
)
