"""Who uses the GPU, how much of it, and whether from the right side of the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from gpu_triage.errors import HostReadFailed
from gpu_triage.hardware.modes import mig_mode
from gpu_triage.hardware.numa import read_numa_nodes
from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.pci_bus import numa_node_of
from gpu_triage.hardware.process_facts import (
    ProcessFacts,
    names_are_host_pids,
    read_process_facts,
    read_user_names,
)
from gpu_triage.hardware.rounds import GpuRound

KINDS: Final = MappingProxyType(
    {
        "compute": ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
        "graphics": ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
        "mps": ("nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2"),
    }
)
"""Label to the calls that list such processes, newest first."""

_MOST_BYTES: Final = 1 << 50
_AHEAD_SECONDS: Final = 1.0
"""Samples carry the time of day; one of a later time is from before the clock was set back."""
_MOST_PERCENT: Final = 100
_MOST_PID: Final = 1 << 22
"""PID_MAX_LIMIT of the kernel."""


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
    """

    pid: int
    is_compute: bool
    memory_bytes: float | None
    sm_utilization_ratio: float | None
    facts: ProcessFacts | None
    locality: Locality


@dataclass(frozen=True, slots=True)
class ProcessesReading:
    """The processes of one GPU.

    Attributes:
        counts: by kind (compute, graphics, mps); a kind not reported is not in it.
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

    def read(self, gpu: GpuRound) -> ProcessesReading:
        """Processes now (nvmlDeviceGet*RunningProcesses, nvmlDeviceGetProcessUtilization, /proc/PID)."""
        inquiry, procfs = gpu.inquiry, gpu.machine.procfs
        listed = {kind: _memory_by_pid(inquiry, functions) for kind, functions in KINDS.items()}
        memory: dict[int, float | None] = {}
        for by_pid in listed.values():
            for pid, used in (by_pid or {}).items():
                # A process in two lists is listed with the same memory twice.
                memory[pid] = max(memory.get(pid) or 0, used) if used is not None else memory.get(pid)
        compute = {**(listed["compute"] or {}), **(listed["mps"] or {})}
        largest = sorted(memory, key=lambda pid: (-(memory[pid] or 0), pid))[: self._most]
        # In MIG mode no samples are kept, and no sample would say that the process did nothing.
        utilization = self._utilization(inquiry, gpu.at.wall) if memory and not mig_mode(inquiry) else None
        judge = _LocalityJudge(gpu)
        # In a PID namespace of its own, procfs has other processes under these PIDs.
        readable = bool(largest) and names_are_host_pids(procfs) is not False
        user_names = read_user_names(procfs) if readable else {}
        processes = []
        for pid in largest:
            facts = read_process_facts(procfs, pid, user_names) if readable else None
            processes.append(
                ProcessReading(
                    pid=pid,
                    is_compute=pid in compute,
                    memory_bytes=memory[pid],
                    sm_utilization_ratio=None if utilization is None else utilization.get(pid, 0.0),
                    facts=facts,
                    locality=judge.locality(facts),
                )
            )
        return ProcessesReading(
            counts={kind: len(by_pid) for kind, by_pid in listed.items() if by_pid is not None},
            processes=tuple(processes),
            truncated=len(memory) - len(processes),
            # Where there are processes and none could be looked at, nobody knows that none is misplaced.
            locality_known=judge.can_tell and (not memory or any(process.facts for process in processes)),
        )

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


def _memory_by_pid(inquiry: Inquiry, functions: tuple[str, ...]) -> Mapping[int, float | None] | None:
    """Bytes by PID, None for bytes the driver cannot tell; None as a whole where such a list is not to be had."""
    for function in functions:
        entries = inquiry.many(function)
        if entries is not None:
            return _sum_instances(inquiry, entries)
    return None


def _sum_instances(inquiry: Inquiry, entries: list[Any]) -> Mapping[int, float | None] | None:
    # Under MIG a process has an entry for each instance it uses.
    memory: dict[int, float | None] = {}
    for entry in entries:
        if inquiry.within(entry.pid, 0, _MOST_PID) is None:
            continue
        used = inquiry.within(entry.usedGpuMemory, 0, _MOST_BYTES)
        known = memory.get(entry.pid)
        memory[entry.pid] = known if used is None else (known or 0) + used
    return memory if memory or not entries else None
