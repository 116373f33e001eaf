"""The PCIe link: current generation and width, transitions, traffic and replays.

The driver's byte counters (NVML_FI_DEV_PCIE_COUNT_TX_BYTES, ..._RX_BYTES: "value can be wrapped") are 32 bits wide in
every resource manager with public source (NvU32 pexCounters[] of NV2080_CTRL_BUS_GET_PEX_UTIL_COUNTERS_PARAMS). A
25 GB/s link wraps them six times per second, and a reading every 5 s cannot distinguish 0.3 GB/s from 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.documents.pcie import MOST_GENERATION, WIDTHS
from gpu_triage.driver.nvml import gpm as nvml_gpm
from gpu_triage.driver.nvml.gpm import GpmMetrics
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.read.gpu.gpm import DeviceGpm
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.integrals import ContinuedCounter
from gpu_triage.read.metrics.metric import Tier, gpu_counter, gpu_gauge
from gpu_triage.read.metrics.plausible import ERRORS, BoundedCounter, CounterLimit
from gpu_triage.read.metrics.rounds import GpuRound

_BUS_TYPE_PCIE: Final = 2

GPU_PCIE_LINK_GENERATION = gpu_gauge(
    "gpu_pcie_link_generation",
    "PCIe generation the link runs at now; idle cards shift down on purpose.",
    source="nvmlDeviceGetCurrPcieLinkGeneration",
)
GPU_PCIE_LINK_WIDTH = gpu_gauge(
    "gpu_pcie_link_width", "PCIe lanes the link runs with now.", source="nvmlDeviceGetCurrPcieLinkWidth"
)
GPU_PCIE_LINK_TRANSITIONS_TOTAL = gpu_counter(
    "gpu_pcie_link_transitions_total",
    "Changes of the link's generation or width seen between samples since the exporter started.",
    labels={"attribute": ("generation", "width")},
    source="the exporter, from successive readings",
)
GPU_PCIE_TRANSMIT_BYTES_TOTAL = gpu_counter(
    "gpu_pcie_transmit_bytes_total",
    "Bytes the GPU sent over PCIe since the exporter started: by GPM on Hopper and later, elsewhere by the driver's "
    "counter. The latter is absent until its value has exceeded 32 bits, because a narrower one wraps several times "
    "between two readings. gpu_pcie_throughput_bytes_per_second shows samples, if that collector is on.",
    source="GPM metric 20 (PCIE_TX_PER_SEC); field 197",
)
GPU_PCIE_RECEIVE_BYTES_TOTAL = gpu_counter(
    "gpu_pcie_receive_bytes_total",
    "Bytes the GPU received over PCIe since the exporter started. Presence as gpu_pcie_transmit_bytes_total.",
    source="GPM metric 21 (PCIE_RX_PER_SEC); field 198",
)
GPU_PCIE_REPLAYS_TOTAL = gpu_counter(
    "gpu_pcie_replays_total",
    "PCIe packets sent again after a link error, as the driver counts them since it was loaded.",
    source="nvmlDeviceGetPcieReplayCounter",
)


@dataclass(frozen=True, slots=True)
class PcieReading:
    """PCIe link of one GPU; None where not reported, or if the GPU is not on PCIe."""

    generation: Annotated[int | None, GPU_PCIE_LINK_GENERATION]
    width: Annotated[int | None, GPU_PCIE_LINK_WIDTH]
    generation_transitions: Annotated[int | None, GPU_PCIE_LINK_TRANSITIONS_TOTAL, "generation"]
    width_transitions: Annotated[int | None, GPU_PCIE_LINK_TRANSITIONS_TOTAL, "width"]
    transmit_bytes: Annotated[float | None, GPU_PCIE_TRANSMIT_BYTES_TOTAL]
    receive_bytes: Annotated[float | None, GPU_PCIE_RECEIVE_BYTES_TOTAL]
    replays: Annotated[float | None, GPU_PCIE_REPLAYS_TOTAL]


def on_pcie(inquiry: Inquiry) -> bool:
    """Whether the GPU is attached by PCIe (nvmlDeviceGetBusType); assumed if the driver cannot report the bus type.

    Integrated GPUs answer the link queries too, but with meaningless numbers.
    """
    return inquiry.ask("nvmlDeviceGetBusType") in (None, _BUS_TYPE_PCIE)


def plausible_generation(inquiry: Inquiry, answer: int | None) -> int | None:
    """Validate a PCIe generation; None if missing or implausible."""
    value = inquiry.within(answer, 1, MOST_GENERATION)
    return None if value is None else int(value)


def plausible_width(inquiry: Inquiry, answer: int | None) -> int | None:
    """Validate a number of PCIe lanes; None if missing or not a valid width."""
    if answer is not None and answer not in WIDTHS:
        inquiry.failures.append("implausible")
        return None
    return answer


class PcieReader:
    """Reads the link, and counts its transitions and traffic."""

    def __init__(self, max_gap_seconds: float, retry_seconds: float) -> None:
        self._traffic = PcieTraffic(max_gap_seconds, retry_seconds)
        self._replays = BoundedCounter(ERRORS, ContinuedCounter())
        self._generation = _Transitions()
        self._width = _Transitions()

    def read(self, gpu: GpuRound) -> PcieReading:
        """Read the link (nvmlDeviceGetCurrPcieLink{Generation,Width}, …PcieReplayCounter) and its traffic."""
        inquiry, at = gpu.inquiry, gpu.at.monotonic
        if not on_pcie(inquiry):
            return PcieReading(None, None, None, None, None, None, None)
        generation = plausible_generation(inquiry, inquiry.ask("nvmlDeviceGetCurrPcieLinkGeneration"))
        width = plausible_width(inquiry, inquiry.ask("nvmlDeviceGetCurrPcieLinkWidth"))
        traffic = self._traffic.read(gpu)
        replays = inquiry.ask("nvmlDeviceGetPcieReplayCounter")
        return PcieReading(
            generation=generation,
            width=width,
            generation_transitions=self._generation.see(generation),
            width_transitions=self._width.see(width),
            transmit_bytes=traffic.get(TRANSMIT),
            receive_bytes=traffic.get(RECEIVE),
            replays=self._replays.add(inquiry, replays, at),
        )


TRANSMIT: Final = "transmit"
RECEIVE: Final = "receive"
"""Directions, from the GPU's perspective."""

_FIELDS: Final = {TRANSMIT: 197, RECEIVE: 198}
"""NVML_FI_DEV_PCIE_COUNT_TX_BYTES and _RX_BYTES."""

_GPM_METRICS: Final = {TRANSMIT: nvml_gpm.PCIE_TRANSMITTED, RECEIVE: nvml_gpm.PCIE_RECEIVED}

_LIMIT: Final = CounterLimit(per_second=300e9, most=1 << 62)
"""Bytes: sixteen lanes of generation 7 carry less than 256 GB/s per direction."""

_MOST_32_BIT: Final = (1 << 32) - 1


class PcieTraffic:
    """Bytes over one GPU's link since the exporter started, by direction.

    Uses GPM's averages if available: each covers the time between two samples, so no traffic is missed. Otherwise the
    driver's counter, once it has proved to be wider than 32 bits. Otherwise nothing.
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
    """A byte counter, used only once two readings in a row exceeded 32 bits (the first may be garbage)."""

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


class _Transitions:
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


PCIE = GpuCollector(
    name="pcie",
    about="PCIe generation, width, traffic and replays",
    tier=Tier.MEDIUM,
    reader=lambda config: (
        PcieReader(config.stale_after * config.sample_medium_seconds, config.sample_slow_seconds).read
    ),
)
