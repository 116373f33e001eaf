"""The PCIe link of a GPU: speed, traffic and errors; what card, slot and system can do; and throughput on request.

Errors are counted by the GPU, and by the kernel, of the GPU and of the port above it.

The driver's byte counters (NVML_FI_DEV_PCIE_COUNT_TX_BYTES, ..._RX_BYTES: "value can be wrapped") are 32 bits wide in
every resource manager with public source (NvU32 pexCounters[] of NV2080_CTRL_BUS_GET_PEX_UTIL_COUNTERS_PARAMS). A
25 GB/s link wraps them six times per second, and a reading every 5 s cannot distinguish 0.3 GB/s from 12.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.documents.pcie_values import MOST_GENERATION, WIDTHS
from gpu_triage.driver.kernel.files import parse_count, read_text, refuse_unmounted
from gpu_triage.driver.kernel.pci_bus import PcieLink, device_directory, handles_aer, is_emulated, link_of, port_above
from gpu_triage.driver.kernel.procfs import is_virtual_machine
from gpu_triage.driver.nvml import gpm as nvml_gpm
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.errors import HostReadFailed
from gpu_triage.options.config import Config
from gpu_triage.read.gpu.activity import WHOLE, Gpm
from gpu_triage.read.gpu.modes import IN_VIRTUAL_MACHINES, virtualization_mode
from gpu_triage.read.metrics.contract import ExpectedLink, GpuCollector, GpuRound, known
from gpu_triage.read.metrics.driver_counters import ERRORS, CounterLimit, DriverCounter
from gpu_triage.read.metrics.metric import Tier, gpu_counter, gpu_gauge
from gpu_triage.read.metrics.rendering import Each

_BUS_TYPE_PCIE: Final = 2

GPU_PCIE_LINK_GENERATION = gpu_gauge(
    "Current PCIe generation of the link; idle cards reduce it on purpose.",
    source="nvmlDeviceGetCurrPcieLinkGeneration",
)
GPU_PCIE_LINK_WIDTH = gpu_gauge("Current PCIe lanes of the link.", source="nvmlDeviceGetCurrPcieLinkWidth")
GPU_PCIE_LINK_TRANSITIONS_TOTAL = gpu_counter(
    "Changes of the link's generation or width between samples since the exporter started.",
    labels={"attribute": ("generation", "width")},
    source="the exporter, from successive readings",
)
GPU_PCIE_TRANSMIT_BYTES_TOTAL = gpu_counter(
    "Bytes the GPU sent over PCIe since the exporter started: by GPM on Hopper and later, else by the driver's "
    "counter, which is absent until it exceeds 32 bits.",
    source="GPM 20 (PCIE_TX_PER_SEC); field 197",
)
GPU_PCIE_RECEIVE_BYTES_TOTAL = gpu_counter(
    "Bytes the GPU received over PCIe since the exporter started. Absent when gpu_pcie_transmit_bytes_total is.",
    source="GPM 21 (PCIE_RX_PER_SEC); field 198",
)
GPU_PCIE_REPLAYS_TOTAL = gpu_counter(
    "PCIe packets resent after a link error since the driver was loaded.", source="nvmlDeviceGetPcieReplayCounter"
)


@dataclass(frozen=True, slots=True)
class PcieReading:
    """PCIe link of one GPU; None where not reported, or if the GPU is not on PCIe."""

    generation: Annotated[int | None, GPU_PCIE_LINK_GENERATION] = None
    width: Annotated[int | None, GPU_PCIE_LINK_WIDTH] = None
    generation_transitions: Annotated[int | None, GPU_PCIE_LINK_TRANSITIONS_TOTAL, "generation"] = None
    width_transitions: Annotated[int | None, GPU_PCIE_LINK_TRANSITIONS_TOTAL, "width"] = None
    transmit_bytes: Annotated[float | None, GPU_PCIE_TRANSMIT_BYTES_TOTAL] = None
    receive_bytes: Annotated[float | None, GPU_PCIE_RECEIVE_BYTES_TOTAL] = None
    replays: Annotated[float | None, GPU_PCIE_REPLAYS_TOTAL] = None


def on_pcie(inquiry: Inquiry) -> bool:
    """Whether the GPU is attached by PCIe (nvmlDeviceGetBusType); assumed if the driver cannot report the bus type.

    Integrated GPUs answer the link queries too, but with meaningless numbers.
    """
    return inquiry.ask("nvmlDeviceGetBusType") in (None, _BUS_TYPE_PCIE)


def plausible_generation(inquiry: Inquiry, answer: int | None) -> int | None:
    return inquiry.within(answer, 1, MOST_GENERATION)


def plausible_width(inquiry: Inquiry, answer: int | None) -> int | None:
    if answer is not None and answer not in WIDTHS:
        inquiry.failures.append("implausible")
        return None
    return answer


class PcieReader:
    def __init__(self, max_gap_seconds: float, retry_seconds: float) -> None:
        self._traffic = PcieTraffic(max_gap_seconds, retry_seconds)
        self._replays = DriverCounter(ERRORS)
        self._generation = _Transitions()
        self._width = _Transitions()

    def read(self, gpu: GpuRound) -> PcieReading:
        inquiry, at = gpu.inquiry, gpu.at.monotonic
        if not on_pcie(inquiry):
            return PcieReading()
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
            replays=self._replays.read(inquiry, replays, at),
        )


TRANSMIT: Final = "transmit"
RECEIVE: Final = "receive"
"""Directions, from the GPU's perspective."""

_FIELDS: Final = {TRANSMIT: 197, RECEIVE: 198}  # NVML_FI_DEV_PCIE_COUNT_TX_BYTES and _RX_BYTES
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
        self._gpm = Gpm(tuple(_GPM_METRICS.values()), max_gap_seconds, retry_seconds)
        self._averaged: dict[str, float] = {}
        self._counters = {direction: _WideCounter() for direction in _FIELDS}

    def read(self, gpu: GpuRound) -> Mapping[str, float]:
        """Bytes so far (GPM metrics 20 and 21, or fields 197 and 198); unknown directions are missing."""
        averages = self._gpm.read(gpu)
        if averages is not None:
            return self._integrate(averages[WHOLE])
        counted = gpu.inquiry.fields(_FIELDS.values())
        totals = {
            direction: self._counters[direction].add(gpu.inquiry, counted.get(field), gpu.at.monotonic)
            for direction, field in _FIELDS.items()
        }
        return {direction: self._averaged.get(direction, 0.0) + total for direction, total in known(totals).items()}

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
        self._counter: DriverCounter | None = None
        self._exceeded = False
        self.total = 0.0

    def add(self, inquiry: Inquiry, raw: float | None, at: float) -> float | None:
        if self._counter is None:
            exceeds = raw is not None and _MOST_32_BIT < raw <= _LIMIT.most
            if raw is None or not (exceeds and self._exceeded):
                self._exceeded = exceeds
                return None
            self._counter = DriverCounter(_LIMIT, start=raw)
        total = self._counter.read(inquiry, raw, at)
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
    about="PCIe generation, width, traffic and replays",
    tier=Tier.MEDIUM,
    reader=lambda config: (
        PcieReader(config.stale_after * config.sample_medium_seconds, config.sample_slow_seconds).read
    ),
)

_NO_LINK = PcieLink(None, None, None, None)

GPU_PCIE_LINK_DEVICE_MAX_GENERATION = gpu_gauge(
    "Highest PCIe generation of the card.", source="nvmlDeviceGetGpuMaxPcieLinkGeneration, else sysfs max_link_speed"
)
GPU_PCIE_LINK_DEVICE_MAX_WIDTH = gpu_gauge("Most PCIe lanes of the card.", source="sysfs max_link_width")
GPU_PCIE_LINK_SLOT_MAX_GENERATION = gpu_gauge(
    "Highest PCIe generation of the port above the card; absent if that port is not visible, or emulated.",
    source="sysfs max_link_speed of the upstream port",
)
GPU_PCIE_LINK_SLOT_MAX_WIDTH = gpu_gauge(
    "Most PCIe lanes of the port above the card; absent if that port is not visible, or emulated.",
    source="sysfs max_link_width of the upstream port",
)
GPU_PCIE_LINK_EXPECTED_GENERATION = gpu_gauge(
    "PCIe generation this link should reach under load: declared, else the baseline's, else the most that card, slot "
    "and driver support; absent if unknown, as in a virtual machine that does not show the slot.",
    source="--expect.pcie-generation, else the baseline, else card, slot and nvmlDeviceGetMaxPcieLinkGeneration",
)
GPU_PCIE_LINK_EXPECTED_WIDTH = gpu_gauge(
    "PCIe lanes this link should have: declared, else the baseline's, else the most that card, slot and driver "
    "support; absent if unknown, as in a virtual machine that does not show the slot.",
    source="--expect.pcie-width, else the baseline, else card, slot and nvmlDeviceGetMaxPcieLinkWidth",
)

GPU_PCIE_LINK_EXPECTED_WIDTH_DECLARED = gpu_gauge(
    "1 if the expected width is declared or from the baseline, so that the link once had it. Absent if derived from "
    "card, slot and driver.",
    source="the baseline",
)


@dataclass(frozen=True, slots=True)
class PcieLimitsReading:
    device_generation: Annotated[int | None, GPU_PCIE_LINK_DEVICE_MAX_GENERATION] = None
    device_width: Annotated[int | None, GPU_PCIE_LINK_DEVICE_MAX_WIDTH] = None
    slot_generation: Annotated[int | None, GPU_PCIE_LINK_SLOT_MAX_GENERATION] = None
    slot_width: Annotated[int | None, GPU_PCIE_LINK_SLOT_MAX_WIDTH] = None
    system_generation: int | None = None
    system_width: int | None = None
    slot_hidden: bool = False  # whether a virtual machine does not show the slot, which may give less than the others


def read_pcie_limits(gpu: GpuRound, *, virtual: bool = False) -> PcieLimitsReading:
    inquiry = gpu.inquiry
    if not on_pcie(inquiry):
        return PcieLimitsReading()
    sysfs, bus_id = gpu.machine.sysfs, inquiry.device.pci_bus_id
    card = link_of(sysfs, bus_id) if bus_id else _NO_LINK
    port = port_above(sysfs, bus_id) if bus_id else None
    slot = link_of(sysfs, port) if port and not is_emulated(sysfs, port) else _NO_LINK
    card_generation = plausible_generation(inquiry, inquiry.ask("nvmlDeviceGetGpuMaxPcieLinkGeneration"))
    return PcieLimitsReading(
        device_generation=card.max_generation if card_generation is None else card_generation,
        device_width=card.max_width,
        slot_generation=slot.max_generation,
        slot_width=slot.max_width,
        system_generation=plausible_generation(inquiry, inquiry.ask("nvmlDeviceGetMaxPcieLinkGeneration")),
        system_width=plausible_width(inquiry, inquiry.ask("nvmlDeviceGetMaxPcieLinkWidth")),
        slot_hidden=virtual and slot.max_width is None,
    )


@dataclass(frozen=True, slots=True)
class LinkExpectation:
    limits: Annotated[PcieLimitsReading, Each()]
    generation: Annotated[int | None, GPU_PCIE_LINK_EXPECTED_GENERATION]
    width: Annotated[int | None, GPU_PCIE_LINK_EXPECTED_WIDTH]
    width_declared: Annotated[bool | None, GPU_PCIE_LINK_EXPECTED_WIDTH_DECLARED] = None


def expectation_of(
    limits: PcieLimitsReading, generation: int | None = None, width: int | None = None
) -> LinkExpectation:
    """Return what is expected of a link, with what is declared or recorded of it; nothing if there is no link."""

    def expected(chosen: int | None, *supported: int | None) -> int | None:
        least = min((each for each in supported if each is not None), default=None)
        return least and (chosen or (None if limits.slot_hidden else least))

    lanes = expected(width, limits.device_width, limits.slot_width, limits.system_width)
    return LinkExpectation(
        limits,
        generation=expected(generation, limits.device_generation, limits.slot_generation, limits.system_generation),
        width=lanes,
        width_declared=True if width and lanes else None,
    )


class ExpectedLinkReader:
    """Reads the limits; a declared or recorded expectation overrides the derived one, on links that exist."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._is_virtual: bool | None = None  # None until the kernel reports it

    def read(self, gpu: GpuRound) -> LinkExpectation:
        config, recorded = self._config, gpu.recorded_link or ExpectedLink()
        mode = virtualization_mode(gpu.inquiry)
        if mode is None and self._is_virtual is None:
            self._is_virtual = is_virtual_machine(gpu.machine.procfs, gpu.machine.sysfs)
        virtual = bool(self._is_virtual) if mode is None else mode in IN_VIRTUAL_MACHINES
        limits = read_pcie_limits(gpu, virtual=virtual)
        generation = config.expect_pcie_generation or recorded.generation
        return expectation_of(limits, generation, config.expect_pcie_width or recorded.width)


PCIE_LIMITS = GpuCollector(
    about="PCIe capabilities of card, slot and system",
    tier=Tier.SLOW,
    reader=lambda config: ExpectedLinkReader(config).read,
)

DIRECTIONS: Final = {"transmit": 0, "receive": 1}  # label to nvmlPcieUtilCounter_t
_BYTES_PER_KB: Final = 1000
_MOST_KB_PER_SECOND: Final = 1 << 30

GPU_PCIE_THROUGHPUT_BYTES_PER_SECOND = gpu_gauge(
    "PCIe traffic over a 20 ms window. Off by default: each reading blocks that long.",
    labels={"direction": DIRECTIONS},
    source="nvmlDeviceGetPcieThroughput",
)


@dataclass(frozen=True, slots=True)
class PcieThroughputReading:
    bytes_per_second: Annotated[Mapping[str, float], GPU_PCIE_THROUGHPUT_BYTES_PER_SECOND]


def read_pcie_throughput(gpu: GpuRound) -> PcieThroughputReading:
    inquiry = gpu.inquiry
    if not on_pcie(inquiry):
        return PcieThroughputReading({})
    rates = {
        label: inquiry.within(inquiry.ask("nvmlDeviceGetPcieThroughput", counter), 0, _MOST_KB_PER_SECOND)
        for label, counter in DIRECTIONS.items()
    }
    return PcieThroughputReading({label: rate * _BYTES_PER_KB for label, rate in known(rates).items()})


PCIE_THROUGHPUT = GpuCollector(
    about="PCIe traffic by a call that blocks 40 ms per GPU",
    tier=Tier.MEDIUM,
    reader=lambda _config: read_pcie_throughput,
    default=False,
)

TYPE_FIELDS: Final = {
    "correctable": 173,
    "naks_received": 174,
    "receiver": 175,
    "bad_tlp": 176,
    "naks_sent": 177,
    "bad_dllp": 178,
    "non_fatal": 179,
    "fatal": 180,
    "unsupported_request": 181,
    "lcrc": 182,
    "lane": 183,
    "l0_to_recovery": 169,
}
"""Label to NVML_FI_DEV_PCIE_COUNT_* (173-183) and NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER (169)."""

GPU_PCIE_ERRORS_TOTAL = gpu_counter(
    "PCIe link errors counted by the GPU, by type: {type}. The last also grows at speed changes. Types that driver or "
    "board do not count are absent.",
    labels={"type": TYPE_FIELDS},
    source="fields 173-183 and 169",
)


@dataclass(frozen=True, slots=True)
class PcieErrorsReading:
    errors: Annotated[Mapping[str, float], GPU_PCIE_ERRORS_TOTAL]


class PcieErrorsReader:
    def __init__(self) -> None:
        self._counters = {label: DriverCounter(ERRORS) for label in TYPE_FIELDS}

    def read(self, gpu: GpuRound) -> PcieErrorsReading:
        inquiry = gpu.inquiry
        if not on_pcie(inquiry):
            return PcieErrorsReading({})
        counted = inquiry.fields(TYPE_FIELDS.values())
        counts = {
            label: self._counters[label].read(inquiry, counted.get(field), gpu.at.monotonic)
            for label, field in TYPE_FIELDS.items()
        }
        return PcieErrorsReading(known(counts))


PCIE_ERRORS = GpuCollector("PCIe errors counted by the GPU", Tier.MEDIUM, lambda _config: PcieErrorsReader().read)

TOTALS: Final = {"correctable": "TOTAL_ERR_COR", "nonfatal": "TOTAL_ERR_NONFATAL", "fatal": "TOTAL_ERR_FATAL"}
"""Severity (also the suffix of the file name) to the name of the line with the total."""

_LIMIT_BYTES: Final = 1 << 16

GPU_PCIE_AER_ERRORS_TOTAL = gpu_counter(
    "PCIe errors reported to the kernel (AER), by reporter (gpu, or the port at the other end of its link) and "
    "severity ({severity}). Absent without AER, as in most virtual machines; if the firmware handles these errors, "
    "also while 0.",
    labels={"device": ("gpu", "port"), "severity": TOTALS},
    source="sysfs aer_dev_{correctable,nonfatal,fatal}",
)


@dataclass(frozen=True, slots=True)
class PcieAerReading:
    gpu: Annotated[Mapping[str, float], GPU_PCIE_AER_ERRORS_TOTAL, "gpu"]
    port: Annotated[Mapping[str, float], GPU_PCIE_AER_ERRORS_TOTAL, "port"]


class PcieAerReader:
    """Reads both ends, and continues the counters when a device reappears. Only uses kernel files."""

    def __init__(self) -> None:
        self._counters: defaultdict[tuple[str, str], DriverCounter] = defaultdict(DriverCounter)
        self._handled: dict[str, bool | None] = {}

    def read(self, gpu: GpuRound) -> PcieAerReading:
        """Read the errors (``aer_dev_*`` under ``/sys/bus/pci/devices``) of the GPU and its upstream port.

        An error may be reported by one end only: by the port alone once the GPU no longer answers.
        """
        refuse_unmounted(gpu.machine.sysfs)
        bus_id = gpu.inquiry.device.pci_bus_id
        if bus_id is None:
            return PcieAerReading({}, {})
        port = port_above(gpu.machine.sysfs, bus_id)
        if self._handled.get(bus_id) is None:
            # Decided at boot, so cache it; unknown while the GPU is not on the bus.
            self._handled = {bus_id: handles_aer(gpu.machine.sysfs, bus_id)}
        handled = self._handled[bus_id] is not False
        return PcieAerReading(
            gpu=_meaningful(self._errors(gpu, "gpu", bus_id), handled=handled),
            port={} if port is None else _meaningful(self._errors(gpu, "port", port), handled=handled),
        )

    def _errors(self, gpu: GpuRound, end: str, bus_id: str) -> Mapping[str, float]:
        counts = known({severity: self._count(gpu, bus_id, severity) for severity in TOTALS})
        return {name: self._counters[end, name].add(count, gpu.at.monotonic) for name, count in counts.items()}

    def _count(self, gpu: GpuRound, bus_id: str, severity: str) -> int | None:
        path = f"{device_directory(gpu.machine.sysfs, bus_id)}/aer_dev_{severity}"
        try:
            text = read_text(path, limit=_LIMIT_BYTES)
        except HostReadFailed as failed:
            gpu.inquiry.failures.append(failed.reason)
            return None
        if text is None:
            return None
        count = parse_aer_total(text, severity)
        if count is None:
            gpu.inquiry.failures.append("malformed")
        return count


def _meaningful(counts: Mapping[str, float], *, handled: bool) -> Mapping[str, float]:
    """Drop zeros if the firmware handles AER: then errors rarely reach the kernel, so 0 is meaningless."""
    return counts if handled else {severity: count for severity, count in counts.items() if count}


def parse_aer_total(text: str, severity: str) -> int | None:
    """Parse the total of this severity from an ``aer_dev_*`` file; None if there is no such line.

    Format: lines ``Name N``, the last one ``TOTAL_ERR_COR N``. Error names may contain spaces and differ between
    kernels; only the line with the total is read, and malformed lines are skipped.
    """
    for line in text.splitlines():
        name, _, number = line.strip().rpartition(" ")
        if name.rstrip() == TOTALS[severity]:
            try:
                return parse_count(number)
            except ValueError:
                continue
    return None


PCIE_AER = GpuCollector(
    about="PCIe errors of the GPU and the port above it, counted by the kernel",
    tier=Tier.MEDIUM,
    reader=lambda _config: PcieAerReader().read,
)
