"""Who uses the GPU, how much of it, and whether from the right side of the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final

from gpu_triage.errors import HostReadFailed
from gpu_triage.gpu.modes import mig_mode
from gpu_triage.host.numa import read_numa_nodes
from gpu_triage.kernel.pci_bus import numa_node_of
from gpu_triage.kernel.process_stat import ProcessStat, read_process_stats
from gpu_triage.machine import Workload
from gpu_triage.nvml.inquiry import Inquiry
from gpu_triage.processes import vitals as process_vitals
from gpu_triage.processes.listing import BOTH, KINDS, ListedProcess, ProcessLister
from gpu_triage.processes.pids import ProcessFacts, names_are_host_pids, sees_every_process
from gpu_triage.processes.vitals import ProcessVitals, ProcessVitalsReader
from gpu_triage.processes.workloads import WorkloadFinder
from gpu_triage.subjects.contract import GpuCollector, GpuLabels
from gpu_triage.subjects.metric import Sample, Tier, gpu_gauge, gpu_info
from gpu_triage.subjects.rendering import samples
from gpu_triage.subjects.rounds import GpuRound

if TYPE_CHECKING:
    from gpu_triage.processes.facts import ProcessFactsReader

_AHEAD_SECONDS: Final = 1.0
"""Samples carry the time of day; one of a later time is from before the clock was set back."""
_MOST_PERCENT: Final = 100


class Locality(Enum):
    """Where a process may run, seen from its GPU."""

    LOCAL = "every allowed CPU is on the GPU's NUMA node"
    REMOTE = "no allowed CPU is on the GPU's NUMA node"
    SPANNING = "some allowed CPUs are, some are not"
    UNPINNED = "every CPU of the host is allowed"
    UNKNOWN = "the GPU's node or the process's CPUs are not known, or the host has one node"


GPU_PROCESSES = gpu_gauge(
    "gpu_processes",
    "Processes that have a context on the GPU, each in one type: compute, graphics, compute_graphics (in both of the "
    "driver's lists, as a desktop's compositor is), mps. Absent where nobody knows, as in a PID namespace other than "
    "the host's with an empty list: gpu_exporter_degraded_info names that.",
    labels={"type": (*KINDS, BOTH)},
    source="nvmlDeviceGet{Compute,Graphics,MPSCompute}RunningProcesses",
)
GPU_PROCESSES_TRUNCATED = gpu_gauge(
    "gpu_processes_truncated",
    "Processes left out of the per-process series by --process.max, smallest first.",
    source="the exporter",
    brief=lambda sample: sample.value > 0,
)
GPU_PROCESS_MEMORY_BYTES = gpu_gauge(
    "gpu_process_memory_bytes",
    "Device memory a process holds; absent when the driver cannot tell.",
    labels=("pid", "process"),
    source="nvmlDeviceGet*RunningProcesses.usedGpuMemory",
)
GPU_PROCESS_SM_UTILIZATION_RATIO = gpu_gauge(
    "gpu_process_sm_utilization_ratio",
    "Share of time this process's kernels ran, 0-1, over the last round; absent in MIG mode.",
    labels=("pid", "process"),
    source="nvmlDeviceGetProcessUtilization.smUtil",
)
GPU_PROCESS_NUMA_LOCAL = gpu_gauge(
    "gpu_process_numa_local",
    "1 when every CPU the process may use is on the GPU's NUMA node, 0 when none is; absent when it spans nodes, on "
    "single-node hosts and when unknown.",
    labels=("pid", "process"),
    source="/proc/PID/status Cpus_allowed_list against the GPU's NUMA node",
)
GPU_PROCESS_INFO = gpu_info(
    "gpu_process_info",
    "Whose process it is; join on gpu, uuid and pid. What does not apply or cannot be read is an empty label. The "
    "workload's names are those of the process's container with --kubernetes.container-logs. With "
    "--kubernetes.pod-resources-socket alone they are those of the one container that holds the GPU, or of the one "
    "pod whose containers do, and empty where several pods share it; gpu_allocated names them all.",
    labels=(
        "pid",
        "process",
        "user",
        "container_id",
        "pod_uid",
        "workload_pod",
        "workload_namespace",
        "workload_container",
        "slurm_job_id",
    ),
    source="/proc/PID/{comm,status,cgroup}; names in /var/log/containers; the kubelet's pod resources",
)
GPU_PROCESS_OWNER_INFO = gpu_info(
    "gpu_process_owner_info",
    "Whose processes are on the GPU: one series for each owner, however many processes they have. Labels are those of "
    "gpu_process_info; all are empty for processes about which nothing can be read.",
    labels=("user", "pod_uid", "workload_pod", "workload_namespace", "slurm_job_id"),
    source="the same as gpu_process_info",
)
GPU_NUMA_MISMATCHED_PROCESSES = gpu_gauge(
    "gpu_numa_mismatched_processes",
    "Compute processes whose every allowed CPU is on another NUMA node than the GPU; absent when unknown or "
    "single-node.",
    source="/proc/PID/status",
)
GPU_NUMA_UNPINNED_PROCESSES = gpu_gauge(
    "gpu_numa_unpinned_processes",
    "Compute processes that may run on every CPU of a host with several NUMA nodes; absent when unknown or "
    "single-node.",
    source="/proc/PID/status",
)


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """One process on one GPU.

    Attributes:
        pid: as the driver gives it: a PID of the host.
        is_compute: whether it has a compute context, its own or through MPS.
        facts: from procfs; None when it vanished or this procfs is of another PID namespace.
        locality: of its CPU affinity.
        workload: the pod and container it runs in; empty names for what is not known for certain.
        vitals: how it fares on the host; None where facts are, or that cannot be read.
    """

    pid: int
    is_compute: bool
    memory_bytes: Annotated[float | None, GPU_PROCESS_MEMORY_BYTES]
    sm_utilization_ratio: Annotated[float | None, GPU_PROCESS_SM_UTILIZATION_RATIO]
    facts: ProcessFacts | None
    locality: Locality
    workload: Workload
    vitals: ProcessVitals | None = None


@dataclass(frozen=True, slots=True)
class ProcessesReading:
    """The processes of one GPU. A kind that is not reported is not in `counts`.

    None is where the driver may leave processes out and lists nobody.

    Attributes:
        processes: the largest by memory, at most as many as asked for.
        truncated: how many more there are.
        locality_known: whether localities could be judged: on this host, and of at least one process if there are any.
    """

    counts: Annotated[Mapping[str, int], GPU_PROCESSES]
    processes: tuple[ProcessReading, ...]
    truncated: int
    locality_known: bool


class ProcessesReader:
    """Reads processes; remembers up to when the driver's utilisation samples were seen."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._newest_us = 0
        self._lister = ProcessLister()
        self._facts: ProcessFactsReader | None = None
        self._vitals = ProcessVitalsReader()
        self._sees_all: bool | None = None

    def read(self, gpu: GpuRound) -> ProcessesReading:
        """Processes now (nvmlDeviceGet*RunningProcesses, nvmlDeviceGetProcessUtilization, /proc/PID)."""
        listed = self._lister.read(gpu.inquiry)
        if not listed.processes and not self._sees_every_process(gpu):
            # An empty list would say that the GPU is free, which nobody knows.
            return ProcessesReading({}, (), 0, locality_known=False)
        # In MIG mode no samples are kept, and no sample would say that the process did nothing.
        sampled = bool(listed.processes) and not mig_mode(gpu.inquiry)
        utilization = self._utilization(gpu.inquiry, gpu.at.wall) if sampled else None
        judge = _LocalityJudge(gpu)
        workloads = WorkloadFinder(gpu)
        shown = listed.processes[: self._most]
        stats = self._stats_of(gpu, shown)
        facts = self._facts_of(gpu, stats)
        vitals = self._vitals.read(gpu.machine.procfs, {pid: stats[pid] for pid in stats if facts[pid]}, gpu.at)
        processes = tuple(
            ProcessReading(
                pid=process.pid,
                is_compute=process.is_compute,
                memory_bytes=process.memory_bytes,
                sm_utilization_ratio=None if utilization is None else utilization.get(process.pid, 0.0),
                facts=facts.get(process.pid),
                locality=judge.locality(facts.get(process.pid)),
                workload=workloads.workload(process, facts.get(process.pid)),
                vitals=vitals.get(process.pid),
            )
            for process in shown
        )
        return ProcessesReading(
            counts=listed.counts,
            processes=processes,
            truncated=len(listed.processes) - len(processes),
            # Where there are processes and none could be looked at, nobody knows that none is misplaced.
            locality_known=judge.can_tell and (not listed.processes or any(process.facts for process in processes)),
        )

    def _sees_every_process(self, gpu: GpuRound) -> bool:
        if self._sees_all is None:
            # A process stays in its PID namespace.
            self._sees_all = sees_every_process(gpu.machine.procfs)
        return self._sees_all

    def _stats_of(self, gpu: GpuRound, processes: Sequence[ListedProcess]) -> Mapping[int, ProcessStat | None]:
        # In a PID namespace of its own, procfs has other processes under these PIDs.
        seen = processes if processes and names_are_host_pids(gpu.machine.procfs) is not False else ()
        return read_process_stats(gpu.machine.procfs, [process.pid for process in seen])

    def _facts_of(self, gpu: GpuRound, stats: Mapping[int, ProcessStat | None]) -> Mapping[int, ProcessFacts | None]:
        if not stats:
            return {}
        if self._facts is None:
            # Not before there is a process: psutil takes 10 ms and half a megabyte.
            from gpu_triage.processes.facts import ProcessFactsReader  # noqa: PLC0415

            self._facts = ProcessFactsReader()
        return self._facts.read(gpu.machine.procfs, stats, gpu.at.monotonic)

    def _utilization(self, inquiry: Inquiry, wall: float) -> Mapping[int, float | None] | None:
        """Latest share of time by PID, None for junk; a process without a new sample ran nothing and is not in it."""
        latest_us = (wall + _AHEAD_SECONDS) * 1e6
        if self._newest_us > latest_us:
            self._newest_us = 0
        samples = inquiry.many("nvmlDeviceGetProcessUtilization", self._newest_us)
        if samples is None:
            return None
        latest: dict[int, float | None] = {}
        for sample in sorted(samples, key=lambda sample: sample.timeStamp):
            if self._newest_us < sample.timeStamp <= latest_us:
                percent = inquiry.within(sample.smUtil, 0, _MOST_PERCENT)
                latest[sample.pid] = None if percent is None else percent / 100
        seen = (sample.timeStamp for sample in samples if sample.timeStamp <= latest_us)
        self._newest_us = max((self._newest_us, *seen))
        return latest


class _LocalityJudge:
    """Judges CPU affinities against one GPU's NUMA node."""

    def __init__(self, gpu: GpuRound) -> None:
        bus_id = gpu.inquiry.device.pci_bus_id
        try:
            nodes = read_numa_nodes(gpu.machine.sysfs)
        except HostReadFailed as failed:
            gpu.inquiry.failures.append(failed.reason)
            nodes = {}
        node = numa_node_of(gpu.machine.sysfs, bus_id) if bus_id else None
        self._local_cpus = nodes.get(-1 if node is None else node, frozenset())
        self._all_cpus = frozenset().union(*nodes.values())
        self.can_tell = len(nodes) > 1 and bool(self._local_cpus)

    def locality(self, facts: ProcessFacts | None) -> Locality:
        allowed = (facts.allowed_cpus or frozenset()) & self._all_cpus if facts else frozenset()
        if not self.can_tell or not allowed:
            return Locality.UNKNOWN
        if allowed == self._all_cpus:
            return Locality.UNPINNED
        if allowed <= self._local_cpus:
            return Locality.LOCAL
        return Locality.SPANNING if allowed & self._local_cpus else Locality.REMOTE


_LOCAL = {Locality.LOCAL: 1.0, Locality.REMOTE: 0.0}


def render(reading: ProcessesReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's processes."""
    yield from samples(reading, gpu)
    if reading.counts:
        yield GPU_PROCESSES_TRUNCATED.sample(reading.truncated, *gpu)
    for process in reading.processes:
        yield from _render_process(process, gpu)
    for owner in dict.fromkeys(_owner_labels(process) for process in reading.processes):
        yield GPU_PROCESS_OWNER_INFO.sample(1, *gpu, *owner)
    if reading.locality_known and "compute" in reading.counts:
        compute = [process.locality for process in reading.processes if process.is_compute]
        yield GPU_NUMA_MISMATCHED_PROCESSES.sample(compute.count(Locality.REMOTE), *gpu)
        yield GPU_NUMA_UNPINNED_PROCESSES.sample(compute.count(Locality.UNPINNED), *gpu)


def _render_process(process: ProcessReading, gpu: GpuLabels) -> Iterator[Sample]:
    facts, pid = process.facts, str(process.pid)
    name = facts.name if facts else ""
    yield from samples(process, (*gpu, pid, name))
    if process.locality in _LOCAL:
        yield GPU_PROCESS_NUMA_LOCAL.sample(_LOCAL[process.locality], *gpu, pid, name)
    if process.vitals is not None:
        yield from process_vitals.render(process.vitals, (*gpu, pid, name))
    user, (container, pod, job) = (facts.user, facts.owner) if facts else ("", ("", "", ""))
    yield GPU_PROCESS_INFO.sample(1, *gpu, pid, name, user, container, pod, *process.workload, job)


def _owner_labels(process: ProcessReading) -> tuple[str, ...]:
    """User, UID, name and namespace of the pod, Slurm job."""
    pod, namespace, _ = process.workload
    if process.facts is None:
        return "", "", pod, namespace, ""
    owner = process.facts.owner
    return process.facts.user, owner.pod_uid, pod, namespace, owner.slurm_job_id


PROCESSES = GpuCollector(
    name="processes",
    about="processes on each GPU and their NUMA locality",
    tier=Tier.MEDIUM,
    reader=lambda config: ProcessesReader(config.process_max).read,
    render=render,
    also_in=process_vitals,
)
