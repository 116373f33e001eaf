"""Network interfaces of the host: traffic, errors and drops; link speed and carrier losses.

The kernel reads statistics without the networking lock (RTNL). To read a speed, it takes the lock and calls the driver,
which may query the firmware: the read hangs if any of these does. Sources: ``net/core/net-sysfs.c`` (``speed_show``,
``phys_port_name_show``), https://docs.kernel.org/networking/statistics.html
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from gpu_triage.driver.kernel.files import HostInquiry, is_present, parse_count, read_int, read_names, text_of
from gpu_triage.options.config import Config
from gpu_triage.read.metrics.bounds import MOST_DEVICES, Bound, is_virtual_function
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter, host_gauge
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rendering import Each, each

_COLUMNS = 16
_USED = (0, 8, 2, 10, 3, 11)
"""Columns of bytes, errors and drops, each received and sent."""
_VIRTUAL = re.compile(
    r"lo|(?:veth|docker|br-|cni|flannel|cali|cilium|lxc|virbr|tun|tap|wg|dummy|vxlan).*"
    r"|.*\..*"  # eth0.100: a VLAN, already counted by its parent
)

_REPRESENTOR = re.compile(r"(?:c[0-9]+)?pf[0-9]+(?:vf|sf)[0-9]+$")
"""Suffix that udev gives ports of an adapter's switch that lead to virtual functions: ``enp8s0f0npf0vf1``."""


DEFAULTS: Final = Config()


def is_chosen(config: Config, name: str) -> bool:
    """Whether a device is selected, by its kernel name; without inclusions, all are. Exclusions come first."""
    if any(fnmatchcase(name, pattern) for pattern in config.network_device_exclude):
        return False
    included = config.network_device_include
    return not included or any(fnmatchcase(name, pattern) for pattern in included)


def line_rate(config: Config, name: str) -> int | None:
    """Configured line rate of a device in bytes per second, by the first pattern that matches; None without one."""
    rates = config.network_line_rate
    return next((rate.bytes_per_second for rate in rates if fnmatchcase(name, rate.device)), None)


_traffic_counter = partial(host_counter, source="/proc/1/net/dev, else /proc/net/dev")

GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL = _traffic_counter(
    "Bytes received by the physical or bond interface since it appeared, without RDMA (see "
    "gpu_host_infiniband_interface_excludes_rdma). A bond appears beside its members: do not sum over device.",
    labels=("device",),
)
GPU_HOST_NETWORK_TRANSMIT_BYTES_TOTAL = _traffic_counter(
    "Bytes sent by the interface, counted like those received.", labels=("device",)
)
GPU_HOST_NETWORK_ERRORS_TOTAL = _traffic_counter(
    "Bad packets by direction ({direction}) since the interface appeared.",
    labels={"device": ANY, "direction": ("receive", "transmit")},
)
GPU_HOST_NETWORK_DROPS_TOTAL = _traffic_counter(
    "Good packets dropped by direction ({direction}) since the interface appeared.",
    labels={"device": ANY, "direction": ("receive", "transmit")},
)
GPU_HOST_NETWORK_NUMA_NODE = host_gauge(
    "NUMA node of the interface; absent if the firmware does not report it, and for bonds.",
    labels=("device",),
    source="/sys/class/net/*/device/numa_node",
)
GPU_HOST_TCP_SEGMENTS_SENT_TOTAL = host_counter(
    "TCP segments that the host sent, without those it sent again.",
    source="/proc/1/net/snmp, else /proc/net/snmp: Tcp OutSegs",
)
GPU_HOST_TCP_SEGMENTS_RETRANSMITTED_TOTAL = host_counter(
    "TCP segments that the host sent again: lost, or not acknowledged in time.",
    source="/proc/1/net/snmp, else /proc/net/snmp: Tcp RetransSegs",
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
    numa_node: Annotated[int | None, GPU_HOST_NETWORK_NUMA_NODE] = None


@dataclass(frozen=True, slots=True)
class HostNetworkReading:
    """Interfaces of the host that carry its data, by name, and its TCP segments; None if not read."""

    interfaces: Annotated[tuple[NetworkInterface, ...], Each("device")]
    segments_sent: Annotated[int | None, GPU_HOST_TCP_SEGMENTS_SENT_TOTAL] = None
    segments_retransmitted: Annotated[int | None, GPU_HOST_TCP_SEGMENTS_RETRANSMITTED_TOTAL] = None


class HostNetworkReader:
    """Reads interface statistics; continues counters when a reloaded driver restarts them at 0."""

    def __init__(self, config: Config = DEFAULTS) -> None:
        self._config = config
        self._counters = MonotoneCounters()
        self._bound = Bound(MOST_DEVICES, "too_many_interfaces")

    def read(self, round_: HostRound) -> HostNetworkReading:
        """Read physical interfaces of the host, including virtual functions, and bonds."""
        inquiry = HostInquiry(round_.failures)
        folder = _network_folder(round_.machine.procfs)
        statistics = _statistics(inquiry, folder)
        classes = round_.machine.sysfs / "class" / "net"
        known_to_sysfs = shows_interfaces(round_.machine.sysfs, statistics)
        found = [
            name
            for name in sorted(statistics)
            if is_chosen(self._config, name)
            and (carries_data(classes / name) if known_to_sysfs else is_named_like_hardware(name))
            and not _REPRESENTOR.search(name)
        ]
        kept = self._bound.kept(found, round_.failures, lambda name: is_virtual_function(classes / name))
        interfaces = tuple(self._interface(inquiry, classes / name, statistics[name]) for name in kept)
        segments = inquiry.parse(folder / "snmp", parse_tcp_segments, aside=True)
        inquiry.finish()
        return HostNetworkReading(interfaces, *(segments or (None, None)))

    def _interface(self, inquiry: HostInquiry, device: Path, counted: NetworkInterface) -> NetworkInterface:
        node = inquiry.ask(lambda: read_int(device / "device" / "numa_node"))
        known = replace(counted, numa_node=node if node is not None and node >= 0 else None)
        return self._counters.continued(known, device.name)


def parse_interface(line: str) -> NetworkInterface | None:
    """Parse a line of /proc/net/dev; None for its headers."""
    name, colon, rest = line.rpartition(":")
    if not colon and "|" in line:
        return None
    columns = rest.split()
    if not name.strip() or len(columns) < _COLUMNS:
        raise ValueError(f"{line[:80]!r} is no line of /proc/net/dev")
    counts = [parse_count(column) for column in columns[:_COLUMNS]]
    return NetworkInterface(name.strip(), *(counts[column] for column in _USED))


def parse_tcp_segments(text: str) -> tuple[int, int]:
    """Parse /proc/net/snmp into the TCP segments sent, and sent again."""
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    counts = dict(zip(names, values, strict=True))
    return parse_count(counts.get("OutSegs", "")), parse_count(counts.get("RetransSegs", ""))


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
    return frozenset(_statistics(HostInquiry([]), _network_folder(procfs)))


def is_named_like_hardware(name: str) -> bool:
    """Whether the name differs from those of loopback, container, bridge, tunnel and VLAN interfaces."""
    return _VIRTUAL.fullmatch(name) is None


def _statistics(inquiry: HostInquiry, folder: Path) -> dict[str, NetworkInterface]:
    return {each.device: each for each in inquiry.lines(folder / "dev", parse_interface, required=True) or ()}


def _network_folder(procfs: Path) -> Path:
    hosts = procfs / "1" / "net"
    return hosts if text_of(hosts / "dev") else procfs / "net"


def carries_data(device: Path) -> bool:
    """Whether an interface of /sys/class/net is hardware, or a bond."""
    return is_present(device / "device") or is_present(device / "bonding")


HOST_NETWORK = HostCollector(
    about="network interfaces",
    tier=Tier.MEDIUM,
    reader=lambda config: HostNetworkReader(config).read,
    # Reading statistics calls into drivers.
    own_lane=True,
)


_INNER_PORT: Final = re.compile(r"(?:c[0-9]+)?pf[0-9]+")
_BYTES_PER_SECOND_PER_MEGABIT: Final = 1_000_000 // 8
_HIGHEST_SPEED: Final = 0x7FFFFFFF
"""Unknown speeds are 0 or -1, the latter printed as an unsigned number by old kernels."""

_KNOWN_FOR_SECONDS: Final = 600.0
"""Refresh interval of a known speed. It only changes with the carrier, which the kernel counts without that lock."""
_UNKNOWN_FOR_SECONDS: Final = 60.0
"""Refresh interval of an unknown speed: some drivers report it with a delay after the carrier, some never."""

GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND = host_gauge(
    "Link speed per direction: --network.line-rate, else the driver's; absent if down or unknown. Keeps its last "
    "value while the driver does not answer.",
    labels=("device",),
    source="/sys/class/net/*/speed",
)
GPU_HOST_NETWORK_SPEED_EXPECTED_RATIO = host_gauge(
    "Link speed as a share of the highest since the exporter started; of a bond, that of its members together. Only "
    "below 1, except in profile full. Absent if the link is down, and for RDMA adapters.",
    labels=("device",),
    source="/sys/class/net/*/speed",
    default_samples=lambda sample: sample.value < 1,
)
GPU_HOST_NETWORK_CARRIER_DOWNS_TOTAL = host_counter(
    "How often the interface lost its link.",
    labels=("device",),
    source="/sys/class/net/*/carrier_down_count, else carrier_changes",
)


@dataclass(frozen=True, slots=True)
class InterfaceLink:
    """Link of one interface (``eth0``, ``ib0``, ``bond0``) that carries the host's data; None for what is unknown."""

    device: str
    speed_bytes_per_second: Annotated[int | None, GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND]
    speed_expected_ratio: Annotated[float | None, GPU_HOST_NETWORK_SPEED_EXPECTED_RATIO] = None
    carrier_downs: Annotated[int | None, GPU_HOST_NETWORK_CARRIER_DOWNS_TOTAL] = None


class _Speed(NamedTuple):
    """A speed (None if unknown), when it was read, and the carrier's change count then."""

    bytes_per_second: int | None
    read_at: float
    changes: int | None


class HostNetworkLinkReader:
    """Reads links; caches each speed, to read it as rarely as possible, and remembers the highest."""

    def __init__(self, config: Config = DEFAULTS) -> None:
        self._config = config
        self._counters = MonotoneCounters()
        self._speeds: dict[str, _Speed] = {}
        self._uplinks: dict[str, bool] = {}
        self._fastest: dict[str, int] = {}
        self._bound = Bound(MOST_DEVICES, "too_many_interfaces")

    def read(self, round_: HostRound) -> tuple[InterfaceLink, ...]:
        """Read links of physical interfaces, including virtual functions, and of bonds. Source: ``/sys/class/net``."""
        inquiry = HostInquiry(round_.failures, round_.machine.sysfs)
        classes = round_.machine.sysfs / "class" / "net"
        names = inquiry.ask(lambda: read_names(classes)) or []
        chosen = [name for name in names if is_chosen(self._config, name) and carries_data(classes / name)]
        self._uplinks = {name: self._is_uplink(classes / name) for name in chosen}
        found = [name for name, is_uplink in self._uplinks.items() if is_uplink]
        kept = self._bound.kept(found, round_.failures, lambda name: is_virtual_function(classes / name))
        changes = {name: inquiry.ask(partial(read_int, classes / name / "carrier_changes")) for name in kept}
        known = {name: self._speeds[name] for name in kept if name in self._speeds}
        # A bond that loses a member keeps its carrier, but becomes slower.
        if any(name not in known or known[name].changes != changes[name] for name in kept):
            known = {name: speed for name, speed in known.items() if not is_present(classes / name / "bonding")}
        self._speeds = known
        links = tuple(self._link(inquiry, classes / name, changes[name], round_.at.monotonic) for name in kept)
        inquiry.finish()
        return links

    def _is_uplink(self, device: Path) -> bool:
        """Whether an interface is an external port of its adapter, rather than a representor of a virtual function.

        Cached, because the kernel takes the same lock. Source: ``devlink_port_phys_port_name_get`` of
        net/devlink/port.c: ``p0`` is a port, ``pf0vf1``, ``pf0sf3`` and ``c1pf0`` are not.
        """
        if device.name in self._uplinks:
            return self._uplinks[device.name]
        has_name = is_present(device / "device")
        return not (has_name and _INNER_PORT.match(text_of(device / "phys_port_name")))

    def _link(self, inquiry: HostInquiry, device: Path, changes: int | None, now: float) -> InterfaceLink:
        name, speed = device.name, self._speed(inquiry, device, changes, now)
        if is_present(device / "device" / "infiniband"):
            return InterfaceLink(name, speed)
        fastest = self._fastest[name] = max(speed or 0, self._fastest.get(name, 0))
        downs = inquiry.ask(lambda: read_int(device / "carrier_down_count"))
        if downs is None and changes is not None:
            downs = changes // 2
        return InterfaceLink(
            device=name,
            speed_bytes_per_second=speed,
            speed_expected_ratio=None if speed is None else speed / fastest,
            carrier_downs=None if downs is None or downs < 0 else self._counters.published(name, downs),
        )

    def _speed(self, inquiry: HostInquiry, device: Path, changes: int | None, now: float) -> int | None:
        given = line_rate(self._config, device.name)
        if given is not None:
            return None if text_of(device / "operstate").strip() == "down" else given
        known = self._speeds.pop(device.name, None)
        lasts = _UNKNOWN_FOR_SECONDS if known is None or known.bytes_per_second is None else _KNOWN_FOR_SECONDS
        if known is None or known.changes != changes or now - known.read_at >= lasts:
            answer = inquiry.ask(lambda: (read_int(device / "speed"),))
            if answer is None:
                return None  # the read failed: retry in the next round
            (megabits,) = answer
            is_known = megabits is not None and 0 < megabits < _HIGHEST_SPEED
            speed = megabits * _BYTES_PER_SECOND_PER_MEGABIT if megabits is not None and is_known else None
            known = _Speed(speed, now, changes)
        self._speeds[device.name] = known
        return known.bytes_per_second


HOST_NETWORK_LINK = HostCollector(
    about="speed and losses of network links",
    tier=Tier.MEDIUM,
    reader=lambda config: HostNetworkLinkReader(config).read,
    render=each("device"),
    # May block on the networking lock, drivers and firmware.
    own_lane=True,
    kept_while_stalled=True,
)
