"""Who uses the GPU, how much of it, and whether from the right side of the host."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpu_triage.errors import HostReadFailed
from gpu_triage.hardware.mig_uuids import read_mig_uuids
from gpu_triage.hardware.modes import mig_mode
from gpu_triage.hardware.numa import read_numa_nodes
from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.pci_bus import numa_node_of
from gpu_triage.hardware.process_facts import (
    ProcessFacts,
    ProcessFactsReader,
    names_are_host_pids,
    sees_every_process,
)
from gpu_triage.hardware.process_list import ListedProcess, list_processes
from gpu_triage.hardware.rounds import GpuRound
from gpu_triage.machine import Workload

_AHEAD_SECONDS: Final = 1.0
"""Samples carry the time of day; one of a later time is from before the clock was set back."""
_MOST_PERCENT: Final = 100

NO_WORKLOAD: Final = Workload("", "", "")
"""Of a process in no pod, or in one whose name is not known."""


class Locality(Enum):
    """Where a process may run, seen from its GPU."""

    LOCAL = "every allowed CPU is on the GPU's NUMA node"
    REMOTE = "no allowed CPU is on the GPU's NUMA node"
    SPANNING = "some allowed CPUs are, some are not"
    UNPINNED = "every CPU of the host is allowed"
    UNKNOWN = "the GPU's node or the process's CPUs are not known, or the host has one node"


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """One process on one GPU.

    Attributes:
        pid: as the driver gives it: a PID of the host.
        is_compute: whether it has a compute context, its own or through MPS.
        memory_bytes: device memory it holds; None where the driver cannot tell.
        sm_utilization_ratio: share of time its kernels ran in the last round; None where not reported.
        facts: from procfs; None when it vanished or this procfs is of another PID namespace.
        locality: of its CPU affinity.
        workload: the pod and container it runs in; empty names for what is not known for certain.
    """

    pid: int
    is_compute: bool
    memory_bytes: float | None
    sm_utilization_ratio: float | None
    facts: ProcessFacts | None
    locality: Locality
    workload: Workload


@dataclass(frozen=True, slots=True)
class ProcessesReading:
    """The processes of one GPU.

    Attributes:
        counts: by kind (compute, graphics, compute_graphics, mps); a kind not reported is not in it, and none is where
            the driver may leave processes out and lists nobody.
        processes: the largest by memory, at most as many as asked for.
        truncated: how many more there are.
        locality_known: whether localities could be judged: on this host, and of at least one process if there are any.
    """

    counts: Mapping[str, int]
    processes: tuple[ProcessReading, ...]
    truncated: int
    locality_known: bool


class ProcessesReader:
    """Reads processes; remembers up to when the driver's utilisation samples were seen."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._newest_us = 0
        self._facts = ProcessFactsReader()
        self._sees_all: bool | None = None

    def read(self, gpu: GpuRound) -> ProcessesReading:
        """Processes now (nvmlDeviceGet*RunningProcesses, nvmlDeviceGetProcessUtilization, /proc/PID)."""
        listed = list_processes(gpu.inquiry)
        if not listed.processes and not self._sees_every_process(gpu):
            # An empty list would say that the GPU is free, which nobody knows.
            return ProcessesReading({}, (), 0, locality_known=False)
        # In MIG mode no samples are kept, and no sample would say that the process did nothing.
        sampled = bool(listed.processes) and not mig_mode(gpu.inquiry)
        utilization = self._utilization(gpu.inquiry, gpu.at.wall) if sampled else None
        judge = _LocalityJudge(gpu)
        workloads = _WorkloadFinder(gpu)
        shown = listed.processes[: self._most]
        facts = self._facts_of(gpu, shown)
        processes = tuple(
            ProcessReading(
                pid=process.pid,
                is_compute=process.is_compute,
                memory_bytes=process.memory_bytes,
                sm_utilization_ratio=None if utilization is None else utilization.get(process.pid, 0.0),
                facts=facts[process.pid],
                locality=judge.locality(facts[process.pid]),
                workload=workloads.workload(process, facts[process.pid]),
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

    def _facts_of(self, gpu: GpuRound, processes: Sequence[ListedProcess]) -> Mapping[int, ProcessFacts | None]:
        pids = [process.pid for process in processes]
        # In a PID namespace of its own, procfs has other processes under these PIDs.
        if not pids or names_are_host_pids(gpu.machine.procfs) is False:
            return dict.fromkeys(pids)
        return self._facts.read(gpu.machine.procfs, pids, gpu.at.monotonic)

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


class _WorkloadFinder:
    """Finds the pods and containers of one GPU's processes, as far as the kubelet says who holds what."""

    def __init__(self, gpu: GpuRound) -> None:
        self._gpu = gpu
        self._mig_uuids: Mapping[tuple[int, int], str] | None = None

    def workload(self, process: ListedProcess, facts: ProcessFacts | None) -> Workload:
        """Whose process it is; empty names where that is not certain.

        The kubelet knows pods by name, the process's cgroup by UID, and nothing here translates: what is certain is
        what everybody who holds the device has in common.
        """
        pods = self._gpu.machine.pods
        if pods is None or facts is None or not facts.pod_uid:
            return NO_WORKLOAD
        return in_common(pods.holders(self._devices(process), self._gpu.at))

    def _devices(self, process: ListedProcess) -> frozenset[str]:
        whole = frozenset({self._gpu.inquiry.device.uuid})
        if not process.instances:
            return whole
        if self._mig_uuids is None:
            self._mig_uuids = read_mig_uuids(self._gpu.inquiry)
        return frozenset(self._mig_uuids[i] for i in process.instances if i in self._mig_uuids)


def in_common(workloads: Collection[Workload]) -> Workload:
    """What all of them have in common: the container, else the pod, else nothing."""
    if len(workloads) == 1:
        return next(iter(workloads))
    pods = {(workload.pod, workload.namespace) for workload in workloads}
    return Workload(*pods.pop(), container="") if len(pods) == 1 else NO_WORKLOAD
