"""Memory errors (ECC), and what was repaired: retired pages and remapped rows."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.structs import memory_unrepairable, repairs_pending, sram_threshold_exceeded
from gpu_triage.read.metrics.contract import GpuCollector, GpuRound, known
from gpu_triage.read.metrics.driver_counters import CounterLimit, DriverCounter
from gpu_triage.read.metrics.metric import Tier, gpu_counter, gpu_gauge

SEVERITIES: Final = {"corrected": 0, "uncorrected": 1}  # label to nvmlMemoryErrorType_t
MEMORIES: Final = {"dram": 2, "sram": 7}  # label to NVML_MEMORY_LOCATION_DRAM and _SRAM
VOLATILE: Final = 0
AGGREGATE: Final = 1
"""nvmlEccCounterType_t."""

_LIMIT: Final = CounterLimit(per_second=1e6, most=1 << 48)
"""Errors: beyond this rate, a board could not do any other work."""

GPU_ECC_VOLATILE_ERRORS_TOTAL = gpu_counter(
    "ECC errors since the driver was loaded or the GPU reset. Unlike other counters it then returns to 0 while the "
    "exporter runs. In MIG mode, 0 proves nothing (nvml.h).",
    labels={"severity": SEVERITIES},
    source="nvmlDeviceGetTotalEccErrors(VOLATILE)",
)
GPU_ECC_AGGREGATE_ERRORS_TOTAL = gpu_counter(
    "ECC errors over the life of the board, from its InfoROM; an administrator can clear them.",
    labels={"severity": SEVERITIES},
    source="nvmlDeviceGetTotalEccErrors(AGGREGATE)",
)

GPU_ECC_MEMORY_ERRORS_TOTAL = gpu_counter(
    "Errors of gpu_ecc_volatile_errors_total in device memory (dram) or on the chip (sram). Absent without errors of "
    "that severity.",
    labels={"severity": SEVERITIES, "memory": MEMORIES},
    source="nvmlDeviceGetMemoryErrorCounter(VOLATILE)",
)


@dataclass(frozen=True, slots=True)
class EccReading:
    """Errors by severity (corrected, uncorrected) if reported; `memory_errors` are volatile, by severity and memory."""

    volatile_errors: Annotated[Mapping[str, float], GPU_ECC_VOLATILE_ERRORS_TOTAL]
    aggregate_errors: Annotated[Mapping[str, float], GPU_ECC_AGGREGATE_ERRORS_TOTAL]
    memory_errors: Annotated[Mapping[tuple[str, str], float], GPU_ECC_MEMORY_ERRORS_TOTAL] = field(default_factory=dict)


class EccReader:
    def __init__(self) -> None:
        self._counters = defaultdict[Any, DriverCounter](partial(DriverCounter, _LIMIT, shows_resets=True))

    def read(self, gpu: GpuRound) -> EccReading:
        volatile = self._totals(gpu, VOLATILE)
        return EccReading(volatile, self._totals(gpu, AGGREGATE), self._memory_errors(gpu, volatile))

    def _totals(self, gpu: GpuRound, kind: int) -> dict[str, float]:
        function = "nvmlDeviceGetTotalEccErrors"
        return known({severity: self._count(gpu, function, number, kind) for severity, number in SEVERITIES.items()})

    def _memory_errors(self, gpu: GpuRound, volatile: Mapping[str, float]) -> dict[tuple[str, str], float]:
        function = "nvmlDeviceGetMemoryErrorCounter"
        counts = {
            (severity, memory): self._count(gpu, function, SEVERITIES[severity], VOLATILE, place)
            for severity in SEVERITIES
            for memory, place in MEMORIES.items()
            if volatile.get(severity)
        }
        return known(counts)

    def _count(self, gpu: GpuRound, function: str, *arguments: int) -> float | None:
        count = gpu.inquiry.ask(function, *arguments)
        return self._counters[function, arguments].read(gpu.inquiry, count, gpu.at.monotonic)


ECC = GpuCollector("ECC error counters", Tier.MEDIUM, lambda _config: EccReader().read)


RETIREMENT_CAUSES: Final = {"single_bit": 0, "double_bit": 1}  # label to nvmlPageRetirementCause_t
BANK_AVAILABILITIES: Final = ("max", "high", "partial", "low", "none")
"""Members of nvmlRowRemapperHistogramValues_t: availability of spare rows in a bank."""

REMAPPED_BANK_FIELDS: Final = {"active": 303, "inactive": 304}
BANK_GROUP_FIELDS: Final = {"max": 305, "none": 306}
PENDING_BANK_FIELD: Final = 307
"""NVML_FI_DEV_{ACTIVE,INACTIVE}_BANK_REMAPPINGS, …_BANK_REMAPPER_HISTOGRAM_{MAX,NONE}, …_PENDING_BANK_REMAPPING."""

REPAIRED_PARTS: Final = {"channel": "a memory channel", "tpc": "a TPC"}
"""Members of nvmlRepairStatus_t, in the order in which pynvml returns them, in words."""

_MOST_ADDRESS: Final = 1 << 56
_MOST_COUNT: Final = 1 << 24
"""More rows or banks than any GPU has."""

GPU_ECC_MODE = gpu_gauge("1 when ECC is on, 0 when off; absent on boards without ECC.", source="nvmlDeviceGetEccMode")
GPU_ECC_MODE_PENDING = gpu_gauge("ECC mode after the next reboot: 1 on, 0 off.", source="nvmlDeviceGetEccMode")
GPU_ECC_SRAM_THRESHOLD_EXCEEDED = gpu_gauge(
    "1 when uncorrected SRAM errors exceeded the board's replacement threshold.",
    source="nvmlDeviceGetSramEccErrorStatus",
)
GPU_RETIRED_PAGES = gpu_gauge(
    "Permanently retired memory pages, by cause. Before Ampere.",
    labels={"cause": RETIREMENT_CAUSES},
    source="nvmlDeviceGetRetiredPages",
)
GPU_RETIRED_PAGES_PENDING = gpu_gauge(
    "1 when pages wait for a reboot to be retired.", source="nvmlDeviceGetRetiredPagesPendingStatus"
)
GPU_REMAPPED_ROWS = gpu_gauge(
    "Memory rows permanently replaced by spare ones, by cause. Ampere and later; absent while the GPU is split by MIG, "
    "and on most GeForce cards.",
    labels={"cause": ("correctable", "uncorrectable")},
    source="nvmlDeviceGetRemappedRows",
)
GPU_ROW_REMAP_PENDING = gpu_gauge(
    "1 when rows wait for a GPU reset to be remapped. Absent when gpu_remapped_rows is.",
    source="nvmlDeviceGetRemappedRows",
)
GPU_ROW_REMAP_FAILURE = gpu_gauge(
    "1 when a remapping ever failed: the board is due for replacement. Absent when gpu_remapped_rows is.",
    source="nvmlDeviceGetRemappedRows",
)
GPU_ROW_REMAP_BANKS = gpu_gauge(
    "Memory banks by spare rows left, even with MIG on. --metrics.profile full also has 0 for other availabilities.",
    labels={"availability": BANK_AVAILABILITIES},
    default_samples=lambda sample: bool(sample.value),
    source="nvmlDeviceGetRowRemapperHistogram",
)

GPU_REMAPPED_BANKS = gpu_gauge(
    "Whole memory banks replaced by spare ones, by whether the replacement is in use ({state}). Absent if card or "
    "driver remap only rows.",
    labels={"state": REMAPPED_BANK_FIELDS},
    source="fields 303 and 304",
)
GPU_BANK_REMAP_GROUPS = gpu_gauge(
    "Groups of memory banks with all (max) or none of their spare banks left. Absent when gpu_remapped_banks is.",
    labels={"availability": BANK_GROUP_FIELDS},
    source="fields 305 and 306",
)
GPU_BANK_REMAP_PENDING = gpu_gauge(
    "1 when banks wait for a GPU reset to be remapped. Absent when gpu_remapped_banks is.", source="field 307"
)

GPU_REPAIR_PENDING = gpu_gauge(
    "1 when a memory channel or a TPC (two SMs) waits for a GPU reset to be repaired; 0 only with --metrics.profile "
    "full. Ampere and r580.",
    labels={"part": REPAIRED_PARTS},
    default_samples=lambda sample: bool(sample.value),
    source="nvmlDeviceGetRepairStatus",
)
GPU_MEMORY_UNREPAIRABLE = gpu_gauge(
    "1 when device memory cannot be repaired, even with MIG on. Hopper and r590.",
    source="nvmlDeviceGetUnrepairableMemoryFlag_v1",
)


@dataclass(frozen=True, slots=True)
class MemoryRepairReading:
    ecc_mode: Annotated[bool | None, GPU_ECC_MODE]
    ecc_mode_pending: Annotated[bool | None, GPU_ECC_MODE_PENDING]
    sram_threshold_exceeded: Annotated[bool | None, GPU_ECC_SRAM_THRESHOLD_EXCEEDED]
    retired_pages: Annotated[Mapping[str, int], GPU_RETIRED_PAGES]
    retired_pages_pending: Annotated[bool | None, GPU_RETIRED_PAGES_PENDING]
    remapped_rows: Annotated[Mapping[str, int], GPU_REMAPPED_ROWS]
    row_remap_pending: Annotated[bool | None, GPU_ROW_REMAP_PENDING]
    row_remap_failure: Annotated[bool | None, GPU_ROW_REMAP_FAILURE]
    row_remap_banks: Annotated[Mapping[str, int], GPU_ROW_REMAP_BANKS]
    remapped_banks: Annotated[Mapping[str, int], GPU_REMAPPED_BANKS] = field(default_factory=dict)
    bank_groups: Annotated[Mapping[str, int], GPU_BANK_REMAP_GROUPS] = field(default_factory=dict)
    bank_remap_pending: Annotated[bool | None, GPU_BANK_REMAP_PENDING] = None
    repair_pending: Annotated[Mapping[str, bool], GPU_REPAIR_PENDING] = field(default_factory=dict)
    memory_unrepairable: Annotated[bool | None, GPU_MEMORY_UNREPAIRABLE] = None


def read_memory_repair(gpu: GpuRound) -> MemoryRepairReading:
    inquiry = gpu.inquiry
    ecc_mode = inquiry.ask("nvmlDeviceGetEccMode")  # [now, after the next reboot]
    rows = inquiry.ask("nvmlDeviceGetRemappedRows")  # (correctable, uncorrectable, pending, failure)
    banks = inquiry.fields((*REMAPPED_BANK_FIELDS.values(), *BANK_GROUP_FIELDS.values(), PENDING_BANK_FIELD))
    histogram = inquiry.ask("nvmlDeviceGetRowRemapperHistogram")
    pending = banks.get(PENDING_BANK_FIELD)
    return MemoryRepairReading(
        ecc_mode=inquiry.flag(ecc_mode[0]) if ecc_mode else None,
        ecc_mode_pending=inquiry.flag(ecc_mode[1]) if ecc_mode else None,
        repair_pending=known(dict(zip(REPAIRED_PARTS, repairs_pending(inquiry), strict=False))),
        memory_unrepairable=memory_unrepairable(inquiry),
        sram_threshold_exceeded=sram_threshold_exceeded(inquiry),
        retired_pages=_retired_pages(inquiry),
        retired_pages_pending=inquiry.flag(inquiry.ask("nvmlDeviceGetRetiredPagesPendingStatus")),
        remapped_rows=_counts(inquiry, {"correctable": rows[0], "uncorrectable": rows[1]} if rows else {}),
        row_remap_pending=inquiry.flag(rows[2]) if rows else None,
        row_remap_failure=inquiry.flag(rows[3]) if rows else None,
        row_remap_banks=_counts(inquiry, {label: getattr(histogram, label, None) for label in BANK_AVAILABILITIES}),
        remapped_banks=_counts(inquiry, {label: banks.get(each) for label, each in REMAPPED_BANK_FIELDS.items()}),
        bank_groups=_counts(inquiry, {label: banks.get(each) for label, each in BANK_GROUP_FIELDS.items()}),
        bank_remap_pending=None if pending is None else inquiry.flag(int(pending)),
    )


def _retired_pages(inquiry: Inquiry) -> Mapping[str, int]:
    pages = {}
    for label, cause in RETIREMENT_CAUSES.items():
        addresses = inquiry.many("nvmlDeviceGetRetiredPages", cause)
        if addresses is not None and inquiry.within(max(addresses, default=0), 0, _MOST_ADDRESS) is not None:
            pages[label] = len(addresses)
    return pages


def _counts(inquiry: Inquiry, answers: Mapping[str, float | None]) -> dict[str, int]:
    plausible = known({label: inquiry.within(count, 0, _MOST_COUNT) for label, count in answers.items()})
    return {label: int(count) for label, count in plausible.items()}


MEMORY_REPAIR = GpuCollector("ECC mode, retired pages and remapped rows", Tier.SLOW, lambda _config: read_memory_repair)
