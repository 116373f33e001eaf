"""How far the GPU's memory has been repaired, and what waits for a reset or a replacement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.nvml_structs import sram_threshold_exceeded
from gpu_triage.hardware.rounds import GpuRound

RETIREMENT_CAUSES: Final = {"single_bit": 0, "double_bit": 1}
"""Label to nvmlPageRetirementCause_t."""

BANK_AVAILABILITIES: Final = ("max", "high", "partial", "low", "none")
"""Members of nvmlRowRemapperHistogramValues_t: spare rows left in a bank."""

_MOST_ADDRESS: Final = 1 << 56
_MOST_COUNT: Final = 1 << 24
"""More rows, or banks, than any GPU has."""


@dataclass(frozen=True, slots=True)
class MemoryRepairReading:
    """Repairs of one GPU's memory; None, or not in a mapping, where not reported.

    Attributes:
        ecc_mode: whether ECC is on.
        ecc_mode_pending: whether it will be after the next reboot.
        sram_threshold_exceeded: whether uncorrected SRAM errors call for replacement.
        retired_pages: by cause (single_bit, double_bit); before Ampere.
        retired_pages_pending: whether pages wait for a reboot.
        remapped_rows: by cause (correctable, uncorrectable); Ampere and later, like the rest.
        row_remap_pending: whether rows wait for a reset.
        row_remap_failure: whether a remapping ever failed.
        row_remap_banks: banks by spare rows left (max, high, partial, low, none).
    """

    ecc_mode: bool | None
    ecc_mode_pending: bool | None
    sram_threshold_exceeded: bool | None
    retired_pages: Mapping[str, int]
    retired_pages_pending: bool | None
    remapped_rows: Mapping[str, int]
    row_remap_pending: bool | None
    row_remap_failure: bool | None
    row_remap_banks: Mapping[str, int]


def read_memory_repair(gpu: GpuRound) -> MemoryRepairReading:
    """Repairs (nvmlDeviceGetEccMode, …RetiredPages, …RemappedRows, …RowRemapperHistogram, …SramEccErrorStatus)."""
    inquiry = gpu.inquiry
    ecc_mode = inquiry.ask("nvmlDeviceGetEccMode")  # [now, after the next reboot]
    rows = inquiry.ask("nvmlDeviceGetRemappedRows")  # (correctable, uncorrectable, pending, failure)
    return MemoryRepairReading(
        ecc_mode=inquiry.flag(ecc_mode[0]) if ecc_mode else None,
        ecc_mode_pending=inquiry.flag(ecc_mode[1]) if ecc_mode else None,
        sram_threshold_exceeded=sram_threshold_exceeded(inquiry),
        retired_pages=_retired_pages(inquiry),
        retired_pages_pending=inquiry.flag(inquiry.ask("nvmlDeviceGetRetiredPagesPendingStatus")),
        remapped_rows=_counts(inquiry, {"correctable": rows[0], "uncorrectable": rows[1]} if rows else {}),
        row_remap_pending=inquiry.flag(rows[2]) if rows else None,
        row_remap_failure=inquiry.flag(rows[3]) if rows else None,
        row_remap_banks=_counts(inquiry, _banks(inquiry.ask("nvmlDeviceGetRowRemapperHistogram"))),
    )


def _retired_pages(inquiry: Inquiry) -> Mapping[str, int]:
    pages = {}
    for label, cause in RETIREMENT_CAUSES.items():
        addresses = inquiry.many("nvmlDeviceGetRetiredPages", cause)
        if addresses is not None and inquiry.within(max(addresses, default=0), 0, _MOST_ADDRESS) is not None:
            pages[label] = len(addresses)
    return pages


def _counts(inquiry: Inquiry, answers: Mapping[str, int]) -> Mapping[str, int]:
    plausible = {label: inquiry.within(count, 0, _MOST_COUNT) for label, count in answers.items()}
    return {label: count for label, count in plausible.items() if count is not None}


def _banks(histogram: Any) -> Mapping[str, int]:
    return {label: getattr(histogram, label) for label in BANK_AVAILABILITIES} if histogram else {}
