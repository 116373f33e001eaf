"""Threads of a GPU's jobs: those that saturate a CPU, and those blocked on storage in the kernel."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from gpu_triage.driver.kernel.wait_channels import PAGE_CACHE, storage_behind
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.cgroups import pressure
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.read.processes.threads import (
    GPU_BLOCKED_THREAD_SECONDS_TOTAL,
    GPU_BUSIEST_THREAD_RATIO,
    GPU_RUNNING_THREAD_SECONDS_TOTAL,
)

_UNKNOWN_STORAGE: Final = "storage or a driver"
"""Shown for blocked threads if the kernel function (wait channel) is unknown."""


def knows_threads(gpu: GpuEvidence) -> bool:
    """Whether the threads of its jobs are observed."""
    return gpu.has(GPU_RUNNING_THREAD_SECONDS_TOTAL)


def sees_waits(gpu: GpuEvidence) -> bool:
    """Whether the kernel wait channels of its jobs' threads are known; this needs ``CAP_SYS_PTRACE``."""
    unknown = gpu.series(GPU_BLOCKED_THREAD_SECONDS_TOTAL, wait_channel="")
    return knows_threads(gpu) and not any(each.increase for each in unknown)


def full_thread(gpu: GpuEvidence, ease: float = 1.0) -> str | None:
    """Describe the thread of a job on the GPU that saturates a CPU, or None."""
    busiest = max(gpu.series(GPU_BUSIEST_THREAD_RATIO), key=lambda each: each.mean, default=None)
    if busiest is None or busiest.mean < gpu.limit("cpu.starved", "busiest") * ease:
        return None
    return f"thread {busiest.labels['thread']} of process {busiest.labels['pid']} fills one CPU"


def waits_for_storage(gpu: GpuEvidence, ease: float = 1.0) -> str | None:
    """Describe the storage that the job's active threads are blocked on in the kernel; None if few are.

    PSI covers waits for disks and the page cache. If PSI is available, only waits that it misses count here: clients of
    Lustre, GPFS and other file systems use their own wait functions.
    """
    counted = pressure(gpu, "io") is not None
    waiting: dict[str, float] = defaultdict(float)
    channels: dict[str, tuple[float, str]] = {}
    for each in gpu.series(GPU_BLOCKED_THREAD_SECONDS_TOTAL):
        channel = each.labels["wait_channel"]
        storage = storage_behind(channel) if channel else _UNKNOWN_STORAGE
        if storage is None or (counted and storage in (PAGE_CACHE, _UNKNOWN_STORAGE)):
            continue
        waiting[storage] += each.rate or 0.0
        channels[storage] = max(channels.get(storage, (0.0, "")), (each.rate or 0.0, channel))
    blocked = sum(waiting.values())
    running = gpu.rate(GPU_RUNNING_THREAD_SECONDS_TOTAL)
    if running is None or blocked < thresholds.BLOCKED_THREADS * ease:
        return None
    share = blocked / (blocked + running)
    if share < gpu.limit("storage.starved", "blocked") * ease:
        return None
    name = max(waiting, key=lambda storage: waiting[storage])
    channel = channels[name][1]
    return f"{share:.0%} of the job's active threads wait for {name}" + (f" ({channel})" if channel else "")
