"""InfiniBand and RoCE ports: traffic, state, rate and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

from gpu_triage.driver.kernel.files import read_names
from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.read.host.infiniband_faults import (
    EVENTS,
    ExpectedRates,
    PortFaultCounters,
    PortFaults,
    PortPlan,
    PortPlans,
    PortRate,
)
from gpu_triage.read.host.infiniband_files import PortFiles, parse_rate, parse_state, parse_words
from gpu_triage.read.host.network_interfaces import EVERY_DEVICE, NetworkDevices, network_devices
from gpu_triage.read.metrics.bounds import MOST_DEVICES, Bound, is_virtual_function
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter, host_gauge, no_sample
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rendering import Each
from gpu_triage.read.metrics.rounds import HostRound

_BYTES_PER_WORD: Final = 4
"""Unit of port_rcv_data and port_xmit_data, according to the InfiniBand specification."""

_SATURATED: Final = 0xFFFFFFFF
"""Value at which a 32-bit counter of an older adapter saturates until it is reset."""

_WORDS, _BYTES = "counters", "hw_counters"
_ACTIVE: Final = 4
PORT_LINK_UP: Final = 5
"""Physical state of a port with a link."""
_PORT: Final = re.compile(r"[0-9]{1,3}")
_NO_FAULTS: Final = PortFaults(None, None, None, {})

GPU_HOST_INFINIBAND_RECEIVE_BYTES_TOTAL = host_counter(
    "gpu_host_infiniband_receive_bytes_total",
    "Bytes the InfiniBand or RoCE port received, RDMA included; absent where the adapter does not count, and when a "
    "32-bit counter is full until it is reset. Counters that the firmware rejects are read once an hour: those of the "
    "ConnectX-7 that the fabric manager runs.",
    labels=("device", "port"),
    source="/sys/class/infiniband/*/ports/*/counters/port_rcv_data, else hw_counters/{rx_bytes,ip4InOctets}",
)
GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL = host_counter(
    "gpu_host_infiniband_transmit_bytes_total",
    "Bytes the InfiniBand or RoCE port sent, RDMA included; absent where the adapter does not count, and when a "
    "32-bit counter is full until it is reset.",
    labels=("device", "port"),
    source="/sys/class/infiniband/*/ports/*/counters/port_xmit_data, else hw_counters/{tx_bytes,ip4OutOctets}",
)
GPU_HOST_INFINIBAND_RATE_BYTES_PER_SECOND = host_gauge(
    "gpu_host_infiniband_rate_bytes_per_second",
    "Rate of the port's link in each direction: that of --network.line-rate, else as the driver says. Absent while it "
    "is not up.",
    labels=("device", "port"),
    source="/sys/class/infiniband/*/ports/*/rate",
)
GPU_HOST_INFINIBAND_UP = host_gauge(
    "gpu_host_infiniband_up",
    "1 while the port is active, 0 while it is not, which a port without a cable never is.",
    labels=("device", "port"),
    source="/sys/class/infiniband/*/ports/*/state",
)
GPU_HOST_INFINIBAND_PHYSICAL_STATE = host_gauge(
    "gpu_host_infiniband_physical_state",
    "Physical state of a port whose link is not up: {states}. A port without a cable polls, or is disabled. Profile "
    "full also shows the ports whose link is up.",
    labels=("device", "port"),
    states={
        1: "sleep",
        2: "polling",
        3: "disabled",
        4: "training",
        PORT_LINK_UP: "link up",
        6: "link error recovery",
        7: "test",
    },
    source="/sys/class/infiniband/*/ports/*/phys_state",
    default_samples=lambda sample: sample.value != PORT_LINK_UP,
)
GPU_HOST_INFINIBAND_RATE_EXPECTED_RATIO = host_gauge(
    "gpu_host_infiniband_rate_expected_ratio",
    "Rate of an active port as a share of what it should be, 0-1: the highest rate since the exporter started, or "
    "that of all other active ports of the same board on this host, if these are at least three and agree. Shown "
    "while it is below 1; profile full always shows it.",
    labels=("device", "port"),
    source="/sys/class/infiniband/*/ports/*/rate",
    default_samples=lambda sample: sample.value < 1,
)
GPU_HOST_INFINIBAND_LINK_ERRORS_TOTAL = host_counter(
    "gpu_host_infiniband_link_errors_total",
    "Errors of the port's link: symbol errors, link error recoveries, packets received with an error, local link "
    "integrity errors and buffer overruns. Absent where the adapter counts none of them, and for virtual functions. "
    "Some of these counters have only 4 to 16 bits and stop when they are full, until they are reset; a reset "
    "is not seen here.",
    labels=("device", "port"),
    source="/sys/class/infiniband/*/ports/*/counters/symbol_error and others",
)
GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL = host_counter(
    "gpu_host_infiniband_link_downs_total",
    "How often the port's link went down: as the adapter counts it for InfiniBand, as the network interface counts "
    "lost carriers for RoCE. Where neither counts, or the adapter's 8 bits are full, what the exporter saw itself. "
    "Absent for virtual functions.",
    labels=("device", "port"),
    source="/sys/class/infiniband/*/ports/*/counters/link_downed, device/net/*/carrier_down_count",
)
GPU_HOST_INFINIBAND_TIMEOUTS_TOTAL = host_counter(
    "gpu_host_infiniband_timeouts_total",
    "RDMA requests that the other end did not acknowledge in time, so that they were sent again: packets were lost, "
    "or the other end is gone. Absent where the adapter does not count them, and for virtual functions.",
    labels=("device", "port"),
    source="/sys/class/infiniband/*/ports/*/hw_counters/local_ack_timeout_err",
)
GPU_HOST_INFINIBAND_EVENTS_TOTAL = host_counter(
    "gpu_host_infiniband_events_total",
    "Errors of the port's link, packets that were lost or sent again, and signs of congestion, by event ({event}), as "
    "the adapter counts them; a counter that is full stops until it is reset. Only in profile full.",
    labels={"device": ANY, "port": ANY, "event": EVENTS},
    source="/sys/class/infiniband/*/ports/*/counters/*, hw_counters/*",
    default_samples=no_sample,
)


@dataclass(frozen=True, slots=True)
class InfinibandPort:
    """Monotonic counters and state of one port of an adapter (``mlx5_0``); None for what it does not report."""

    device: str
    port: str
    receive_bytes: Annotated[int | None, GPU_HOST_INFINIBAND_RECEIVE_BYTES_TOTAL]
    transmit_bytes: Annotated[int | None, GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL]
    rate_bytes_per_second: Annotated[float | None, GPU_HOST_INFINIBAND_RATE_BYTES_PER_SECOND]
    up: Annotated[bool | None, GPU_HOST_INFINIBAND_UP]
    physical_state: Annotated[int | None, GPU_HOST_INFINIBAND_PHYSICAL_STATE] = None
    rate_expected_ratio: Annotated[float | None, GPU_HOST_INFINIBAND_RATE_EXPECTED_RATIO] = None
    link_errors: Annotated[int | None, GPU_HOST_INFINIBAND_LINK_ERRORS_TOTAL] = None
    link_downs: Annotated[int | None, GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL] = None
    timeouts: Annotated[int | None, GPU_HOST_INFINIBAND_TIMEOUTS_TOTAL] = None
    events: Annotated[Mapping[str, int], GPU_HOST_INFINIBAND_EVENTS_TOTAL] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostInfinibandReading:
    """InfiniBand and RoCE ports by adapter; empty on a host without any."""

    ports: Annotated[tuple[InfinibandPort, ...], Each("device", "port")]


class HostInfinibandReader:
    """Reads port counters; continues them over resets from outside."""

    def __init__(self, devices: NetworkDevices = EVERY_DEVICE) -> None:
        self._devices = devices
        self._counters: MonotoneCounters[tuple[str, str, str]] = MonotoneCounters()
        self._files = PortFiles()
        self._faults = PortFaultCounters(self._files)
        self._plans = PortPlans()
        self._expected = ExpectedRates()
        self._bound = Bound(MOST_DEVICES, "too_many_ports")

    def read(self, round_: HostRound) -> HostInfinibandReading:
        """Read the host's InfiniBand and RoCE ports.

        Source: ``/sys/class/infiniband/*/ports/*``, https://docs.kernel.org/admin-guide/abi-stable.html

        Raises:
            HostReadFailed: ports exist but none can be read or parsed, or no sysfs is mounted.
        """
        sysfs = round_.machine.sysfs
        inquiry = HostInquiry(round_.failures, sysfs)
        self._files.now = round_.at.monotonic
        adapters = sysfs / "class" / "infiniband"
        chosen = [device for device in read_names(adapters) or () if self._devices.chosen(device)]
        found = [(device, port) for device in chosen for port in _ports(inquiry, adapters / device)]
        kept = self._bound.kept(found, round_.failures, lambda each: is_virtual_function(adapters / each[0]))
        plans = [self._plans.of(adapters / device, port) for device, port in kept]
        ports = [self._port(inquiry, *each, adapters / each[0], plan) for each, plan in zip(kept, plans, strict=True)]
        rates = (
            PortRate((port.device, port.port), plan.kind, port.rate_bytes_per_second)
            for port, plan in zip(ports, plans, strict=True)
        )
        ratios = self._expected.ratios(rates)
        inquiry.finish()
        return HostInfinibandReading(
            tuple(replace(port, rate_expected_ratio=ratios.get((port.device, port.port))) for port in ports)
        )

    def _port(self, inquiry: HostInquiry, device: str, port: str, adapter: Path, plan: PortPlan) -> InfinibandPort:
        directory = adapter / "ports" / port
        state = self._files.attribute(inquiry, directory / "state", parse_state)
        rate = self._files.attribute(inquiry, directory / "rate", parse_rate)
        physical = self._files.attribute(inquiry, directory / "phys_state", parse_state)
        up = None if state is None else state == _ACTIVE
        # Read first: if this counter is rejected, all of the port's counters are.
        received = self._bytes(inquiry, (device, port, "rcv"), plan.received)
        # Counters of a virtual function are those of its adapter, or nonexistent.
        virtual = is_virtual_function(adapter)
        faults = _NO_FAULTS if virtual else self._faults.read(inquiry, plan, device, port, up=up)
        return InfinibandPort(
            device=device,
            port=port,
            receive_bytes=received,
            transmit_bytes=self._bytes(inquiry, (device, port, "xmit"), plan.sent),
            # A port that is down still reports a rate: that of its last link, or its lowest.
            rate_bytes_per_second=(self._devices.line_rate(device) or rate) if up and rate else None,
            up=up,
            physical_state=physical if physical in GPU_HOST_INFINIBAND_PHYSICAL_STATE.states else None,
            **faults._asdict(),
        )

    def _bytes(self, inquiry: HostInquiry, key: tuple[str, str, str], files: tuple[Path, ...]) -> int | None:
        """Traffic in one direction in bytes; None if a counter is unreadable or saturated."""
        counts = [
            self._files.attribute(inquiry, file, parse_words, decides=file.parent.name == _WORDS) for file in files
        ]
        known = [count for count in counts if count is not None]
        # Counters added by the adapter's driver count bytes.
        unit = 1 if files and files[0].parent.name == _BYTES else _BYTES_PER_WORD
        full = files and files[0].parent.name == _WORDS and known == [_SATURATED]
        if not files or len(known) < len(files) or full:
            return None
        return self._counters.published(key, sum(known)) * unit


def _ports(inquiry: HostInquiry, adapter: Path) -> list[str]:
    names = inquiry.ask(lambda: read_names(adapter / "ports"), aside=True)
    return [name for name in names or () if _PORT.fullmatch(name)]


HOST_INFINIBAND = HostCollector(
    name="host_infiniband",
    about="InfiniBand and RoCE ports",
    tier=Tier.MEDIUM,
    reader=lambda config: HostInfinibandReader(network_devices(config)).read,
    # Each read of a counter makes the kernel query the adapter's firmware.
    own_lane=True,
)
