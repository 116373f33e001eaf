"""Count bytes over a GPU's PCIe link, from a source that works at full speed.

The driver's byte counters (NVML_FI_DEV_PCIE_COUNT_TX_BYTES, ..._RX_BYTES: "value can be wrapped") are 32 bits wide in
every resource manager with public source (NvU32 pexCounters[] of NV2080_CTRL_BUS_GET_PEX_UTIL_COUNTERS_PARAMS). A
25 GB/s link wraps them six times per second, and a reading every 5 s cannot distinguish 0.3 GB/s from 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpu_triage.driver.nvml import gpm as nvml_gpm
from gpu_triage.driver.nvml.gpm import GpmMetrics
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.read.gpu.gpm import DeviceGpm
from gpu_triage.read.metrics.integrals import ContinuedCounter
from gpu_triage.read.metrics.plausible import BoundedCounter, CounterLimit
from gpu_triage.read.metrics.rounds import GpuRound

TRANSMIT: Final = "transmit"
RECEIVE: Final = "receive"
"""Directions, from the GPU's perspective."""

_FIELDS: Final = MappingProxyType({TRANSMIT: 197, RECEIVE: 198})
"""NVML_FI_DEV_PCIE_COUNT_TX_BYTES and _RX_BYTES."""

_GPM_METRICS: Final = MappingProxyType({TRANSMIT: nvml_gpm.PCIE_TRANSMITTED, RECEIVE: nvml_gpm.PCIE_RECEIVED})

_LIMIT: Final = CounterLimit(per_second=300e9, most=1 << 62)
"""Bytes: sixteen lanes of generation 7 carry less than 256 GB/s per direction."""

_MOST_32_BIT: Final = (1 << 32) - 1


class PcieTraffic:
    """Bytes over one GPU's link since the exporter started, by direction.

    Uses GPM's averages if available: each covers the time between two samples, so no traffic is missed. Otherwise the
    driver's counter, once it has proved to be wider than 32 bits. Otherwise nothing.

    Args:
        max_gap_seconds: longest time between two GPM samples that counts.
        retry_seconds: how long a GPM refusal is cached.
    """

    def __init__(self, max_gap_seconds: float, retry_seconds: float) -> None:
        self._gpm = DeviceGpm(GpmMetrics(*_GPM_METRICS.values()), max_gap_seconds, retry_seconds)
        self._averaged: dict[str, float] = {}
        self._counters = {direction: _WideCounter() for direction in _FIELDS}

    def read(self, gpu: GpuRound) -> Mapping[str, float]:
        """Bytes so far (GPM metrics 20 and 21, or fields 197 and 198); unknown directions are missing."""
        averages = self._gpm.read(gpu)
        if averages is not None:
            return self._integrate(averages)
        counted = gpu.inquiry.fields(_FIELDS.values())
        totals: dict[str, float] = {}
        for direction, field in _FIELDS.items():
            counter = self._counters[direction]
            total = counter.add(gpu.inquiry, counted.get(field), gpu.at.monotonic)
            if total is not None:
                totals[direction] = self._averaged.get(direction, 0.0) + total
        return totals

    def _integrate(self, averages: Mapping[int, float]) -> dict[str, float]:
        totals: dict[str, float] = {}
        for direction, metric in _GPM_METRICS.items():
            spanned_seconds = self._gpm.spanned_seconds
            if metric in averages:
                more = averages[metric] * spanned_seconds
                self._averaged[direction] = self._averaged.get(direction, 0.0) + more
            elif spanned_seconds or direction not in self._averaged:
                # The first sample of a session has no average, but the earlier total remains valid.
                continue
            totals[direction] = self._averaged[direction] + self._counters[direction].total
        return totals


class _WideCounter:
    """A byte counter, used only once two readings in a row exceeded 32 bits (the first may be garbage).

    Attributes:
        total: bytes since it proved its width.
    """

    __slots__ = ("_counter", "_exceeded", "total")

    def __init__(self) -> None:
        self._counter: BoundedCounter | None = None
        self._exceeded = False
        self.total = 0.0

    def add(self, inquiry: Inquiry, raw: float | None, at: float) -> float | None:
        if self._counter is None:
            exceeds = raw is not None and _MOST_32_BIT < raw <= _LIMIT.most
            if raw is None or not (exceeds and self._exceeded):
                self._exceeded = exceeds
                return None
            counter = ContinuedCounter()
            counter.rebase(raw)
            self._counter = BoundedCounter(_LIMIT, counter)
        total = self._counter.add(inquiry, raw, at)
        self.total = self.total if total is None else total
        return total
