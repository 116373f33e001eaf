"""What the host's InfiniBand and RoCE ports have carried, and whether they can."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from gpu_triage.errors import HostReadFailed
from gpu_triage.kernel.files import parse_count, read_names
from gpu_triage.kernel.inquiry import HostInquiry
from gpu_triage.subjects.bounds import MOST_DEVICES, Bound, is_virtual_function
from gpu_triage.subjects.contract import HostCollector
from gpu_triage.subjects.metric import Sample, Tier, host_counter, host_gauge
from gpu_triage.subjects.monotone import MonotoneCounters
from gpu_triage.subjects.rendering import samples
from gpu_triage.subjects.rounds import HostRound

_BYTES_PER_WORD: Final = 4
"""The unit of port_rcv_data and port_xmit_data, as the InfiniBand specification has it."""

_SATURATED: Final = 0xFFFFFFFF
"""Where a 32-bit counter of an older adapter stays until somebody resets it."""

_NO_ANSWER: Final = (1 << 64) - 1
"""What a device that fell off the bus reads as."""

_BYTES_PER_SECOND_PER_GIGABIT: Final = 1_000_000_000 / 8
_ACTIVE: Final = 4
_STATE: Final = re.compile(r"([0-9])(?::.*)?")
_RATE: Final = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec\b.*")
_PORT: Final = re.compile(r"[0-9]{1,3}")

GPU_HOST_INFINIBAND_RECEIVE_BYTES_TOTAL = host_counter(
    "gpu_host_infiniband_receive_bytes_total",
    "Bytes the InfiniBand or RoCE port received, RDMA included; absent where the adapter does not count, and when a "
    "32-bit counter is full until it is reset.",
    labels=("device", "port"),
    source="/sys/class/infiniband/*/ports/*/counters/port_rcv_data",
)
GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL = host_counter(
    "gpu_host_infiniband_transmit_bytes_total",
    "Bytes the InfiniBand or RoCE port sent, RDMA included; absent where the adapter does not count, and when a "
    "32-bit counter is full until it is reset.",
    labels=("device", "port"),
    source="/sys/class/infiniband/*/ports/*/counters/port_xmit_data",
)
GPU_HOST_INFINIBAND_RATE_BYTES_PER_SECOND = host_gauge(
    "gpu_host_infiniband_rate_bytes_per_second",
    "Rate of the port's link in each direction; absent while it is not up.",
    labels=("device", "port"),
    source="/sys/class/infiniband/*/ports/*/rate",
)
GPU_HOST_INFINIBAND_UP = host_gauge(
    "gpu_host_infiniband_up",
    "1 while the port is active, 0 while it is not, which a port without a cable never is.",
    labels=("device", "port"),
    source="/sys/class/infiniband/*/ports/*/state",
)


@dataclass(frozen=True, slots=True)
class InfinibandPort:
    """One port of an adapter; None for what it does not report. No count goes back while this process lives.

    Attributes:
        device: the kernel's name of the adapter (``mlx5_0``).
        port: its number, from 1, as text.
    """

    device: str
    port: str
    receive_bytes: Annotated[int | None, GPU_HOST_INFINIBAND_RECEIVE_BYTES_TOTAL]
    transmit_bytes: Annotated[int | None, GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL]
    rate_bytes_per_second: Annotated[float | None, GPU_HOST_INFINIBAND_RATE_BYTES_PER_SECOND]
    up: Annotated[bool | None, GPU_HOST_INFINIBAND_UP]


@dataclass(frozen=True, slots=True)
class HostInfinibandReading:
    """Ports of the host, by adapter; empty on a host without."""

    ports: tuple[InfinibandPort, ...]


class HostInfinibandReader:
    """Reads port counters; remembers each, as they can be reset from outside."""

    def __init__(self) -> None:
        self._counters: MonotoneCounters[tuple[str, str, str]] = MonotoneCounters()
        self._bound = Bound(MOST_DEVICES, "too_many_ports")

    def read(self, round_: HostRound) -> HostInfinibandReading:
        """InfiniBand and RoCE ports of the host.

        Source: ``/sys/class/infiniband/*/ports/*``, https://docs.kernel.org/admin-guide/abi-stable.html

        Raises:
            HostReadFailed: ports are there and none can be read or understood.
        """
        inquiry = HostInquiry(round_.failures)
        adapters = round_.machine.sysfs / "class" / "infiniband"
        found = [(device, port) for device in read_names(adapters) or () for port in _ports(round_, adapters / device)]
        kept = self._bound.kept(found, round_.failures, lambda each: is_virtual_function(adapters / each[0]))
        ports = tuple(self._port(inquiry, *each, adapters / each[0] / "ports" / each[1]) for each in kept)
        inquiry.finish()
        return HostInfinibandReading(ports)

    def _port(self, inquiry: HostInquiry, device: str, port: str, directory: Path) -> InfinibandPort:
        state = inquiry.parse(directory / "state", parse_state)
        rate = inquiry.parse(directory / "rate", parse_rate)
        return InfinibandPort(
            device=device,
            port=port,
            receive_bytes=self._bytes(inquiry, (device, port, "rcv"), directory),
            transmit_bytes=self._bytes(inquiry, (device, port, "xmit"), directory),
            # A port that is down still shows a rate, that of its last link or the least it can do.
            rate_bytes_per_second=rate if state == _ACTIVE and rate else None,
            up=None if state is None else state == _ACTIVE,
        )

    def _bytes(self, inquiry: HostInquiry, key: tuple[str, str, str], directory: Path) -> int | None:
        name = f"port_{key[2]}_data"
        words = inquiry.parse(directory / "counters_ext" / f"{name}_64", parse_words)  # kernels before 4.5
        if words is None:
            words = inquiry.parse(directory / "counters" / name, parse_words)
            words = None if words == _SATURATED else words
        return None if words is None else self._counters.published(key, words) * _BYTES_PER_WORD


def parse_state(text: str) -> int:
    """Number of a port's state.

    >>> parse_state("4: ACTIVE")
    4

    Raises:
        ValueError: the text is no state.
    """
    match = _STATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no state of a port")
    return int(match[1])


def parse_rate(text: str) -> float | None:
    """Bytes a second of a rate; None for the adapter's ``N/A``.

    >>> parse_rate("400 Gb/sec (4X NDR)")
    50000000000.0

    Raises:
        ValueError: the text is no rate.
    """
    if text.strip() == "" or text.startswith("N/A"):
        return None
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no rate of a port")
    return float(match[1]) * _BYTES_PER_SECOND_PER_GIGABIT


def parse_words(text: str) -> int | None:
    """A counter's value; None for ``N/A (no PMA)``, what an adapter says that does not count.

    Raises:
        ValueError: the text is no count, or all ones: the adapter does not answer.
    """
    words = None if text.startswith("N/A") else parse_count(text.strip())
    if words == _NO_ANSWER:
        raise ValueError("all bits are set: the adapter does not answer")
    return words


def _ports(round_: HostRound, adapter: Path) -> list[str]:
    try:
        return [name for name in read_names(adapter / "ports") or () if _PORT.fullmatch(name)]
    except HostReadFailed as failed:
        round_.failures.append(failed.reason)
        return []


def render(reading: HostInfinibandReading) -> Iterator[Sample]:
    """Samples of one reading."""
    for port in reading.ports:
        yield from samples(port, (port.device, port.port))


HOST_INFINIBAND = HostCollector(
    name="host_infiniband",
    about="InfiniBand and RoCE ports",
    tier=Tier.MEDIUM,
    reader=lambda _config: HostInfinibandReader().read,
    render=render,
    # The kernel asks the adapter's firmware for its counters, each time they are read.
    own_lane=True,
)
