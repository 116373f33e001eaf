"""The driver's process lists of a GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.lists import MOST_LISTED

KINDS: Final = {
    "compute": ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
    "graphics": ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
    "mps": ("nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2"),
}
"""NVML functions per process type, newest first."""

BOTH: Final = "compute_graphics"
"""Type of a process in both the compute and graphics list, such as a desktop compositor; nvidia-smi calls it C+G."""

_MOST_BYTES: Final = 1 << 50
_NOT_TOLD: Final = (1 << 64) - 1
"""NVML_VALUE_NOT_AVAILABLE: only the Windows driver returns it."""

_NO_INSTANCE: Final = 0xFFFFFFFF
_MOST_PID: Final = 1 << 22
"""The kernel's PID_MAX_LIMIT."""


class ListedProcess(NamedTuple):
    """A process as listed by the driver, by PID on the host or in the exporter's PID namespace: see `driver_pids`.

    A tuple because there may be thousands, and creating one takes a third of the time of a dataclass.
    """

    pid: int
    is_compute: bool  # whether it has a compute context, directly or through MPS
    memory_bytes: float | None  # device memory in use; None if the driver does not report it
    # (GPU instance ID, compute instance ID) of each MIG instance it uses; empty without MIG.
    instances: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ProcessList:
    """The processes of one GPU, each once, largest memory first, and whether the driver truncated a list.

    They are counted once, as compute, graphics, compute_graphics or mps; types that are not reported are missing.
    """

    counts: Mapping[str, int]
    processes: tuple[ListedProcess, ...]
    ended_early: bool = False


def list_processes(inquiry: Inquiry) -> ProcessList:
    """Ask the driver for the processes on a GPU."""
    merged: dict[int, ListedProcess] = {}
    pids: dict[str, frozenset[int]] = {}
    ended_early = False
    for kind, functions in KINDS.items():
        answers = (inquiry.many(function) for function in functions)
        entries = next((entries for entries in answers if entries is not None), None)
        if entries is None:
            continue
        ended_early |= len(entries) >= MOST_LISTED
        by_pid = _by_pid(inquiry, entries, is_compute=kind != "graphics")
        if entries and not by_pid:
            continue  # only invalid entries: the count is unknown
        pids[kind] = frozenset(by_pid)
        for pid, own in by_pid.items():
            other = merged.get(pid, own)  # of another list, which reports its full memory as well
            used = _most(other.memory_bytes, own.memory_bytes)
            merged[pid] = ListedProcess(pid, other.is_compute or own.is_compute, used, other.instances | own.instances)
    largest = sorted(merged.values(), key=lambda process: (-(process.memory_bytes or 0), process.pid))
    return ProcessList(_counted(pids), tuple(largest), ended_early)


def _counted(pids: Mapping[str, frozenset[int]]) -> dict[str, int]:
    counts = {kind: len(listed) for kind, listed in pids.items()}
    if {"compute", "graphics"} <= pids.keys():
        both = len(pids["compute"] & pids["graphics"])
        counts["compute"] -= both
        counts["graphics"] -= both
        counts[BOTH] = both
    return counts


def _by_pid(inquiry: Inquiry, entries: Sequence[Any], *, is_compute: bool) -> dict[int, ListedProcess]:
    # Under MIG a process has an entry for each instance it uses.
    found: dict[int, ListedProcess] = {}
    for entry in entries:
        pid, memory = entry.pid, entry.usedGpuMemory
        if inquiry.within(pid, 0, _MOST_PID) is None:
            continue
        used = inquiry.within(memory, 0, _MOST_BYTES) if memory != _NOT_TOLD else None
        instance = entry.gpuInstanceId, entry.computeInstanceId
        instances = frozenset() if _NO_INSTANCE in instance else frozenset({instance})
        known = found.get(pid)
        if known is not None:
            # Outside the host's PID namespace, drivers may list a process once per client, each with the memory of all
            # clients (gpuGetProcWithObject searches for the host PID among the namespace's PIDs).
            again = instances <= known.instances
            used = _most(known.memory_bytes, used) if again else _sum(known.memory_bytes, used)
            instances |= known.instances
        found[pid] = ListedProcess(pid, is_compute, used, instances)
    return found


def _most(*memory_bytes: float | None) -> float | None:
    return max((each for each in memory_bytes if each is not None), default=None)


def _sum(*memory_bytes: float | None) -> float | None:
    known = [each for each in memory_bytes if each is not None]
    return sum(known) if known else None
