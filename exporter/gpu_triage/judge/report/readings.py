"""Latest readings of a GPU, to show beside its verdict."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.read.gpu.memory import GPU_MEMORY_TOTAL_BYTES, GPU_MEMORY_USED_BYTES
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_GENERATION, GPU_PCIE_LINK_WIDTH
from gpu_triage.read.gpu.pcie_limits import GPU_PCIE_LINK_EXPECTED_GENERATION, GPU_PCIE_LINK_EXPECTED_WIDTH
from gpu_triage.read.gpu.power import GPU_POWER_LIMIT_WATTS, GPU_POWER_WATTS
from gpu_triage.read.gpu.thermal import GPU_TEMPERATURE_CELSIUS


@dataclass(frozen=True, slots=True)
class GpuReadings:
    """Readings of one GPU; None if the device does not report them. All are None if it does not respond."""

    busy_ratio: float | None = None  # over the window
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    pcie_generation: float | None = None
    pcie_width: float | None = None
    pcie_expected_generation: float | None = None
    pcie_expected_width: float | None = None
    compute_processes: float | None = None


def readings_of(gpu: GpuEvidence) -> GpuReadings:
    if not gpu.up:
        return GpuReadings()
    return GpuReadings(
        busy_ratio=gpu.busy_share,
        power_watts=gpu.last(GPU_POWER_WATTS),
        power_limit_watts=gpu.last(GPU_POWER_LIMIT_WATTS),
        temperature_celsius=gpu.last(GPU_TEMPERATURE_CELSIUS, sensor="gpu"),
        memory_used_bytes=gpu.last(GPU_MEMORY_USED_BYTES),
        memory_total_bytes=gpu.last(GPU_MEMORY_TOTAL_BYTES),
        pcie_generation=gpu.last(GPU_PCIE_LINK_GENERATION),
        pcie_width=gpu.last(GPU_PCIE_LINK_WIDTH),
        pcie_expected_generation=gpu.last(GPU_PCIE_LINK_EXPECTED_GENERATION),
        pcie_expected_width=gpu.last(GPU_PCIE_LINK_EXPECTED_WIDTH),
        compute_processes=gpu.compute_processes if gpu.processes_known else None,
    )
