"""The PCIe link: current generation and width, transitions, traffic and replays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.documents.pcie import MOST_GENERATION, WIDTHS
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.options.config import Config
from gpu_triage.read.gpu.pcie_traffic import RECEIVE, TRANSMIT, PcieTraffic
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.integrals import ContinuedCounter
from gpu_triage.read.metrics.metric import Tier, gpu_counter, gpu_gauge
from gpu_triage.read.metrics.plausible import ERRORS, BoundedCounter
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


def _reader(config: Config) -> PcieReader:
    return PcieReader(config.stale_after * config.sample_medium_seconds, config.sample_slow_seconds)


PCIE = GpuCollector(
    name="pcie",
    about="PCIe generation, width, traffic and replays",
    tier=Tier.MEDIUM,
    reader=lambda config: _reader(config).read,
)
