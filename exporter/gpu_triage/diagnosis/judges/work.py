"""Is it starved, or is the software in the way? Host resources, processes, placement, settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpu_triage.diagnosis.bottleneck.classes import Bottlenecks
from gpu_triage.diagnosis.evidence import thresholds
from gpu_triage.diagnosis.evidence.faults import held_idle
from gpu_triage.diagnosis.evidence.gpu import GpuEvidence
from gpu_triage.diagnosis.evidence.holders import given_to, in_words
from gpu_triage.diagnosis.evidence.host import HostEvidence, length_of_time
from gpu_triage.diagnosis.findings.finding import Finding, of_gpu, of_host
from gpu_triage.diagnosis.findings.table import BY_CODE
from gpu_triage.gpu.memory import GPU_MEMORY_TOTAL_BYTES, GPU_MEMORY_USED_BYTES
from gpu_triage.gpu.modes import GPU_PERSISTENCE_MODE
from gpu_triage.host.memory import GPU_HOST_SWAP_IN_BYTES_TOTAL
from gpu_triage.processes.on_gpu import GPU_NUMA_MISMATCHED_PROCESSES, GPU_PROCESS_NUMA_LOCAL, GPU_PROCESSES
from gpu_triage.processes.vitals import GPU_PROCESS_BLOCKED_SINCE_TIMESTAMP_SECONDS
from gpu_triage.subjects.baseline import GPU_BASELINE_MISMATCH

_SHARING = 2


def judge_work(host: HostEvidence, bottlenecks: Bottlenecks) -> Iterator[Finding]:
    """What starves GPUs, jobs that hang or do little, where processes and memory are, and settings that drifted."""
    yield from _scarcity(host, bottlenecks)
    for gpu, bottleneck in bottlenecks.items():
        if bottleneck.name == "communication":
            yield of_gpu("work.low_power", gpu, bottleneck.because)
        elif bottleneck.name == "hung":
            yield of_gpu("work.hung", gpu, f"{bottleneck.because}; {_held(gpu)}")
        elif bottleneck.name == "unattributed" and held_idle(gpu):
            yield of_gpu("work.held_idle", gpu, f"{_held(gpu)}, busy {gpu.busy_share or 0:.0%} of the time")
    for gpu in host.answering:
        yield from _blocked(gpu)
        if unused := _unused(gpu):
            yield of_gpu("work.allocated_unused", gpu, unused)
        yield from _locality(gpu)
        yield from _memory_growth(gpu)
        if gpu.last(GPU_PERSISTENCE_MODE) == 0:
            yield of_gpu("policy.persistence", gpu, "persistence mode is off")
    yield from _placement([gpu for gpu in host.answering if not gpu.partitioned])
    yield from _baseline(host)


def _scarcity(host: HostEvidence, bottlenecks: Bottlenecks) -> Iterator[Finding]:
    """One finding a host and resource."""
    swapped = host.rate(GPU_HOST_SWAP_IN_BYTES_TOTAL) or 0.0
    if swapped > thresholds.SWAPPING_BYTES_PER_SECOND and any(gpu.occupied for gpu in host.answering):
        yield of_host("memory.swapping", f"{swapped / 1024**2:.1f} MiB/s read back from swap")
    nodes = sorted({gpu.node for gpu in host.gpus}, key=str)
    busy_nodes = (host.recent.scarce_cpu(node, single=False) for node in nodes)
    scarce = {
        "memory": None,
        "storage": host.recent.scarce_storage(measured=True),
        "cpu": next((reason for reason in busy_nodes if reason is not None), None),
        "network": host.recent.scarce_network(),
    }
    for resource, reason in scarce.items():
        starved = [gpu for gpu, bottleneck in bottlenecks.items() if bottleneck.name == resource]
        if starved:
            gpus = f"{len(starved)} GPU{'s' if len(starved) > 1 else ''} ({', '.join(gpu.gpu for gpu in starved)})"
            yield of_host(f"{resource}.starved", f"{gpus} waiting: {bottlenecks[starved[0]].because}")
        elif reason is not None:
            yield of_host(f"{resource}.saturated", reason)


def _held(gpu: GpuEvidence) -> str:
    held = (gpu.last(GPU_MEMORY_USED_BYTES) or 0.0) / 1024**3
    return f"{held:.1f} GiB held by {gpu.process_names or 'a process'}"


def _blocked(gpu: GpuEvidence) -> Iterator[Finding]:
    """Processes that hang in the kernel."""
    for since in gpu.series(GPU_PROCESS_BLOCKED_SINCE_TIMESTAMP_SECONDS):
        seconds, labels = gpu.at.wall - since.last, since.labels
        if seconds >= thresholds.BLOCKED_SECONDS:
            where = f" in {labels['wait_channel']}" if labels["wait_channel"] else ""
            process = f"{labels['process'] or 'process'} ({labels['pid']})"
            yield of_gpu(
                "work.blocked", gpu, f"{process} has waited{where} for {length_of_time(seconds)} without running"
            )


def _unused(gpu: GpuEvidence) -> str:
    """Who was given the GPU and has no process on it; "" where nobody was, or somebody is on it."""
    given = "" if gpu.partitioned else in_words(sorted(given_to(gpu)))
    free = gpu.processes_known and not gpu.works and not sum(each.last for each in gpu.series(GPU_PROCESSES))
    return f"given to {given}, and no process is on it" if given and free else ""


def _locality(gpu: GpuEvidence) -> Iterator[Finding]:
    """Processes on the wrong NUMA node."""
    if gpu.last(GPU_NUMA_MISMATCHED_PROCESSES):
        remote = [each.labels for each in gpu.series(GPU_PROCESS_NUMA_LOCAL) if each.last == 0]
        names = ", ".join(f"{labels['process'] or 'process'} ({labels['pid']})" for labels in remote)
        yield of_gpu("numa.mismatch", gpu, f"GPU on node {gpu.node}, on other nodes: {names or 'a process'}")


def _memory_growth(gpu: GpuEvidence) -> Iterator[Finding]:
    used, full = gpu.one(GPU_MEMORY_USED_BYTES), gpu.memory_share
    if used is None or full is None:
        return
    grown, total = used.last - used.first, gpu.last(GPU_MEMORY_TOTAL_BYTES) or 0.0
    if full > thresholds.MEMORY_FULL_SHARE and grown > thresholds.MEMORY_GROWTH_SHARE * total:
        yield of_gpu("work.memory_full", gpu, f"{full:.1%} in use, {grown / 1024**2:.0f} MiB more than before")


def _placement(whole: list[GpuEvidence]) -> Iterator[Finding]:
    """Processes that crowd on one GPU, and memory likewise."""
    for gpu in whole:
        siblings = [other for other in whole if other is not gpu and other.name == gpu.name]
        free = [other for other in siblings if other.processes_known and not other.occupied]
        if free and gpu.compute_processes >= _SHARING:
            idle = ", ".join(other.gpu for other in free)
            measured = f"{gpu.compute_processes} compute processes, none on GPU {idle}: {gpu.process_names}"
            yield of_gpu("work.imbalance", gpu, measured)
        empty = [other for other in free if (other.memory_share or 0.0) < thresholds.IMBALANCED_EMPTY_SHARE]
        if gpu.occupied and empty and (gpu.memory_share or 0.0) > thresholds.IMBALANCED_FULL_SHARE:
            measured = f"memory {gpu.memory_share:.0%} full, GPU {empty[0].gpu} {empty[0].memory_share or 0:.0%}"
            yield of_gpu("work.memory_imbalance", gpu, measured)


def _baseline(host: HostEvidence) -> Iterator[Finding]:
    """Fields that differ from the recorded baseline, of the host and of each GPU."""
    drifted: dict[tuple[str, str], list[str]] = defaultdict(list)
    for mismatch in host.series(GPU_BASELINE_MISMATCH):
        if mismatch.last:
            drifted[mismatch.labels["gpu"], mismatch.labels["uuid"]].append(mismatch.labels["field"])
    for (gpu, uuid), fields in drifted.items():
        yield Finding(BY_CODE["baseline.drift"], f"differs in {', '.join(sorted(fields))}", gpu or None, uuid)
