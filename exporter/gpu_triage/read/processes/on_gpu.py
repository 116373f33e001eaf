"""Processes on each GPU: type, GPU memory, utilization, owner and NUMA locality."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from gpu_triage.driver.kernel.procfs import read_process_stats
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.lists import MOST_LISTED
from gpu_triage.machine import Holder
from gpu_triage.read.gpu.modes import mig_mode
from gpu_triage.read.metrics.contract import GpuCollector, GpuLabels, GpuRound
from gpu_triage.read.metrics.metric import Sample, Tier, gpu_gauge, gpu_info
from gpu_triage.read.metrics.rendering import samples
from gpu_triage.read.processes import cgroup_limits as process_cgroups
from gpu_triage.read.processes import threads as process_threads
from gpu_triage.read.processes import vitals as process_vitals
from gpu_triage.read.processes.cgroup_limits import CgroupReading, CgroupsReader
from gpu_triage.read.processes.facts import (
    NO_FACTS,
    WAITS_FOR,
    ProcessFacts,
    ProcessFactsReader,
    driver_pids,
    sees_every_process,
)
from gpu_triage.read.processes.listing import BOTH, KINDS, list_processes
from gpu_triage.read.processes.locality import GpuLocality
from gpu_triage.read.processes.pods import WorkloadFinder
from gpu_triage.read.processes.threads import IoReader, IoReading, ThreadsReader, ThreadsReading
from gpu_triage.read.processes.vitals import ProcessVitals, ProcessVitalsReader

_AHEAD_SECONDS: Final = 1.0
"""Samples carry wall-clock timestamps; one in the future dates from before the clock was set back."""

GPU_PROCESSES = gpu_gauge(
    "Processes with a context on the GPU, each in one type: compute, graphics, compute_graphics (in both driver "
    "lists, like a desktop's compositor), mps. Absent if unknown (gpu_exporter_degraded_info).",
    labels={"type": (*KINDS, BOTH)},
    source="nvmlDeviceGet{Compute,Graphics,MPSCompute}RunningProcesses",
)
GPU_PROCESSES_TRUNCATED = gpu_gauge(
    "Processes left out of per-process series by --process.max, smallest first; plus one if the driver truncated its "
    f"list, after {MOST_LISTED} processes of a kind.",
    source="the exporter",
    default_samples=lambda sample: sample.value > 0,
)
_process_gauge = partial(gpu_gauge, labels=("pid", "process"))

GPU_PROCESS_MEMORY_BYTES = _process_gauge(
    "Device memory held by a process; absent if the driver cannot report it. `pid` is the host's PID; outside its "
    "namespace, with driver 535.113 and later, the PID in the exporter's.",
    source="nvmlDeviceGet*RunningProcesses.usedGpuMemory",
)
GPU_PROCESS_SM_UTILIZATION_RATIO = _process_gauge(
    "Share of time this process's kernels ran, 0-1, over the last round. Absent in MIG mode.",
    source="nvmlDeviceGetProcessUtilization.smUtil",
)
GPU_PROCESS_NUMA_LOCAL = _process_gauge(
    "1 when every CPU allowed to the process is on the GPU's NUMA node or about as near (another node of its socket), "
    "0 when all are clearly farther. Absent when it spans both, when all nodes are about as near, and when unknown.",
    source="/proc/PID/status, /sys/devices/system/node/node*/distance",
)
GPU_PROCESS_NUMA_DISTANCE = _process_gauge(
    "Firmware distance from the GPU's NUMA node to the nearest CPU allowed to the process. Only if "
    "gpu_process_numa_local is 0; absent if the kernel does not report distances.",
    source="/sys/devices/system/node/node*/distance",
)
GPU_PROCESS_WAITS_FOR = _process_gauge(
    "What a compute process may wait for while it does nothing, without being hung: {states}. input: it alone is in "
    "the foreground of a terminal; requests: it, its parent or a thread has the name of a notebook, server or idle "
    "worker; continuation: a signal or a debugger stopped it.",
    states=WAITS_FOR,
    source="/proc/PID/stat state, tpgid, comm; /proc/PID/task/TID/stat comm",
    default_samples=lambda sample: sample.value > 0,
)
GPU_PROCESS_INFO = gpu_info(
    "Owner of a process; join on gpu, uuid and pid. Labels that do not apply or cannot be read are empty. "
    "docs/jobs.md has where the names come from.",
    labels=(
        *("pid", "process", "user", "container_id", "pod_uid"),
        *("workload_pod", "workload_namespace", "workload_container", "slurm_job_id"),
    ),
    source="/proc/PID/{stat,status,cgroup}, /var/log/containers, the kubelet",
)
GPU_PROCESS_OWNER_INFO = gpu_info(
    "Owners of the processes on the GPU, one series each, with labels of gpu_process_info; all empty for processes "
    "that cannot be read.",
    labels=("user", "pod_uid", "workload_pod", "workload_namespace", "slurm_job_id"),
    source="as gpu_process_info",
)
GPU_NUMA_MISMATCHED_PROCESSES = gpu_gauge(
    "Compute processes with all allowed CPUs clearly farther from the GPU than the nearest CPUs. Absent when unknown, "
    "and when all NUMA nodes are about as near.",
    source="/proc/PID/status, /sys/devices/system/node/node*/distance",
)
GPU_NUMA_UNPINNED_PROCESSES = gpu_gauge(
    "Compute processes allowed on every CPU of a host with near and far NUMA nodes. Absent when unknown, and when all "
    "nodes are about as near.",
    source="/proc/PID/status",
)


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """One process on one GPU, with facts from procfs; None if it ended or has other PIDs there.

    Names of the workload that are not known for certain are empty. `numa_distance` is that from the GPU's node to the
    nearest allowed CPU; None unless the process is remote.
    """

    pid: int
    is_compute: bool
    memory_bytes: Annotated[float | None, GPU_PROCESS_MEMORY_BYTES]
    sm_utilization_ratio: Annotated[float | None, GPU_PROCESS_SM_UTILIZATION_RATIO]
    facts: ProcessFacts | None
    workload: Holder  # its pod and container
    vitals: ProcessVitals | None = None
    numa_distance: Annotated[int | None, GPU_PROCESS_NUMA_DISTANCE] = None
    numa_local: Annotated[float | None, GPU_PROCESS_NUMA_LOCAL] = None
    unpinned: bool = False  # whether it may run on every CPU of a host with near and far NUMA nodes


@dataclass(frozen=True, slots=True)
class ProcessesReading:
    # Number by type; types that are not reported are missing. Empty if the driver's list is empty but may have left out
    # processes.
    counts: Annotated[Mapping[str, int], GPU_PROCESSES]
    processes: tuple[ProcessReading, ...]  # the largest by memory, up to the configured maximum
    # Minimum number of processes left out; None if it is not known how many there are.
    truncated: Annotated[int | None, GPU_PROCESSES_TRUNCATED] = None
    # Whether this host has near and far NUMA nodes, and at least one process, if any, could be read.
    locality_known: bool = False
    threads: ThreadsReading | None = None
    io: IoReading | None = None
    cgroups: tuple[CgroupReading, ...] = ()


class ProcessesReader:
    def __init__(self, most: int) -> None:
        self._most = most
        self._newest_us = 0
        self._facts = ProcessFactsReader()
        self._vitals = ProcessVitalsReader()
        self._cgroups = CgroupsReader()
        self._threads = ThreadsReader()
        self._io = IoReader()

    def read(self, gpu: GpuRound) -> ProcessesReading:
        listed = list_processes(gpu.inquiry)
        if not listed.processes and not sees_every_process(gpu.machine.procfs):
            # The list may be empty only because the processes are hidden from us, so do not report the GPU as free.
            return ProcessesReading({}, ())
        # In MIG mode the driver keeps no samples, and a missing sample would be read as an idle process.
        pids = driver_pids(gpu.machine.procfs, gpu.versions.driver)
        sampled = bool(listed.processes) and pids.utilization and not mig_mode(gpu.inquiry)
        utilization = self._utilization(gpu.inquiry, gpu.at.wall) if sampled else None
        numa = GpuLocality(gpu)
        workloads = WorkloadFinder(gpu)
        shown = listed.processes[: self._most]
        # Otherwise these PIDs belong to other processes in this procfs.
        looked_up = [process.pid for process in shown] if pids.procfs else []
        stats = read_process_stats(gpu.machine.procfs, looked_up)
        facts = self._facts.read(gpu.machine.procfs, stats, gpu.at.monotonic)
        vitals = self._vitals.read(gpu.machine.procfs, {pid: stats[pid] for pid in facts}, gpu.at)
        threads = self._threads.read(gpu.machine.procfs, facts.keys(), gpu.at.monotonic)
        processes = tuple(
            ProcessReading(
                pid=process.pid,
                is_compute=process.is_compute,
                memory_bytes=process.memory_bytes if pids.memory else None,
                sm_utilization_ratio=None if utilization is None else utilization.get(process.pid, 0.0),
                facts=facts.get(process.pid),
                workload=workloads.workload(process, facts.get(process.pid)),
                vitals=vitals.get(process.pid),
                numa_distance=placement.distance,
                numa_local=placement.local,
                unpinned=placement.unpinned,
            )
            for process in shown
            for placement in [numa.of(facts.get(process.pid))]
        )
        return ProcessesReading(
            counts=listed.counts,
            processes=processes,
            truncated=len(listed.processes) - len(processes) + listed.ended_early if listed.counts else None,
            # If there are processes but none could be read, none of them can be called well placed.
            locality_known=numa.can_tell and (not listed.processes or any(process.facts for process in processes)),
            threads=threads,
            io=self._io.read(gpu.machine.procfs, self._threads.processes),
            cgroups=self._cgroups.read(gpu.machine, facts, gpu.at.monotonic, gpu.inquiry.failures),
        )

    def _utilization(self, inquiry: Inquiry, wall: float) -> Mapping[int, float | None] | None:
        """Latest utilization (0-1) by PID, None if invalid; idle processes have no new sample and are missing."""
        latest_us = (wall + _AHEAD_SECONDS) * 1e6
        if self._newest_us > latest_us:
            self._newest_us = 0
        samples = inquiry.many("nvmlDeviceGetProcessUtilization", self._newest_us)
        if samples is None:
            return None
        latest: dict[int, float | None] = {}
        for sample in sorted(samples, key=lambda sample: sample.timeStamp):
            if self._newest_us < sample.timeStamp <= latest_us:
                latest[sample.pid] = inquiry.ratio(sample.smUtil)
        seen = (sample.timeStamp for sample in samples if sample.timeStamp <= latest_us)
        self._newest_us = max((self._newest_us, *seen))
        return latest


def render(reading: ProcessesReading, gpu: GpuLabels) -> Iterator[Sample]:
    yield from samples(reading, gpu)
    for process in reading.processes:
        yield from _render_process(process, gpu)
    for owner in dict.fromkeys(_owner_labels(process) for process in reading.processes):
        yield GPU_PROCESS_OWNER_INFO.sample(1, *gpu, *owner)
    yield from samples(reading.threads, gpu)
    yield from samples(reading.io, gpu)
    for cgroup in reading.cgroups:
        yield from samples(cgroup, (*gpu, cgroup.path))
    if reading.locality_known and "compute" in reading.counts:
        compute = [process for process in reading.processes if process.is_compute]
        yield GPU_NUMA_MISMATCHED_PROCESSES.sample(sum(process.numa_local == 0 for process in compute), *gpu)
        yield GPU_NUMA_UNPINNED_PROCESSES.sample(sum(process.unpinned for process in compute), *gpu)


def _render_process(process: ProcessReading, gpu: GpuLabels) -> Iterator[Sample]:
    facts = process.facts or NO_FACTS
    labels = (*gpu, str(process.pid), facts.name)
    yield from samples(process, labels)
    yield from samples(process.vitals, labels)
    if process.facts and process.is_compute:
        yield GPU_PROCESS_WAITS_FOR.sample(facts.waits_for, *labels)
    container, pod, job = facts.owner
    yield GPU_PROCESS_INFO.sample(1, *labels, facts.user, container, pod, *process.workload[:3], job)


def _owner_labels(process: ProcessReading) -> tuple[str, ...]:
    facts, workload = process.facts or NO_FACTS, process.workload
    return facts.user, facts.owner.pod_uid, workload.pod, workload.namespace, facts.owner.slurm_job_id


PROCESSES = GpuCollector(
    about="processes on each GPU and their NUMA locality",
    tier=Tier.MEDIUM,
    reader=lambda config: ProcessesReader(config.process_max).read,
    render=render,
    also_in=(process_vitals, process_cgroups, process_threads),
)
