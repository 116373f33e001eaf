"""Is it starved, or is the software in the way? Host resources, processes, placement, settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from gpu_triage import catalogue
from gpu_triage.diagnosis import thresholds
from gpu_triage.diagnosis.codes import BY_CODE
from gpu_triage.diagnosis.findings import Finding, Judge, of_gpu, of_host
from gpu_triage.diagnosis.ladder import Bottleneck, held_idle
from gpu_triage.diagnosis.starvation import scarce_cpu, scarce_memory, scarce_network, scarce_storage
from gpu_triage.diagnosis.view import GpuView, HostView

_SHARING = 2


def starvation_judge(bottlenecks: Mapping[GpuView, Bottleneck]) -> Judge:
    """A judge of what starves GPUs of these bottlenecks: one finding a host and resource."""

    def judge(host: HostView) -> Iterator[Finding]:
        nodes = {gpu.node for gpu in host.gpus}
        busy_nodes = (scarce_cpu(host.recent, node, single=False) for node in sorted(nodes, key=str))
        scarce = (
            ("memory", scarce_memory(host.recent)),
            ("storage", scarce_storage(host.recent)),
            ("cpu", next((reason for reason in busy_nodes if reason is not None), None)),
            ("network", scarce_network(host.recent)),
        )
        yield from _swapping(host)
        for resource, reason in scarce:
            starved = [gpu for gpu, bottleneck in bottlenecks.items() if bottleneck.name == resource]
            if starved:
                because = bottlenecks[starved[0]].because
                yield of_host(f"{resource}.starved", f"{_gpus(starved)} waiting: {because}")
            elif reason is not None and resource != "memory":
                yield of_host(f"{resource}.saturated", reason)

    return judge


def _swapping(host: HostView) -> Iterator[Finding]:
    rate = host.evidence.rate(catalogue.HOST_SWAP_IN_BYTES) or 0.0
    if rate > thresholds.SWAPPING_BYTES_PER_SECOND and any(gpu.occupied for gpu in host.answering):
        yield of_host("memory.swapping", f"{rate / 1024**2:.1f} MiB/s read back from swap")


def _gpus(gpus: list[GpuView]) -> str:
    return f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''} ({', '.join(gpu.gpu for gpu in gpus)})"


def judge_locality(host: HostView) -> Iterator[Finding]:
    """Processes on the wrong NUMA node."""
    for gpu in host.answering:
        if not gpu.last(catalogue.NUMA_MISMATCHED_PROCESSES):
            continue
        remote = [track.labels for track in gpu.series(catalogue.PROCESS_NUMA_LOCAL) if track.last == 0]
        who = ", ".join(f"{labels['process'] or 'process'} ({labels['pid']})" for labels in remote)
        yield of_gpu("numa.mismatch", gpu, f"GPU on node {gpu.node}, on other nodes: {who or 'a process'}")


def judge_placement(host: HostView) -> Iterator[Finding]:
    """Processes that crowd on one GPU, and memory likewise."""
    whole = [gpu for gpu in host.answering if not gpu.partitioned]
    for gpu in whole:
        siblings = [other for other in whole if other is not gpu and other.name == gpu.name and other.is_free]
        if not siblings:
            continue
        idle = ", ".join(other.gpu for other in siblings)
        if gpu.compute_processes >= _SHARING:
            yield of_gpu(
                "work.imbalance",
                gpu,
                f"{gpu.compute_processes} compute processes, none on GPU {idle}: {gpu.process_names}",
            )
        empty = [other for other in siblings if (other.memory_share or 0.0) < thresholds.IMBALANCED_EMPTY_SHARE]
        if gpu.occupied and empty and (gpu.memory_share or 0.0) > thresholds.IMBALANCED_FULL_SHARE:
            measured = f"memory {gpu.memory_share:.0%} full, GPU {empty[0].gpu} {empty[0].memory_share or 0:.0%}"
            yield of_gpu("work.memory_imbalance", gpu, measured)


def judge_memory_growth(host: HostView) -> Iterator[Finding]:
    """Memory that fills up."""
    for gpu in host.answering:
        used = gpu.one(catalogue.MEMORY_USED)
        full = gpu.memory_share
        if used is None or full is None:
            continue
        grown = used.last - used.first
        total = gpu.last(catalogue.MEMORY_TOTAL) or 0.0
        if full > thresholds.MEMORY_FULL_SHARE and grown > thresholds.MEMORY_GROWTH_SHARE * total:
            yield of_gpu("work.memory_full", gpu, f"{full:.1%} in use, {grown / 1024**2:.0f} MiB more than before")


def work_judge(bottlenecks: Mapping[GpuView, Bottleneck]) -> Judge:
    """A judge of GPUs of these bottlenecks that hang, that hold memory at rest, or that are busy and do little."""

    def judge(_host: HostView) -> Iterator[Finding]:
        for gpu, bottleneck in bottlenecks.items():
            if bottleneck.name == "communication":
                yield of_gpu("work.low_power", gpu, bottleneck.because)
            elif bottleneck.name == "hung":
                yield of_gpu("work.hung", gpu, f"{bottleneck.because}; {_held(gpu)}")
            elif bottleneck.name == "unattributed" and held_idle(gpu):
                yield of_gpu("work.held_idle", gpu, f"{_held(gpu)}, busy {gpu.busy_share or 0:.0%} of the time")

    return judge


def _held(gpu: GpuView) -> str:
    held = (gpu.last(catalogue.MEMORY_USED) or 0.0) / 1024**3
    return f"{held:.1f} GiB held by {gpu.process_names or 'a process'}"


def judge_settings(host: HostView) -> Iterator[Finding]:
    """Persistence mode."""
    for gpu in host.answering:
        if gpu.last(catalogue.PERSISTENCE_MODE) == 0:
            yield of_gpu("policy.persistence", gpu, "persistence mode is off")


def judge_baseline(host: HostView) -> Iterator[Finding]:
    """Fields that differ from the recorded baseline, of the host and of each GPU."""
    drifted: dict[tuple[str, str], list[str]] = defaultdict(list)
    for track in host.evidence.series(catalogue.BASELINE_MISMATCH):
        if track.last:
            drifted[track.labels["gpu"], track.labels["uuid"]].append(track.labels["field"])
    for (gpu, uuid), fields in drifted.items():
        yield Finding(BY_CODE["baseline.drift"], f"differs in {', '.join(sorted(fields))}", gpu or None, uuid)
