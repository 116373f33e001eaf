"""What the host's InfiniBand and RoCE ports have carried, and whether they can."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_triage.errors import HostReadFailed
from gpu_triage.hardware.bounds import MOST_DEVICES, Bound, is_virtual_function
from gpu_triage.hardware.host_inquiry import HostInquiry
from gpu_triage.hardware.kernel_files import parse_count, read_names
from gpu_triage.hardware.monotone import MonotoneCounters
from gpu_triage.hardware.rounds import HostRound

_BYTES_PER_WORD: Final = 4
"""The unit of port_rcv_data and port_xmit_data, as the InfiniBand specification has it."""

_SATURATED: Final = 0xFFFFFFFF
"""Where a 32-bit counter of an older adapter stays until somebody resets it."""

_BYTES_PER_SECOND_PER_GIGABIT: Final = 1_000_000_000 / 8
_ACTIVE: Final = 4
_STATE: Final = re.compile(r"([0-9])(?::.*)?")
_RATE: Final = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec\b.*")
_PORT: Final = re.compile(r"[0-9]{1,3}")


@dataclass(frozen=True, slots=True)
class InfinibandPort:
    """One port of an adapter; None for what it does not report. No count goes back while this process lives.

    Attributes:
        device: the kernel's name of the adapter (``mlx5_0``).
        port: its number, from 1, as text.
        receive_bytes: since the counter was last reset; None too where a 32-bit counter is full.
        transmit_bytes: likewise.
        rate_bytes_per_second: of the link in each direction; None while it is not up.
        up: whether it carries data (state ``4: ACTIVE``).
    """

    device: str
    port: str
    receive_bytes: int | None
    transmit_bytes: int | None
    rate_bytes_per_second: float | None
    up: bool | None


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
    """Number of a port's state such as ``4: ACTIVE``.

    Raises:
        ValueError: the text is no state.
    """
    match = _STATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no state of a port")
    return int(match[1])


def parse_rate(text: str) -> float | None:
    """Bytes a second of a rate such as ``400 Gb/sec (4X NDR)``; None for the adapter's ``N/A``.

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
        ValueError: the text is no count.
    """
    return None if text.startswith("N/A") else parse_count(text.strip())


def _ports(round_: HostRound, adapter: Path) -> list[str]:
    try:
        return [name for name in read_names(adapter / "ports") or () if _PORT.fullmatch(name)]
    except HostReadFailed as failed:
        round_.failures.append(failed.reason)
        return []
