"""Signal quality of NVLink 5 links: bit error rates, symbol errors and forward error correction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.read.gpu.modes import mig_mode
from gpu_triage.read.gpu.nvlink import LINK_COUNT_FIELD, MOST_LINKS
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.metric import ANY, Tier, gpu_counter, gpu_gauge, no_sample
from gpu_triage.read.metrics.plausible import CounterLimit, LinkCounters
from gpu_triage.read.metrics.rounds import GpuRound

BER_FIELDS: Final = {"effective": 220, "symbol": 222}
"""NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER and _SYMBOL_BER, with the link as scope."""

SYMBOL_ERRORS_FIELD: Final = 221
FIRST_FEC_FIELD: Final = 235
FEC_BINS: Final = tuple(str(number) for number in range(16))
"""NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 (235) to _15 (250)."""

EFFECTIVE_BER_LIMIT: Final = 1e-12
"""Limit above which DCGM's diagnostics fail a link (IsEffectiveBerThresholdExceeded, DcgmUtilities.cpp)."""

_EXPONENT_BITS: Final = 0xFF
_MANTISSA_SHIFT: Final = 8
_MANTISSA_BITS: Final = 0xF
_NO_ERRORS: Final = (0xF, 0xFF)
"""Mantissa and exponent that encode a rate of 0."""

_LIMIT: Final = CounterLimit(per_second=1e12, most=1 << 62)
"""Symbols: a link carries 50 GB/s per direction."""

GPU_NVLINK_BIT_ERROR_RATIO = gpu_gauge(
    "gpu_nvlink_bit_error_ratio",
    "Bit error rate of the worst NVLink link of the GPU: effective, what is left after error correction, and symbol, "
    f"of the symbols received. An effective rate above {EFFECTIVE_BER_LIMIT:g} is a fault of the link. NVLink 5 and "
    "later; absent while the GPU is split by MIG.",
    labels={"kind": BER_FIELDS},
    source="NVML fields 220 and 222",
)
GPU_NVLINK_LINK_BIT_ERROR_RATIO = gpu_gauge(
    "gpu_nvlink_link_bit_error_ratio",
    "As gpu_nvlink_bit_error_ratio, of one link. Shown for effective rates above the limit; with --metrics.profile "
    "full for all.",
    labels={"link": ANY, "kind": BER_FIELDS},
    default_samples=lambda sample: sample.labels[-1] == "effective" and sample.value > EFFECTIVE_BER_LIMIT,
    source="as gpu_nvlink_bit_error_ratio",
)
GPU_NVLINK_SYMBOL_ERRORS_TOTAL = gpu_counter(
    "gpu_nvlink_symbol_errors_total",
    "Errors in symbols received over all NVLink links of the GPU; error correction repairs most of them. Presence as "
    "gpu_nvlink_bit_error_ratio. Never decreases while the exporter runs.",
    source="NVML field 221",
)
GPU_NVLINK_FEC_BLOCKS_TOTAL = gpu_counter(
    "gpu_nvlink_fec_blocks_total",
    "Blocks that all NVLink links of the GPU received, by how many of their symbols error correction repaired; the "
    "higher bins fill when a link degrades. Presence as gpu_nvlink_bit_error_ratio, with --metrics.profile full.",
    labels={"bin": FEC_BINS},
    default_samples=no_sample,
    source="NVML fields 235-250",
)


@dataclass(frozen=True, slots=True)
class NvlinkQualityReading:
    """Link quality of one GPU; links and kinds not reported are missing."""

    worst: Annotated[Mapping[str, float], GPU_NVLINK_BIT_ERROR_RATIO]
    symbol_errors: Annotated[float | None, GPU_NVLINK_SYMBOL_ERRORS_TOTAL]
    fec_blocks: Annotated[Mapping[str, float], GPU_NVLINK_FEC_BLOCKS_TOTAL]
    by_link: Annotated[Mapping[tuple[str, str], float], GPU_NVLINK_LINK_BIT_ERROR_RATIO]


_NOTHING: Final = NvlinkQualityReading({}, None, {}, {})


def bit_error_ratio(raw: float) -> float:
    """Decode a rate: mantissa in bits 8 to 11, negative decimal exponent in bits 0 to 7.

    >>> bit_error_ratio(0x20C), bit_error_ratio(0xFFF)
    (2e-12, 0.0)
    """
    mantissa, exponent = int(raw) >> _MANTISSA_SHIFT & _MANTISSA_BITS, int(raw) & _EXPONENT_BITS
    return 0.0 if (mantissa, exponent) == _NO_ERRORS else float(f"{mantissa}e-{exponent}")


class NvlinkQualityReader:
    """Reads the links that report a bit error rate; continues their counters over resets."""

    def __init__(self) -> None:
        self._counters = LinkCounters(_LIMIT)

    def read(self, gpu: GpuRound) -> NvlinkQualityReading:
        """Read link quality (fields 91, 220-222 and 235-250), unless MIG is on."""
        inquiry = gpu.inquiry
        count = inquiry.within(inquiry.fields((LINK_COUNT_FIELD,)).get(LINK_COUNT_FIELD), 0, MOST_LINKS)
        if not count or mig_mode(inquiry):
            return _NOTHING
        rates = self._rates(inquiry, int(count))
        if not rates:
            return _NOTHING
        fields = (SYMBOL_ERRORS_FIELD, *range(FIRST_FEC_FIELD, FIRST_FEC_FIELD + len(FEC_BINS)))
        counted = inquiry.fields([(field, link) for field in fields for link in rates])
        totals = {field: self._counters.total(inquiry, field, counted, gpu.at.monotonic) for field in fields}
        fec = {number: totals[FIRST_FEC_FIELD + place] for place, number in enumerate(FEC_BINS)}
        return NvlinkQualityReading(
            worst={kind: worst for kind in BER_FIELDS if (worst := _worst(rates, kind)) is not None},
            by_link={(str(link), kind): ratio for link, kinds in rates.items() for kind, ratio in kinds.items()},
            symbol_errors=totals[SYMBOL_ERRORS_FIELD],
            fec_blocks={number: total for number, total in fec.items() if total is not None},
        )

    def _rates(self, inquiry: Inquiry, links: int) -> dict[int, dict[str, float]]:
        raw = inquiry.fields([(field, link) for field in BER_FIELDS.values() for link in range(links)])
        rates: dict[int, dict[str, float]] = {}
        for kind, field in BER_FIELDS.items():
            for link in range(links):
                value = raw.get((field, link))
                ratio = None if value is None else inquiry.within(bit_error_ratio(value), 0, 1)
                if ratio is not None:
                    rates.setdefault(link, {})[kind] = ratio
        return rates


def _worst(rates: Mapping[int, Mapping[str, float]], kind: str) -> float | None:
    return max((each[kind] for each in rates.values() if kind in each), default=None)


NVLINK_QUALITY = GpuCollector(
    name="nvlink_quality",
    about="bit errors and error correction of NVLink 5 links",
    tier=Tier.SLOW,
    reader=lambda _config: NvlinkQualityReader().read,
)
