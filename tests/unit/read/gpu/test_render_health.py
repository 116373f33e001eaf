from __future__ import annotations

from tests.nvml_bench import shown

from gpu_triage.read.gpu import ecc, memory_repair
from gpu_triage.read.gpu.ecc import EccReading
from gpu_triage.read.gpu.memory_repair import MemoryRepairReading
from gpu_triage.read.metrics.contract import GpuLabels

GPU = GpuLabels("0", "GPU-a")


def test_memory_errors() -> None:
    reading = EccReading(
        volatile_errors={"corrected": 2, "uncorrected": 0}, aggregate_errors={"corrected": 9, "uncorrected": 1}
    )
    assert shown(ecc.ECC.render(reading, GPU)) == [
        'gpu_ecc_volatile_errors_total{gpu="0",uuid="GPU-a",severity="corrected"} 2.0',
        'gpu_ecc_volatile_errors_total{gpu="0",uuid="GPU-a",severity="uncorrected"} 0.0',
        'gpu_ecc_aggregate_errors_total{gpu="0",uuid="GPU-a",severity="corrected"} 9.0',
        'gpu_ecc_aggregate_errors_total{gpu="0",uuid="GPU-a",severity="uncorrected"} 1.0',
    ]
    assert shown(ecc.ECC.render(EccReading({}, {}), GPU)) == []


def test_memory_repairs() -> None:
    reading = MemoryRepairReading(
        ecc_mode=True,
        ecc_mode_pending=False,
        sram_threshold_exceeded=False,
        retired_pages={"single_bit": 3, "double_bit": 0},
        retired_pages_pending=True,
        remapped_rows={"correctable": 1, "uncorrectable": 2},
        row_remap_pending=True,
        row_remap_failure=False,
        row_remap_banks={"max": 639, "high": 1, "partial": 0, "low": 0, "none": 0},
    )
    assert shown(memory_repair.MEMORY_REPAIR.render(reading, GPU)) == [
        'gpu_ecc_mode{gpu="0",uuid="GPU-a"} 1.0',
        'gpu_ecc_mode_pending{gpu="0",uuid="GPU-a"} 0.0',
        'gpu_ecc_sram_threshold_exceeded{gpu="0",uuid="GPU-a"} 0.0',
        'gpu_retired_pages{gpu="0",uuid="GPU-a",cause="single_bit"} 3.0',
        'gpu_retired_pages{gpu="0",uuid="GPU-a",cause="double_bit"} 0.0',
        'gpu_retired_pages_pending{gpu="0",uuid="GPU-a"} 1.0',
        'gpu_remapped_rows{gpu="0",uuid="GPU-a",cause="correctable"} 1.0',
        'gpu_remapped_rows{gpu="0",uuid="GPU-a",cause="uncorrectable"} 2.0',
        'gpu_row_remap_pending{gpu="0",uuid="GPU-a"} 1.0',
        'gpu_row_remap_failure{gpu="0",uuid="GPU-a"} 0.0',
        'gpu_row_remap_banks{gpu="0",uuid="GPU-a",availability="max"} 639.0',
        'gpu_row_remap_banks{gpu="0",uuid="GPU-a",availability="high"} 1.0',
        'gpu_row_remap_banks{gpu="0",uuid="GPU-a",availability="partial"} 0.0',
        'gpu_row_remap_banks{gpu="0",uuid="GPU-a",availability="low"} 0.0',
        'gpu_row_remap_banks{gpu="0",uuid="GPU-a",availability="none"} 0.0',
    ]


def test_a_gpu_without_ecc_shows_none_of_it() -> None:
    nothing = MemoryRepairReading(None, None, None, {}, None, {}, None, None, {})
    assert shown(memory_repair.MEMORY_REPAIR.render(nothing, GPU)) == []
