"""The PCIe link as it runs now, and what went over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_triage.hardware.integrals import Continued, Unwrapped
from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.plausible import ERRORS, BoundedCounter, CounterLimit
from gpu_triage.hardware.rounds import GpuRound

TRANSMIT_BYTES_FIELD: Final = 197
RECEIVE_BYTES_FIELD: Final = 198
"""NVML_FI_DEV_PCIE_COUNT_TX_BYTES and _RX_BYTES; may wrap."""

_TRAFFIC_LIMIT: Final = CounterLimit(per_second=300e9, most=1 << 62)
"""Bytes: sixteen lanes of generation 6 carry 128 GB/s each way."""

_BUS_TYPE_PCIE: Final = 2
_MOST_GENERATION: Final = 8
_WIDTHS: Final = frozenset({1, 2, 4, 8, 12, 16, 32})


@dataclass(frozen=True, slots=True)
class PcieReading:
    """One GPU's link; None where not reported, or where the GPU is not on PCIe.

    Attributes:
        generation: PCIe generation now.
        width: lanes now.
        generation_transitions: changes of the generation seen since the first reading.
        width_transitions: changes of the width seen since the first reading.
        transmit_bytes: sent by the GPU since the first reading.
        receive_bytes: received by the GPU since the first reading.
        replays: packets sent again, since the driver was loaded.
    """

    generation: int | None
    width: int | None
    generation_transitions: int | None
    width_transitions: int | None
    transmit_bytes: float | None
    receive_bytes: float | None
    replays: float | None


def on_pcie(inquiry: Inquiry) -> bool:
    """Whether the GPU hangs off PCIe (nvmlDeviceGetBusType); drivers that cannot say know no other bus.

    Integrated GPUs answer the link questions too, with numbers that mean nothing.
    """
    return inquiry.ask("nvmlDeviceGetBusType") in (None, _BUS_TYPE_PCIE)


def plausible_generation(inquiry: Inquiry, answer: int | None) -> int | None:
    """A PCIe generation; None when there is none or it cannot be."""
    value = inquiry.within(answer, 1, _MOST_GENERATION)
    return None if value is None else int(value)


def plausible_width(inquiry: Inquiry, answer: int | None) -> int | None:
    """A number of PCIe lanes; None when there is none or no link has so many."""
    if answer is not None and answer not in _WIDTHS:
        inquiry.failures.append("implausible")
        return None
    return answer


class PcieReader:
    """Reads the link, counts its changes, unwraps its byte counters."""

    def __init__(self) -> None:
        self._transmit = BoundedCounter(_TRAFFIC_LIMIT, Unwrapped())
        self._receive = BoundedCounter(_TRAFFIC_LIMIT, Unwrapped())
        self._replays = BoundedCounter(ERRORS, Continued())
        self._generation = _Transitions()
        self._width = _Transitions()

    def read(self, gpu: GpuRound) -> PcieReading:
        """The link now (nvmlDeviceGetCurrPcieLink{Generation,Width}, fields 197 and 198, …PcieReplayCounter)."""
        inquiry, at = gpu.inquiry, gpu.at.monotonic
        if not on_pcie(inquiry):
            return PcieReading(None, None, None, None, None, None, None)
        generation = plausible_generation(inquiry, inquiry.ask("nvmlDeviceGetCurrPcieLinkGeneration"))
        width = plausible_width(inquiry, inquiry.ask("nvmlDeviceGetCurrPcieLinkWidth"))
        counters = inquiry.fields((TRANSMIT_BYTES_FIELD, RECEIVE_BYTES_FIELD))
        replays = inquiry.ask("nvmlDeviceGetPcieReplayCounter")
        return PcieReading(
            generation=generation,
            width=width,
            generation_transitions=self._generation.see(generation),
            width_transitions=self._width.see(width),
            transmit_bytes=self._transmit.add(inquiry, counters.get(TRANSMIT_BYTES_FIELD), at),
            receive_bytes=self._receive.add(inquiry, counters.get(RECEIVE_BYTES_FIELD), at),
            replays=self._replays.add(inquiry, replays, at),
        )


class _Transitions:
    """Counts changes between successive readings."""

    __slots__ = ("_count", "_last")

    def __init__(self) -> None:
        self._last: int | None = None
        self._count = 0

    def see(self, value: int | None) -> int | None:
        if value is None:
            return None if self._last is None else self._count
        if self._last is not None and value != self._last:
            self._count += 1
        self._last = value
        return self._count
