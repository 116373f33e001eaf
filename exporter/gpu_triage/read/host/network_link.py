"""Link speed and carrier losses of the host's network interfaces.

To read a speed, the kernel takes the networking lock (RTNL) and calls the driver, which may query the firmware: the
read hangs if any of these does. Sources: ``net/core/net-sysfs.c`` (``speed_show``, ``phys_port_name_show``),
https://docs.kernel.org/networking/statistics.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from gpu_triage.driver.kernel.files import is_present, read_int, read_names, text_of
from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.read.host.network import EVERY_DEVICE, NetworkDevices, carries_data, network_devices
from gpu_triage.read.metrics.bounds import MOST_DEVICES, Bound, is_virtual_function
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import Tier, host_counter, host_gauge
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rendering import Each
from gpu_triage.read.metrics.rounds import HostRound

_INNER_PORT: Final = re.compile(r"(?:c[0-9]+)?pf[0-9]+")
_BYTES_PER_SECOND_PER_MEGABIT: Final = 1_000_000 // 8
_HIGHEST_SPEED: Final = 0x7FFFFFFF
"""Unknown speeds are 0 or -1, the latter printed as an unsigned number by old kernels."""

_KNOWN_FOR_SECONDS: Final = 600.0
"""Refresh interval of a known speed. It only changes with the carrier, which the kernel counts without that lock."""
_UNKNOWN_FOR_SECONDS: Final = 60.0
"""Refresh interval of an unknown speed: some drivers report it with a delay after the carrier, some never."""

GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND = host_gauge(
    "gpu_host_network_speed_bytes_per_second",
    "Speed of the link in each direction: that of --network.line-rate, else as the driver says; absent when it is down "
    "or not known. Read when the carrier has changed, and every 10 minutes. Keeps its last value while the driver does "
    "not answer: then gpu_exporter_collector_success of host_network_link is 0.",
    labels=("device",),
    source="/sys/class/net/*/speed",
)
GPU_HOST_NETWORK_SPEED_EXPECTED_RATIO = host_gauge(
    "gpu_host_network_speed_expected_ratio",
    "Speed of the interface's link as a share of the highest since the exporter started, 0-1; of a bond, that of its "
    "members together. Shown while it is below 1; profile full always shows it. Absent when the link is down, and for "
    "an interface whose adapter is an InfiniBand or RoCE device: see gpu_host_infiniband_rate_expected_ratio.",
    labels=("device",),
    source="/sys/class/net/*/speed",
    default_samples=lambda sample: sample.value < 1,
)
GPU_HOST_NETWORK_CARRIER_DOWNS_TOTAL = host_counter(
    "gpu_host_network_carrier_downs_total",
    "How often the interface lost its link. Absent for an interface whose adapter is an InfiniBand or RoCE device: see "
    "gpu_host_infiniband_link_downs_total.",
    labels=("device",),
    source="/sys/class/net/*/carrier_down_count, before Linux 4.16 half of carrier_changes",
)


@dataclass(frozen=True, slots=True)
class InterfaceLink:
    """Link of one interface (``eth0``, ``ib0``, ``bond0``) that carries the host's data; None for what is unknown."""

    device: str
    speed_bytes_per_second: Annotated[int | None, GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND]
    speed_expected_ratio: Annotated[float | None, GPU_HOST_NETWORK_SPEED_EXPECTED_RATIO] = None
    carrier_downs: Annotated[int | None, GPU_HOST_NETWORK_CARRIER_DOWNS_TOTAL] = None


@dataclass(frozen=True, slots=True)
class HostNetworkLinkReading:
    """Links of the host's interfaces, by name."""

    links: Annotated[tuple[InterfaceLink, ...], Each("device")]


class _Speed(NamedTuple):
    """A speed in megabits per second (None if unknown), when it was read, and the carrier's change count then."""

    megabits: int | None
    read_at: float
    changes: int | None

    def holds(self, now: float, changes: int | None) -> bool:
        lasts = _UNKNOWN_FOR_SECONDS if self.megabits is None else _KNOWN_FOR_SECONDS
        return changes == self.changes and now - self.read_at < lasts


class HostNetworkLinkReader:
    """Reads links; caches each speed, to read it as rarely as possible, and remembers the highest."""

    def __init__(self, devices: NetworkDevices = EVERY_DEVICE) -> None:
        self._devices = devices
        self._counters: MonotoneCounters[str] = MonotoneCounters()
        self._speeds: dict[str, _Speed] = {}
        self._uplinks: dict[str, bool] = {}
        self._fastest: dict[str, int] = {}
        self._bound = Bound(MOST_DEVICES, "too_many_interfaces")

    def read(self, round_: HostRound) -> HostNetworkLinkReading:
        """Read links of physical interfaces, including virtual functions, and of bonds. Source: ``/sys/class/net``.

        Raises:
            HostReadFailed: interfaces exist but none can be read, or no sysfs is mounted.
        """
        inquiry = HostInquiry(round_.failures, round_.machine.sysfs)
        classes = round_.machine.sysfs / "class" / "net"
        names = inquiry.ask(lambda: read_names(classes)) or []
        chosen = [name for name in names if self._devices.chosen(name) and carries_data(classes / name)]
        self._uplinks = {name: self._is_uplink(classes / name, name) for name in chosen}
        found = [name for name, is_uplink in self._uplinks.items() if is_uplink]
        kept = self._bound.kept(found, round_.failures, lambda name: is_virtual_function(classes / name))
        changes = {name: inquiry.ask(partial(read_int, classes / name / "carrier_changes")) for name in kept}
        known = {name: self._speeds[name] for name in kept if name in self._speeds}
        # A bond that loses a member keeps its carrier, but becomes slower.
        if any(name not in known or known[name].changes != changes[name] for name in kept):
            known = {name: speed for name, speed in known.items() if not _is_bond(classes / name)}
        self._speeds = known
        links = tuple(self._link(inquiry, classes / name, name, changes[name], round_.at.monotonic) for name in kept)
        inquiry.finish()
        return HostNetworkLinkReading(links)

    def _is_uplink(self, device: Path, name: str) -> bool:
        """Whether an interface is an external port of its adapter, rather than a representor of a virtual function.

        Cached, because the kernel takes the same lock. Source: ``devlink_port_phys_port_name_get`` of
        net/devlink/port.c: ``p0`` is a port, ``pf0vf1``, ``pf0sf3`` and ``c1pf0`` are not.
        """
        if name in self._uplinks:
            return self._uplinks[name]
        has_name = is_present(device / "device")
        return not (has_name and _INNER_PORT.match(text_of(device / "phys_port_name")))

    def _link(self, inquiry: HostInquiry, device: Path, name: str, changes: int | None, now: float) -> InterfaceLink:
        speed = self._speed(inquiry, device, name, changes, now)
        if is_present(device / "device" / "infiniband"):
            return InterfaceLink(name, _bytes_per_second(speed))
        ratio = None if speed is None else self._share_of_fastest(name, speed)
        return InterfaceLink(name, _bytes_per_second(speed), ratio, self._carrier_downs(inquiry, device, name, changes))

    def _speed(self, inquiry: HostInquiry, device: Path, name: str, changes: int | None, now: float) -> int | None:
        given = self._devices.line_rate(name)
        if given is not None:
            down = text_of(device / "operstate").strip() == "down"
            return None if down else given // _BYTES_PER_SECOND_PER_MEGABIT
        known = self._speeds.get(name)
        if known is not None and known.holds(now, changes):
            return known.megabits
        self._speeds.pop(name, None)
        answer = inquiry.ask(lambda: (read_int(device / "speed"),))
        if answer is None:
            return None  # the read failed: retry in the next round
        (speed,) = answer
        megabits = speed if speed is not None and 0 < speed < _HIGHEST_SPEED else None
        self._speeds[name] = _Speed(megabits, now, changes)
        return megabits

    def _share_of_fastest(self, name: str, speed: int) -> float:
        fastest = self._fastest[name] = max(speed, self._fastest.get(name, 0))
        return speed / fastest

    def _carrier_downs(self, inquiry: HostInquiry, device: Path, name: str, changes: int | None) -> int | None:
        downs = inquiry.ask(lambda: read_int(device / "carrier_down_count"))
        if downs is None:
            downs = None if changes is None else changes // 2
        return None if downs is None or downs < 0 else self._counters.published(name, downs)


def _is_bond(device: Path) -> bool:
    return is_present(device / "bonding")


def _bytes_per_second(megabits: int | None) -> int | None:
    return None if megabits is None else megabits * _BYTES_PER_SECOND_PER_MEGABIT


HOST_NETWORK_LINK = HostCollector(
    name="host_network_link",
    about="links of network interfaces: speed, and how often they were lost",
    tier=Tier.MEDIUM,
    reader=lambda config: HostNetworkLinkReader(network_devices(config)).read,
    # May block on the networking lock, drivers and firmware.
    own_lane=True,
    kept_while_stalled=True,
)
