"""Repairs of the device memory."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import by_label, present
from gpu_triage.hardware.memory_repair import MemoryRepairReading, read_memory_repair


def render(reading: MemoryRepairReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's memory repairs."""
    yield from present(catalogue.ECC_MODE, reading.ecc_mode, *gpu)
    yield from present(catalogue.ECC_MODE_PENDING, reading.ecc_mode_pending, *gpu)
    yield from present(catalogue.ECC_SRAM_THRESHOLD_EXCEEDED, reading.sram_threshold_exceeded, *gpu)
    yield from by_label(catalogue.RETIRED_PAGES, reading.retired_pages, *gpu)
    yield from present(catalogue.RETIRED_PAGES_PENDING, reading.retired_pages_pending, *gpu)
    yield from by_label(catalogue.REMAPPED_ROWS, reading.remapped_rows, *gpu)
    yield from present(catalogue.ROW_REMAP_PENDING, reading.row_remap_pending, *gpu)
    yield from present(catalogue.ROW_REMAP_FAILURE, reading.row_remap_failure, *gpu)
    yield from by_label(catalogue.ROW_REMAP_BANKS, reading.row_remap_banks, *gpu)


MEMORY_REPAIR = GpuCollector(
    name="memory_repair",
    about="ECC mode, retired pages and remapped rows",
    tier=Tier.SLOW,
    metrics=(
        catalogue.ECC_MODE,
        catalogue.ECC_MODE_PENDING,
        catalogue.ECC_SRAM_THRESHOLD_EXCEEDED,
        catalogue.RETIRED_PAGES,
        catalogue.RETIRED_PAGES_PENDING,
        catalogue.REMAPPED_ROWS,
        catalogue.ROW_REMAP_PENDING,
        catalogue.ROW_REMAP_FAILURE,
        catalogue.ROW_REMAP_BANKS,
    ),
    reader=lambda _config: read_memory_repair,
    render=render,
)
