"""Parses GPU memory, ECC errors and memory repairs from nvidia-smi output."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_triage.cli.offline.smi_facts import Facts
from gpu_triage.cli.offline.smi_values import Unit
from gpu_triage.read.gpu.ecc import EccReading
from gpu_triage.read.gpu.memory import DeviceMemoryReading
from gpu_triage.read.gpu.memory_repair import BANK_AVAILABILITIES, MemoryRepairReading


def read_memory(facts: Facts) -> DeviceMemoryReading:
    """Device memory and BAR1 usage."""

    def read(section: str, what: str) -> float | None:
        return facts.within(0, 2.0**50, Unit.BYTES, f"{section}/{what}", f"{section.replace(' ', '_')}/{what}")

    frame_buffer, aperture = "fb memory usage", "bar1 memory usage"
    return DeviceMemoryReading(
        total_bytes=read(frame_buffer, "total"),
        used_bytes=read(frame_buffer, "used"),
        free_bytes=read(frame_buffer, "free"),
        reserved_bytes=read(frame_buffer, "reserved"),
        bar1_total_bytes=read(aperture, "total"),
        bar1_used_bytes=read(aperture, "used"),
    )


def read_ecc(facts: Facts) -> EccReading:
    """ECC errors since driver load, and over the lifetime of the board."""
    return EccReading(_errors(facts, "volatile"), _errors(facts, "aggregate"))


def _errors(facts: Facts, span: str) -> dict[str, float]:
    """Errors by severity: the sum over all memories, or for drivers before Turing the printed total."""
    totals: dict[str, float] = {}
    for name, path in facts.below(f"ecc errors/{span}/", f"ecc_errors/{span}/"):
        severity = _severity(name.replace("_", " "))
        counted = facts.count(path) if severity else None
        if counted is not None:
            totals[severity] = totals.get(severity, 0.0) + counted
    return totals


def _severity(name: str) -> str:
    """Severity of the errors under this name; "" if they are part of another count, or aren't errors."""
    if name.startswith(("single bit", "double bit")):
        severity = "corrected" if name.startswith("single") else "uncorrected"
        return severity if name.endswith("/total") else ""
    if "uncorrectable" in name:
        return "uncorrected"
    return "corrected" if "correctable" in name else ""


def read_memory_repair(facts: Facts) -> MemoryRepairReading:
    """ECC mode, retired pages, and remapped rows."""
    rows = {
        "correctable": facts.count("remapped rows/correctable error", "remapped_rows/remapped_row_corr"),
        "uncorrectable": facts.count("remapped rows/uncorrectable error", "remapped_rows/remapped_row_unc"),
    }
    pages = {
        "single_bit": facts.count(
            "retired pages/single bit ecc", "retired_pages/multiple_single_bit_retirement/retired_count"
        ),
        "double_bit": facts.count("retired pages/double bit ecc", "retired_pages/double_bit_retirement/retired_count"),
    }
    banks = {
        name: facts.count(
            f"remapped rows/bank remap availability histogram/{name}",
            f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{name}",
        )
        for name in BANK_AVAILABILITIES
    }
    return MemoryRepairReading(
        ecc_mode=facts.flag("ecc mode/current", "ecc_mode/current_ecc"),
        ecc_mode_pending=facts.flag("ecc mode/pending", "ecc_mode/pending_ecc"),
        sram_threshold_exceeded=facts.flag(
            "ecc errors/aggregate/sram threshold exceeded", "ecc_errors/aggregate/sram_threshold_exceeded"
        ),
        retired_pages=_known(pages),
        retired_pages_pending=facts.flag(
            "retired pages/pending page blacklist",
            "retired pages/pending",
            "retired_pages/pending_blacklist",
            "retired_pages/pending_retirement",
        ),
        remapped_rows=_known(rows),
        row_remap_pending=facts.flag("remapped rows/pending", "remapped_rows/remapped_row_pending"),
        row_remap_failure=facts.flag("remapped rows/remapping failure occurred", "remapped_rows/remapped_row_failure"),
        row_remap_banks=_known(banks),
    )


def _known(found: Mapping[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in found.items() if value is not None}
