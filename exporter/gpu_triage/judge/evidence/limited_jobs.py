"""Jobs slowed down by the limits of their own cgroups, and their threads: busy with one CPU, or blocked on storage."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.procfs import PAGE_CACHE, storage_behind
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.past import Amount
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.processes import cgroup_limits, threads

_CONTAINER_ID: Final = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}")
_EASED_REST: Final = 2.0
_LIMITS_REACHED: Final = ("high", "max")
_CPU_COUNTERS: Final = (
    cgroup_limits.GPU_CGROUP_CPU_PERIODS_TOTAL,
    cgroup_limits.GPU_CGROUP_CPU_THROTTLED_PERIODS_TOTAL,
    cgroup_limits.GPU_CGROUP_CPU_THROTTLED_SECONDS_TOTAL,
)


class LimitedJob(NamedTuple):
    """A job slowed down by its own cgroup limit."""

    share: float  # share of the time, 0-1
    because: str  # the reason, as text
    limit: str  # the limit and its cgroup


def limited_job(resource: str, gpu: GpuEvidence, ease: float = 1.0, *, lately: bool = False) -> LimitedJob | None:
    """Return the job that its own limit of ``cpu`` or ``memory`` slows most, in the window or `lately`, or None."""
    limits = {"cpu": _cpu_limits, "memory": _memory_limits}.get(resource)
    return None if limits is None else max(limits(gpu, ease, lately=lately), default=None)


def killed_at_limit(gpu: GpuEvidence) -> Iterator[tuple[str, float]]:
    """Yield the cgroups where the kernel recently OOM-killed processes, and how many."""
    counter, seconds = cgroup_limits.GPU_CGROUP_MEMORY_EVENTS_TOTAL, thresholds.OOM_KILLED_SECONDS
    for cgroup, killed in gpu.rises(counter, seconds, "cgroup", event="oom_kill").items():
        if killed.amount >= 1:
            yield short_name(cgroup), killed.amount


def pressure(gpu: GpuEvidence | None, resource: str) -> float | None:
    """Return the share of the window in which a task of a job on the GPU waited for the resource; None if unknown."""
    if gpu is None:
        return None
    counters = gpu.series(cgroup_limits.GPU_CGROUP_PRESSURE_SECONDS_TOTAL, resource=resource, kind="some")
    return max((min(1.0, rate) for each in counters if (rate := each.rate) is not None), default=None)


def short_name(path: str) -> str:
    """Return the last component of a cgroup path, with container IDs shortened to 12 digits as container tools do.

    >>> short_name("/kubepods.slice/cri-containerd-" + "3f4e8c1b9a7d" + "0" * 52 + ".scope")
    'cri-containerd-3f4e8c1b9a7d.scope'
    """
    return _CONTAINER_ID.sub(r"\1", path.rpartition("/")[2])


def _cpu_limits(gpu: GpuEvidence, ease: float, *, lately: bool) -> Iterator[LimitedJob]:
    for limit in gpu.series(cgroup_limits.GPU_CGROUP_CPU_LIMIT_CPUS):
        of = {"cgroup": limit.labels["cgroup"]}
        periods, throttled, seconds = (_rise(gpu, spec, of, lately=lately) for spec in _CPU_COUNTERS)
        share = throttled.amount / periods.amount if periods.amount else 0.0
        enough = share >= gpu.limit("cpu.limited", "share") * ease
        if enough and seconds.mean >= thresholds.THROTTLED_CPUS * ease:
            cpus = f"{limit.last:.3g} CPU{'' if limit.last == 1 else 's'}"
            where = short_name(of["cgroup"])
            words = f"its own CPU limit of {cpus} stops it in {share:.0%} of the periods ({where})"
            yield LimitedJob(min(1.0, share), words, f"{cpus}, {where}")


def _memory_limits(gpu: GpuEvidence, ease: float, *, lately: bool) -> Iterator[LimitedJob]:
    # Reading files also fills memory up to the limit (page cache) at no cost, so memory is short only if tasks stall.
    stalled = pressure(gpu, "memory") or 0.0
    if stalled < gpu.limit("memory.limited", "pressure") * ease:
        return
    for each in gpu.series(cgroup_limits.GPU_CGROUP_MEMORY_EVENTS_TOTAL):
        reached = each.labels["event"] in _LIMITS_REACHED
        if reached and _rise(gpu, cgroup_limits.GPU_CGROUP_MEMORY_EVENTS_TOTAL, each.labels, lately=lately).amount >= 1:
            where = short_name(each.labels["cgroup"])
            words = f"its own memory limit stalls its tasks {stalled:.0%} of the time ({where})"
            yield LimitedJob(stalled, words, where)


def _rise(gpu: GpuEvidence, spec: MetricSpec, labels: Mapping[str, str], *, lately: bool) -> Amount:
    """Return a counter's increase over the last `CLASS_SECONDS`, or over the window."""
    if lately:
        return gpu.risen(spec, thresholds.CLASS_SECONDS, **labels)
    series = gpu.one(spec, **labels)
    return Amount(0.0, 0.0) if series is None else Amount(series.increase, series.seconds)


_UNKNOWN_STORAGE: Final = "storage or a driver"
"""Shown for blocked threads if the kernel function (wait channel) is unknown."""


def knows_threads(gpu: GpuEvidence) -> bool:
    """Whether the threads of its jobs are observed."""
    return gpu.has(threads.GPU_RUNNING_THREAD_SECONDS_TOTAL)


def sees_waits(gpu: GpuEvidence) -> bool:
    """Whether the kernel wait channels of its jobs' threads are known; this needs ``CAP_SYS_PTRACE``."""
    unknown = gpu.series(threads.GPU_BLOCKED_THREAD_SECONDS_TOTAL, wait_channel="")
    return knows_threads(gpu) and not any(each.increase for each in unknown)


def blocks(gpu: GpuEvidence, ease: float = 1.0) -> bool:
    """Whether threads of its jobs wait in the kernel, or are not observed."""
    blocked = gpu.rate(threads.GPU_BLOCKED_THREAD_SECONDS_TOTAL) or 0.0
    return not knows_threads(gpu) or blocked >= thresholds.BLOCKED_THREADS * ease


def full_thread(gpu: GpuEvidence, ease: float = 1.0) -> str | None:
    """Describe the thread of a job on the GPU that saturates a CPU, or None."""
    busiest = max(gpu.series(threads.GPU_BUSIEST_THREAD_RATIO), key=lambda each: each.mean, default=None)
    # Of a CPU that is all but full, the rest is what hysteresis can ease.
    rest = (1.0 - gpu.limit("cpu.starved", "busiest")) * (_EASED_REST if ease < 1.0 else 1.0)
    if busiest is None or busiest.mean < 1.0 - rest:
        return None
    return f"thread {busiest.labels['thread']} of process {busiest.labels['pid']} fills one CPU"


def stalls(gpu: GpuEvidence, resource: str, ease: float = 1.0) -> str | None:
    """Describe how long tasks of the job stalled for ``memory`` or ``storage``; None if hardly, or if not known."""
    share = pressure(gpu, "io" if resource == "storage" else resource)
    if share is None or share < gpu.limit(f"{resource}.starved", "pressure") * ease:
        return None
    return f"tasks of the job stalled for {'I/O' if resource == 'storage' else resource} {share:.0%} of the time"


def waits_for_storage(gpu: GpuEvidence, ease: float = 1.0) -> str | None:
    """Describe the storage that the job's active threads are blocked on in the kernel; None if few are.

    PSI covers waits for disks and the page cache. If PSI is available, only waits that it misses count here: clients of
    Lustre, GPFS and other file systems use their own wait functions.
    """
    counted = pressure(gpu, "io") is not None
    waiting: dict[str, float] = defaultdict(float)
    channels: dict[str, tuple[float, str]] = {}
    for each in gpu.series(threads.GPU_BLOCKED_THREAD_SECONDS_TOTAL):
        channel = each.labels["wait_channel"]
        storage = storage_behind(channel) if channel else _UNKNOWN_STORAGE
        if storage is None or (counted and storage in (PAGE_CACHE, _UNKNOWN_STORAGE)):
            continue
        waiting[storage] += each.rate or 0.0
        channels[storage] = max(channels.get(storage, (0.0, "")), (each.rate or 0.0, channel))
    blocked = sum(waiting.values())
    running = gpu.rate(threads.GPU_RUNNING_THREAD_SECONDS_TOTAL)
    if running is None or blocked < thresholds.BLOCKED_THREADS * ease:
        return None
    share = blocked / (blocked + running)
    if share < gpu.limit("storage.starved", "blocked") * ease:
        return None
    name = max(waiting, key=lambda storage: waiting[storage])
    channel = channels[name][1]
    return f"{share:.0%} of the job's active threads wait for {name}" + (f" ({channel})" if channel else "")
