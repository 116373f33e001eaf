"""Whether a job saves a checkpoint, which keeps its GPUs idle for minutes: the job shows that, not its host."""

from __future__ import annotations

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.limited_jobs import own_stalls
from gpu_triage.judge.evidence.owners import owners_of
from gpu_triage.read.processes.cgroup_limits import GPU_CGROUP_WRITTEN_BYTES_TOTAL
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO
from gpu_triage.read.processes.written import GPU_PROCESSES_WRITTEN_BYTES_TOTAL


def saves(host: HostEvidence, gpu: GpuEvidence) -> bool | None:
    """Return whether the job on the GPU writes as much as while it saves a checkpoint; None if that cannot be read.

    Its ranks on this host count together, as one of them often writes for all. What its cgroup writes proves that it
    saves, but not that it does not: a cgroup does not count what goes to file servers. What is in the page
    cache may take minutes to be written back: then the job's own tasks wait for that, and the host writes.
    """
    owners = owners_of(gpu)
    ranks = [each for each in host.answering if each.occupied and owners_of(each) == owners]
    processes: dict[frozenset[str], float] = {}  # by PIDs: a process on several GPUs counts once
    cgroups: dict[str, float] = {}
    for rank in ranks:
        rates = [rate for each in rank.series(GPU_PROCESSES_WRITTEN_BYTES_TOTAL) if (rate := each.rate) is not None]
        if rates:
            processes[frozenset(labels["pid"] for labels in rank.labels_of(GPU_PROCESS_INFO))] = max(rates)
        cgroups |= {each.labels["cgroup"]: each.rate or 0.0 for each in rank.series(GPU_CGROUP_WRITTEN_BYTES_TOTAL)}
    if max(sum(processes.values()), sum(cgroups.values())) >= thresholds.SAVING_BYTES_PER_SECOND:
        return True
    if not processes:
        return None
    writes = host.mostly_writes() and host.written_bytes_per_second() >= thresholds.SAVING_BYTES_PER_SECOND
    return writes and any("storage" in own_stalls(rank, {}, lambda _name: 1.0) for rank in ranks)


def saving_explains_seconds(host: HostEvidence, gpu: GpuEvidence) -> float:
    """Return for how long a checkpoint explains that the GPU is idle; 0 if none is saved."""
    saving = saves(host, gpu)
    if saving is not None:
        return thresholds.UNEXPLAINED_SECONDS if saving else 0.0
    # What its cgroup does not write to disks, others do.
    written = host.written_bytes_per_second(disks=not gpu.has(GPU_CGROUP_WRITTEN_BYTES_TOTAL))
    enough = written + host.uploaded_bytes_per_second >= thresholds.SAVING_BYTES_PER_SECOND
    return thresholds.HOST_SAVES_SECONDS if enough else 0.0
