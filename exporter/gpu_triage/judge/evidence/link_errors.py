"""Errors of a PCIe link that matter: replays, and what the kernel counts (AER)."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.read.gpu.pcie import GPU_PCIE_REPLAYS_TOTAL
from gpu_triage.read.gpu.pcie_errors import GPU_PCIE_AER_ERRORS_TOTAL


def many_replays(gpu: GpuEvidence) -> float | None:
    """Return how often the link replayed packets lately; None unless that is too often."""
    return gpu.rose(GPU_PCIE_REPLAYS_TOTAL, gpu.limit("pcie.replays", "count"))


def aer_errors(gpu: GpuEvidence) -> Iterator[tuple[float, str, float]]:
    """Yield link errors that matter: how many, which, and over how many seconds."""
    if not gpu.risen(GPU_PCIE_AER_ERRORS_TOTAL, thresholds.SEVERE_AER_SECONDS).amount:
        return
    for device in ("gpu", "port"):
        most = gpu.limit("pcie.aer", "count")
        correctable = gpu.rose(GPU_PCIE_AER_ERRORS_TOTAL, most, device=device, severity="correctable")
        if correctable is not None:
            yield correctable, f"correctable on the {device}", thresholds.EVENTS_REMEMBERED_SECONDS
        for severity in ("nonfatal", "fatal"):
            seconds = thresholds.SEVERE_AER_SECONDS
            errors = gpu.risen(GPU_PCIE_AER_ERRORS_TOTAL, seconds, device=device, severity=severity).amount
            if errors > 0:
                yield errors, f"{severity} on the {device}", seconds


def has_errors(gpu: GpuEvidence) -> bool:
    return many_replays(gpu) is not None or any(True for _ in aer_errors(gpu))
