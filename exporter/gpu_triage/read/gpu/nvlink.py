"""NVLinks of a GPU: their state and capability, their counters of errors and bytes, and the quality of the signal.

Also NVLink-C2C: the links between a GPU and the Grace CPU of its module.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.lists import FieldId
from gpu_triage.driver.nvml.structs import far_end, in_fabric
from gpu_triage.read.gpu.modes import mig_mode
from gpu_triage.read.metrics.contract import GpuCollector, GpuLabels, GpuRound, known
from gpu_triage.read.metrics.driver_counters import ERRORS, CounterLimit, LinkCounter
from gpu_triage.read.metrics.metric import ANY, Sample, Tier, gpu_counter, gpu_gauge, no_sample
from gpu_triage.read.metrics.rendering import samples

REPLAY, RECOVERY, CRC = "replay", "recovery", "crc"
RECOVERY_FAILED: Final = "recovery_failed"
ERROR_TYPES: Final = (REPLAY, RECOVERY, RECOVERY_FAILED, CRC)
TRANSMIT, RECEIVE = "transmit", "receive"

_BYTES_PER_KIB: Final = 1024
_LINKS_WITH_OWN_FIELDS: Final = 12
_LINKS_OF_FIRST_BLOCK: Final = 6


@dataclass(frozen=True, slots=True)
class Source:
    """One way to read a counter of a link: a field with the link as scope."""

    field: int
    # Field ID of link 6, for older drivers with a field for each of twelve links; `field` is link 0's.
    second: int | None = None
    scale: int = 1  # factor from the counter's unit to the published unit

    def of(self, link: int) -> FieldId | None:
        if self.second is None:
            return (self.field, link)
        if link >= _LINKS_WITH_OWN_FIELDS:
            return None
        return self.field + link if link < _LINKS_OF_FIRST_BLOCK else self.second + link - _LINKS_OF_FIRST_BLOCK


SOURCES: Final[Mapping[str, tuple[Source, ...]]] = {
    # NVML_FI_DEV_NVLINK_ERROR_DL_* (161-163), before r520 NVML_FI_DEV_NVLINK_*_ERROR_COUNT_L*, and for
    # recoveries on Blackwell NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS (215).
    REPLAY: (Source(161), Source(46, 108)),
    RECOVERY: (Source(162), Source(215), Source(53, 114)),
    # NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS.
    RECOVERY_FAILED: (Source(214),),
    CRC: (Source(163), Source(32, 96)),
    # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_* (138, 139), else NVML_FI_DEV_NVLINK_COUNT_{XMIT,RCV}_BYTES.
    TRANSMIT: (Source(138, scale=_BYTES_PER_KIB), Source(202)),
    RECEIVE: (Source(139, scale=_BYTES_PER_KIB), Source(204)),
}
"""Ways to read each counter, preferred first."""


LINK_COUNT_FIELD: Final = 91
STATE_FIELD: Final = 165
"""NVML_FI_DEV_NVLINK_LINK_COUNT and, with the link as scope, NVML_FI_DEV_NVLINK_GET_STATE."""

SPEED_FIELD: Final = 164
COMMON_SPEED_FIELD: Final = 90
"""NVML_FI_DEV_NVLINK_GET_SPEED, with the link as scope, and before r520 NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON. Both are
the line rate per direction in megabytes per second, 0 for a link that is not active."""
_BYTES_PER_MB: Final = 1e6
_FULL_SPEEDS: Final = {6: 26_562.0, 7: 53_125.0}
"""Line rate of every link of NVLink 4 and 5, by NVML_NVLINK_VERSION_*; that of earlier ones depends on the board."""
_MOST_MB_PER_SECOND: Final = 200_000

STATES: Final = {0: False, 1: True, 2: True, 3: False}
"""NVML_NVLINK_STATE_* to whether data can pass: inactive, active, sleep (wakes automatically), traffic disabled."""

_TRAFFIC_LIMIT: Final = CounterLimit(per_second=200e9, most=1 << 62)
"""Bytes: a fifth-generation link carries 50 GB/s per direction."""

_LIMITS: Final = {**dict.fromkeys(ERROR_TYPES, ERRORS), TRANSMIT: _TRAFFIC_LIMIT, RECEIVE: _TRAFFIC_LIMIT}

MOST_LINKS: Final = 64

GPU_NVLINK_LINKS = gpu_gauge(
    "Connected NVLink links of the GPU. Not counted: links without a bridge or unused by the board. Absent without "
    "any, and, like all NVLink metrics, while MIG splits the GPU.",
    source="fields 91 and 165, else nvmlDeviceGetNvLinkState",
)
GPU_NVLINK_LINKS_UP = gpu_gauge(
    "Links of gpu_nvlink_links that are active or asleep (they wake by themselves). Absent if the driver reports no "
    "link state.",
    source="field 165, else nvmlDeviceGetNvLinkState",
)
GPU_NVLINK_ERRORS_TOTAL = gpu_counter(
    "NVLink errors of the GPU by type ({type}), since the driver was loaded. Absent, because not counted: replay and "
    "crc on Blackwell, recovery_failed (the link is then down) before it. Never decreases while the exporter runs.",
    labels={"type": ERROR_TYPES},
    source="fields 161-163, else 214, 215, 32-59, 96-119",
)
GPU_NVLINK_TRANSMIT_BYTES_TOTAL = gpu_counter(
    "Data the GPU sent over NVLink since the driver was loaded; with protocol overhead only if the driver cannot "
    "exclude it. Never decreases while the exporter runs.",
    source="field 138, else 202",
)
GPU_NVLINK_RECEIVE_BYTES_TOTAL = gpu_counter(
    "Data the GPU received over NVLink since the driver was loaded; with protocol overhead only if the driver cannot "
    "exclude it. Never decreases while the exporter runs.",
    source="field 139, else 204",
)
GPU_NVLINK_UP = gpu_gauge(
    "1 while the NVLink link is active or asleep, 0 while it is inactive or its traffic is disabled. Only links that "
    "are down; with --metrics.profile full all of gpu_nvlink_links.",
    labels=("link",),
    source="field 165, else nvmlDeviceGetNvLinkState",
    default_samples=lambda sample: not sample.value,
)
GPU_NVLINK_LINK_ERRORS_TOTAL = gpu_counter(
    "Errors of one NVLink link by type. Only links with errors; with --metrics.profile full all.",
    labels={"link": ANY, "type": ERROR_TYPES},
    source="as gpu_nvlink_errors_total",
    default_samples=lambda sample: bool(sample.value),
)
_link_counter = partial(gpu_counter, labels=("link",), default_samples=no_sample)

GPU_NVLINK_LINK_TRANSMIT_BYTES_TOTAL = _link_counter(
    "Data sent over one NVLink link since the driver was loaded.", source="as gpu_nvlink_transmit_bytes_total"
)
GPU_NVLINK_LINK_RECEIVE_BYTES_TOTAL = _link_counter(
    "Data received over one NVLink link since the driver was loaded.", source="as gpu_nvlink_receive_bytes_total"
)
GPU_NVLINK_BANDWIDTH_BYTES_PER_SECOND = gpu_gauge(
    "Line rate per direction of the GPU's active NVLink links, by PCI address at the far end: another GPU's or an "
    "NVSwitch's; empty if the driver does not name it. Absent if the driver reports no speed.",
    labels={"far_end": ANY},
    source="field 164, else 90; nvmlDeviceGetNvLinkRemotePciInfo_v2",
    default_samples=no_sample,
)

GPU_NVLINK_LINK_SPEED_RATIO = gpu_gauge(
    "Line rate of an active NVLink as a share of the GPU's fastest, or of NVLink 4's 26.562 or 5's 53.125 GB/s. Only "
    "below 1; with --metrics.profile full all.",
    labels=("link",),
    source="field 164, nvmlDeviceGetNvLinkVersion",
    default_samples=lambda sample: sample.value < 1,
)


@dataclass(frozen=True, slots=True)
class LinkReading:
    is_up: Annotated[bool | None, GPU_NVLINK_UP]
    errors: Annotated[Mapping[str, float], GPU_NVLINK_LINK_ERRORS_TOTAL]
    transmit_bytes: Annotated[float | None, GPU_NVLINK_LINK_TRANSMIT_BYTES_TOTAL]
    receive_bytes: Annotated[float | None, GPU_NVLINK_LINK_RECEIVE_BYTES_TOTAL]
    megabytes: float | None = None  # line rate per second; 0 or None if it is not active

    def counted(self, name: str) -> float | None:
        return {TRANSMIT: self.transmit_bytes, RECEIVE: self.receive_bytes}.get(name, self.errors.get(name))


@dataclass(frozen=True, slots=True)
class NvlinkReading:
    """Links of one GPU by number; empty if none is connected. Not `reported` in MIG mode, though no link is lost."""

    links: Mapping[int, LinkReading]
    errors: Annotated[Mapping[str, float], GPU_NVLINK_ERRORS_TOTAL]
    transmit_bytes: Annotated[float | None, GPU_NVLINK_TRANSMIT_BYTES_TOTAL]
    receive_bytes: Annotated[float | None, GPU_NVLINK_RECEIVE_BYTES_TOTAL]
    reported: bool = True
    bandwidth: Annotated[Mapping[str, float], GPU_NVLINK_BANDWIDTH_BYTES_PER_SECOND] = field(default_factory=dict)
    speed_ratios: Annotated[Mapping[str, float], GPU_NVLINK_LINK_SPEED_RATIO] = field(default_factory=dict)


UNKNOWN: Final = NvlinkReading({}, {}, None, None, reported=False)  # the reading if the driver does not report links


class NvlinkReader:
    """Reads all links in one or two calls; continues their counters, and remembers which links are connected.

    A GPU may have links that its board leaves unconnected: all links of a PCIe card without a bridge, some with one.
    They look the same as broken links. A link counts as connected once it has been up since the exporter started, the
    driver has counted traffic or errors on it, or the driver reports its remote end; also if the GPU has joined an
    NVSwitch fabric and none of its links is up. Others are left out. So a broken link is only missed if it was down
    before the exporter started, has carried nothing since the driver was loaded and has no remote end known to the
    driver: then the GPU shows fewer links than others of its model.
    """

    def __init__(self) -> None:
        self._connected: set[int] = set()
        self._chosen: dict[tuple[int, str], tuple[tuple[Source, FieldId]]] = {}
        self._counters = {name: LinkCounter(_LIMITS[name]) for name in SOURCES}
        self._far_ends: dict[int, str] = {}
        self._version = 0  # NVML_NVLINK_VERSION_*; 0 if unknown

    def read(self, gpu: GpuRound) -> NvlinkReading:
        inquiry = gpu.inquiry
        count = inquiry.within(inquiry.fields((LINK_COUNT_FIELD,)).get(LINK_COUNT_FIELD), 0, MOST_LINKS)
        # With MIG on, drivers do not report links, or report all as down. Neither is the state of a link.
        if count is None or (count and mig_mode(inquiry)):
            return UNKNOWN
        links = range(int(count))
        wanted: list[FieldId] = [(number, link) for link in links for number in (STATE_FIELD, SPEED_FIELD)]
        wanted += [COMMON_SPEED_FIELD] if count else []
        wanted += [field for link in links for name in SOURCES for _, field in self._candidates(link, name)]
        values = inquiry.fields(wanted)
        readings = {link: self._link(gpu, link, values) for link in links}
        for link, reading in readings.items():
            if link not in self._connected and _leads_somewhere(inquiry, link, reading):
                self._connected.add(link)
        if not self._connected and in_fabric(inquiry):
            # A board in an NVSwitch fabric has its links connected, so these have been down from the start.
            self._connected.update(link for link, reading in readings.items() if reading.is_up is False)
        connected = {link: reading for link, reading in readings.items() if link in self._connected}
        speeds = {link: each.megabytes for link, each in connected.items() if each.is_up and each.megabytes}
        if speeds and not self._version:
            self._version = inquiry.ask("nvmlDeviceGetNvLinkVersion", min(speeds)) or 0
        fastest = max((_FULL_SPEEDS.get(self._version, 0), *speeds.values()))
        # Includes links that currently do not answer or are no longer counted.
        counts = {name: known({link: each.counted(name) for link, each in connected.items()}) for name in SOURCES}
        totals = known({name: self._counters[name].total(counts[name]) for name in SOURCES})
        return NvlinkReading(
            links=connected,
            errors={name: totals[name] for name in ERROR_TYPES if name in totals},
            transmit_bytes=totals.get(TRANSMIT),
            receive_bytes=totals.get(RECEIVE),
            reported=all(reading.is_up is not None for reading in readings.values()),
            bandwidth=self._bandwidth(inquiry, speeds),
            speed_ratios={str(link): megabytes / fastest for link, megabytes in speeds.items()},
        )

    def _bandwidth(self, inquiry: Inquiry, speeds: Mapping[int, float]) -> dict[str, float]:
        """Line rates in bytes per second, summed by far end."""
        totals: dict[str, float] = {}
        for link, megabytes in speeds.items():
            if link not in self._far_ends:
                self._far_ends[link] = far_end(inquiry, link)
            end = self._far_ends[link]
            totals[end] = totals.get(end, 0.0) + megabytes * _BYTES_PER_MB
        return totals

    def _candidates(self, link: int, name: str) -> tuple[tuple[Source, FieldId], ...]:
        """Ways to read a counter: the one that worked before, else all. Never switch, since their values differ."""
        chosen = self._chosen.get((link, name))
        if chosen is not None:
            return chosen
        return tuple((source, field) for source in SOURCES[name] if (field := source.of(link)) is not None)

    def _link(self, gpu: GpuRound, link: int, values: Mapping[FieldId, float]) -> LinkReading:
        counters = {name: self._counter(gpu, link, name, values) for name in SOURCES}
        speed = values.get((SPEED_FIELD, link)) or values.get(COMMON_SPEED_FIELD)
        return LinkReading(
            is_up=_is_up(gpu.inquiry, link, values.get((STATE_FIELD, link))),
            errors=known({name: counters[name] for name in ERROR_TYPES}),
            transmit_bytes=counters[TRANSMIT],
            receive_bytes=counters[RECEIVE],
            megabytes=gpu.inquiry.within(speed, 0, _MOST_MB_PER_SECOND),
        )

    def _counter(self, gpu: GpuRound, link: int, name: str, values: Mapping[FieldId, float]) -> float | None:
        for source, number in self._candidates(link, name):
            if number in values:
                self._chosen[link, name] = ((source, number),)
                raw = values[number] * source.scale
                return self._counters[name].read(gpu.inquiry, link, raw, gpu.at.monotonic)
        return None


def _is_up(inquiry: Inquiry, link: int, state: float | None) -> bool | None:
    said = inquiry.ask("nvmlDeviceGetNvLinkState", link) if state is None else state
    if said is not None and said not in STATES:
        inquiry.failures.append("implausible")
        return None
    return None if said is None else STATES[int(said)]


def _leads_somewhere(inquiry: Inquiry, link: int, reading: LinkReading) -> bool:
    if reading.is_up is None:
        return False
    counted = (*reading.errors.values(), reading.transmit_bytes or 0, reading.receive_bytes or 0)
    return reading.is_up or any(counted) or bool(far_end(inquiry, link))


def render(reading: NvlinkReading, gpu: GpuLabels) -> Iterator[Sample]:
    links = reading.links.values()
    if links:
        yield GPU_NVLINK_LINKS.sample(len(links), *gpu)
    if any(link.is_up is not None for link in links):
        yield GPU_NVLINK_LINKS_UP.sample(sum(link.is_up is True for link in links), *gpu)
    yield from samples(reading, gpu)
    for number, link in reading.links.items():
        yield from samples(link, (*gpu, str(number)))


NVLINK = GpuCollector(
    "state, errors and traffic of the NVLink links", Tier.MEDIUM, lambda _config: NvlinkReader().read, render
)


BER_FIELDS: Final = {"effective": 220, "symbol": 222}
"""NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER and _SYMBOL_BER, with the link as scope."""

SYMBOL_ERRORS_FIELD: Final = 221
FIRST_FEC_FIELD: Final = 235
FEC_BINS: Final = tuple(str(number) for number in range(16))
"""NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 (235) to _15 (250)."""

_COUNTED_FIELDS: Final = (SYMBOL_ERRORS_FIELD, *range(FIRST_FEC_FIELD, FIRST_FEC_FIELD + len(FEC_BINS)))

EFFECTIVE_BER_LIMIT: Final = 1e-12
"""Limit above which DCGM's diagnostics fail a link (IsEffectiveBerThresholdExceeded, DcgmUtilities.cpp)."""

_EXPONENT_BITS: Final = 0xFF
_MANTISSA_SHIFT: Final = 8
_MANTISSA_BITS: Final = 0xF
_NO_ERRORS: Final = (0xF, 0xFF)
"""Mantissa and exponent that encode a rate of 0."""

_LIMIT: Final = CounterLimit(per_second=1e12, most=1 << 62)  # symbols: a link carries 50 GB/s per direction

GPU_NVLINK_BIT_ERROR_RATIO = gpu_gauge(
    "Bit error rate of the worst NVLink link of the GPU: effective (after error correction) and symbol (of received "
    f"symbols). An effective rate above {EFFECTIVE_BER_LIMIT:g} is a link fault. NVLink 5 and later; absent while the "
    "GPU is split by MIG.",
    labels={"kind": BER_FIELDS},
    source="fields 220 and 222",
)
GPU_NVLINK_LINK_BIT_ERROR_RATIO = gpu_gauge(
    "Like gpu_nvlink_bit_error_ratio, of one link. Only effective rates above the limit; with --metrics.profile full "
    "all.",
    labels={"link": ANY, "kind": BER_FIELDS},
    default_samples=lambda sample: sample.labels[-1] == "effective" and sample.value > EFFECTIVE_BER_LIMIT,
    source="as gpu_nvlink_bit_error_ratio",
)
GPU_NVLINK_SYMBOL_ERRORS_TOTAL = gpu_counter(
    "Symbol errors received over all NVLink links of the GPU, mostly repaired by error correction. Never decreases "
    "while the exporter runs. Absent when gpu_nvlink_bit_error_ratio is.",
    source="field 221",
)
GPU_NVLINK_FEC_BLOCKS_TOTAL = gpu_counter(
    "Blocks received over all NVLink links of the GPU, by number of repaired symbols. Only with --metrics.profile "
    "full, and absent when gpu_nvlink_bit_error_ratio is.",
    labels={"bin": FEC_BINS},
    default_samples=no_sample,
    source="fields 235-250",
)


@dataclass(frozen=True, slots=True)
class NvlinkQualityReading:
    worst: Annotated[Mapping[str, float], GPU_NVLINK_BIT_ERROR_RATIO]
    symbol_errors: Annotated[float | None, GPU_NVLINK_SYMBOL_ERRORS_TOTAL]
    fec_blocks: Annotated[Mapping[str, float], GPU_NVLINK_FEC_BLOCKS_TOTAL]
    by_link: Annotated[Mapping[tuple[str, str], float], GPU_NVLINK_LINK_BIT_ERROR_RATIO]


def bit_error_ratio(raw: float) -> float:
    """Decode a rate: mantissa in bits 8 to 11, negative decimal exponent in bits 0 to 7."""
    mantissa, exponent = int(raw) >> _MANTISSA_SHIFT & _MANTISSA_BITS, int(raw) & _EXPONENT_BITS
    return 0.0 if (mantissa, exponent) == _NO_ERRORS else float(f"{mantissa}e-{exponent}")


class NvlinkQualityReader:
    def __init__(self) -> None:
        self._counters = {field: LinkCounter(_LIMIT) for field in _COUNTED_FIELDS}

    def read(self, gpu: GpuRound) -> NvlinkQualityReading:
        inquiry = gpu.inquiry
        count = inquiry.within(inquiry.fields((LINK_COUNT_FIELD,)).get(LINK_COUNT_FIELD), 0, MOST_LINKS)
        rates = self._rates(inquiry, int(count)) if count and not mig_mode(inquiry) else {}
        if not rates:
            return NvlinkQualityReading({}, None, {}, {})
        counted = inquiry.fields([(field, link) for field in _COUNTED_FIELDS for link in rates])
        totals = {
            field: counter.read_total(inquiry, field, counted, gpu.at.monotonic)
            for field, counter in self._counters.items()
        }
        return NvlinkQualityReading(
            worst={kind: max(each) for kind in BER_FIELDS if (each := [r[kind] for r in rates.values() if kind in r])},
            by_link={(str(link), kind): ratio for link, kinds in rates.items() for kind, ratio in kinds.items()},
            symbol_errors=totals[SYMBOL_ERRORS_FIELD],
            fec_blocks=known({number: totals[FIRST_FEC_FIELD + place] for place, number in enumerate(FEC_BINS)}),
        )

    def _rates(self, inquiry: Inquiry, links: int) -> dict[int, dict[str, float]]:
        raw = inquiry.fields([(ber, link) for ber in BER_FIELDS.values() for link in range(links)])
        rates: dict[int, dict[str, float]] = {}
        for kind, ber in BER_FIELDS.items():
            for link in range(links):
                value = raw.get((ber, link))
                ratio = None if value is None else inquiry.within(bit_error_ratio(value), 0, 1)
                if ratio is not None:
                    rates.setdefault(link, {})[kind] = ratio
        return rates


NVLINK_QUALITY = GpuCollector(
    about="bit errors and error correction of NVLink 5 links",
    tier=Tier.SLOW,
    reader=lambda _config: NvlinkQualityReader().read,
)


COUNT_FIELD: Final = 170
STATUS_FIELD: Final = 171
BANDWIDTH_FIELD: Final = 172
"""NVML_FI_DEV_C2C_LINK_COUNT, and per link (as scope) _GET_STATUS (1 is active) and _GET_MAX_BW (MB/s)."""

ERROR_FIELDS: Final = {"crc": 231, "replay": 232, "replay_back_to_back": 233}
"""Label to NVML_FI_DEV_C2C_LINK_ERROR_{INTR,REPLAY,REPLAY_B2B}, with the link as scope."""

_MOST_MEGABYTES_PER_SECOND: Final = 10_000_000

GPU_C2C_LINKS = gpu_gauge(
    "NVLink-C2C links between the GPU and its module's CPU. Absent without any.", source="field 170"
)
GPU_C2C_LINKS_UP = gpu_gauge(
    "Active links of gpu_c2c_links. Absent if the driver reports no link state.", source="field 171"
)
GPU_C2C_MAX_BYTES_PER_SECOND = gpu_gauge("Total capacity of the GPU's active NVLink-C2C links.", source="field 172")
GPU_C2C_ERRORS_TOTAL = gpu_counter(
    "NVLink-C2C errors of the GPU by type: {type}. Never decreases while the exporter runs.",
    labels={"type": ERROR_FIELDS},
    source="fields 231-233",
)


@dataclass(frozen=True, slots=True)
class C2cReading:
    links: Annotated[int | None, GPU_C2C_LINKS]
    max_bytes_per_second: Annotated[float | None, GPU_C2C_MAX_BYTES_PER_SECOND]
    errors: Annotated[Mapping[str, float], GPU_C2C_ERRORS_TOTAL]
    links_up: Annotated[int | None, GPU_C2C_LINKS_UP]


class C2cReader:
    def __init__(self) -> None:
        self._counters = {name: LinkCounter(ERRORS) for name in ERROR_FIELDS}

    def read(self, gpu: GpuRound) -> C2cReading:
        inquiry = gpu.inquiry
        count = inquiry.within(inquiry.fields((COUNT_FIELD,)).get(COUNT_FIELD), 0, MOST_LINKS)
        if not count:
            return C2cReading(None, None, {}, None)
        links = range(int(count))
        fields = (STATUS_FIELD, BANDWIDTH_FIELD, *ERROR_FIELDS.values())
        values = inquiry.fields([(field, link) for field in fields for link in links])
        rates = [values.get((BANDWIDTH_FIELD, link)) for link in links]
        speeds = known({link: inquiry.within(rate, 0, _MOST_MEGABYTES_PER_SECOND) for link, rate in enumerate(rates)})
        states = [values[STATUS_FIELD, link] == 1 for link in links if (STATUS_FIELD, link) in values]
        counted = {
            name: self._counters[name].read_total(inquiry, field, values, gpu.at.monotonic)
            for name, field in ERROR_FIELDS.items()
        }
        return C2cReading(
            links=int(count),
            links_up=sum(states) if states else None,
            max_bytes_per_second=sum(speeds.values()) * _BYTES_PER_MB if speeds else None,
            errors=known(counted),
        )


C2C = GpuCollector("links to the Grace CPU of the module", Tier.MEDIUM, lambda _config: C2cReader().read)
