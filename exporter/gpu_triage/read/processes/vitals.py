"""CPU time, memory and threads of a process on a GPU, and whether it hangs in the kernel.

A thread's context switches distinguish one that hangs from one that repeatedly waits for a disk.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from gpu_triage.driver.kernel.files import parse_count, text_of
from gpu_triage.driver.kernel.procfs import UNINTERRUPTIBLE, ProcessStat, read_boot, read_process_stat, thread_numbers
from gpu_triage.machine import Moment, WallTimes
from gpu_triage.read.metrics.metric import gpu_counter, gpu_gauge, no_sample
from gpu_triage.read.metrics.rendering import Each
from gpu_triage.read.processes.facts import parse_status

_LOOK_SECONDS: Final = 60.0
"""Interval for checking all threads of a process; its main thread and hung threads are checked every round."""
_MOST_THREADS: Final = 512
_MOST_HANGING: Final = 16
_BLOCKED_SECONDS: Final = 30.0
"""How long a thread must not have run to count as hung: slow disks and file servers block threads for seconds."""
_SYMBOL: Final = re.compile(r"[A-Za-z_][\w.]{0,63}")

GPU_PROCESS_CPU_SECONDS_TOTAL = gpu_counter(
    "User and system CPU time of all the process's threads. Starts over if the PID is reused.",
    labels=("pid", "process"),
    source="/proc/PID/stat utime, stime",
    default_samples=no_sample,
)
_process_gauge = partial(gpu_gauge, labels=("pid", "process"), default_samples=no_sample)

GPU_PROCESS_RESIDENT_MEMORY_BYTES = _process_gauge(
    "Host memory of the process in RAM, including shared memory.", source="/proc/PID/stat rss"
)
GPU_PROCESS_THREADS = _process_gauge("Threads of the process.", source="/proc/PID/stat num_threads")
GPU_PROCESS_START_TIMESTAMP_SECONDS = _process_gauge(
    "Unix time at which the process started.", source="/proc/PID/stat starttime, /proc/stat btime"
)
GPU_PROCESS_BLOCKED_SINCE_TIMESTAMP_SECONDS = gpu_gauge(
    "Unix time since which a thread of the process has waited in the kernel (state D) without running; the longest "
    f"wait of several. Absent below {_BLOCKED_SECONDS:.0f} s. `wait_channel` is the kernel function; empty if hidden, "
    "as without CAP_SYS_PTRACE.",
    labels=("pid", "process", "wait_channel"),
    source="/proc/PID/task/TID/{stat,status,wchan}",
)


@dataclass(frozen=True, slots=True)
class BlockedThread:
    """A thread that hangs in the kernel, since Unix seconds, and the function it waits in ("" if unknown)."""

    since: Annotated[float, GPU_PROCESS_BLOCKED_SINCE_TIMESTAMP_SECONDS]
    wait_channel: str


@dataclass(frozen=True, slots=True)
class ProcessVitals:
    """Vital signs of one process; `blocked` is the thread that has been hanging longest."""

    cpu_seconds: Annotated[float, GPU_PROCESS_CPU_SECONDS_TOTAL]
    resident_bytes: Annotated[int, GPU_PROCESS_RESIDENT_MEMORY_BYTES]
    threads: Annotated[int, GPU_PROCESS_THREADS]
    started_at: Annotated[float | None, GPU_PROCESS_START_TIMESTAMP_SECONDS]
    blocked: Annotated[BlockedThread | None, Each("wait_channel")]


class _Wait(NamedTuple):
    """A waiting thread: its context switches, and since when they have not changed (monotonic seconds)."""

    switches: int
    since: float


@dataclass(slots=True)
class _Known:
    """A process seen before."""

    looked_at: float
    waits: dict[int, _Wait]


class ProcessVitalsReader:
    def __init__(self) -> None:
        self._known: dict[tuple[int, int], _Known] = {}  # by PID and start: a later one has another
        self._boot_at: float | None = None
        self._walls = WallTimes()

    def read(self, procfs: Path, stats: Mapping[int, ProcessStat | None], at: Moment) -> Mapping[int, ProcessVitals]:
        """Read the vital signs of the processes in `stats`; those that ended or have an invalid stat are missing.

        State of PIDs not in `stats` is dropped. Source: ``/proc/PID/{stat,task,wchan}``.
        """
        if self._boot_at is None:
            # Read once: the kernel recomputes it whenever the wall clock is adjusted.
            self._boot_at = read_boot(procfs).began_at
        hertz = os.sysconf("SC_CLK_TCK")
        before, self._known = self._known, {}
        found: dict[int, ProcessVitals] = {}
        for pid, stat in stats.items():
            if stat is None:
                continue
            process = pid, stat.started_ticks
            self._known[process] = known = before.get(process) or _Known(at.monotonic, {})
            self._note_waits(f"{procfs}/{pid}", pid, stat, known, at)
            found[pid] = ProcessVitals(
                cpu_seconds=stat.ticks / hertz,
                resident_bytes=stat.resident_pages * os.sysconf("SC_PAGESIZE"),
                threads=stat.threads,
                started_at=None if self._boot_at is None else self._boot_at + stat.started_ticks / hertz,
                blocked=self._blocked(f"{procfs}/{pid}", known.waits, at),
            )
        return found

    def _note_waits(self, folder: str, pid: int, stat: ProcessStat, known: _Known, at: Moment) -> None:
        threads = set(known.waits)
        if at.monotonic - known.looked_at >= _LOOK_SECONDS:
            known.looked_at = at.monotonic
            threads |= set(thread_numbers(folder)[:_MOST_THREADS])
        stats = {thread: read_process_stat(f"{folder}/task/{thread}") for thread in threads - {pid}} | {pid: stat}
        waiting = [thread for thread, each in stats.items() if each is not None and each.state == UNINTERRUPTIBLE]
        waits: dict[int, _Wait] = {}
        for thread in sorted(waiting, key=lambda each: (each not in known.waits, each))[:_MOST_HANGING]:
            switches = _switches(folder, thread)
            if switches is not None:
                before = known.waits.get(thread)
                waits[thread] = before if before and before.switches == switches else _Wait(switches, at.monotonic)
        known.waits = waits

    def _blocked(self, folder: str, waits: Mapping[int, _Wait], at: Moment) -> BlockedThread | None:
        longest = min(waits.items(), key=lambda each: each[1].since, default=None)
        if longest is None or at.monotonic - longest[1].since < _BLOCKED_SECONDS:
            return None
        thread, wait = longest
        return BlockedThread(self._walls.of(wait.since, at), wait_channel(f"{folder}/task/{thread}"))


def wait_channel(folder: str) -> str:
    """The kernel function that the thread with this folder waits in; "" if unknown."""
    channel = text_of(f"{folder}/wchan").strip()
    return channel if _SYMBOL.fullmatch(channel) else ""


def _switches(folder: str, thread: int) -> int | None:
    status = parse_status(text_of(f"{folder}/task/{thread}/status"))
    try:
        return parse_count(status["voluntary_ctxt_switches"]) + parse_count(status["nonvoluntary_ctxt_switches"])
    except (KeyError, ValueError):
        return None
