"""Thread activity of the jobs on a GPU: the main threads, the busiest one, and where threads block in the kernel.

Data loader workers are separate processes that the driver does not list: children of those it does. Also how much they
write and read: a job that saves a checkpoint or loads one stops its GPUs, and so does one that hangs.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from gpu_triage.driver.kernel.files import parse_file, text_of
from gpu_triage.driver.kernel.procfs import RUNNING, UNINTERRUPTIBLE, ProcessStat, read_process_stat, thread_numbers
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.metrics.metric import gpu_counter, gpu_gauge, no_sample
from gpu_triage.read.metrics.rendering import Each
from gpu_triage.read.processes.vitals import wait_channel

_MOST_LOOKS: Final = 128
"""Threads sampled per round, at about 15 µs each. If there are more, they take turns over several rounds."""
_MOST_PROCESSES: Final = 256
_MOST_THREADS: Final = 4096
_MOST_CHANNELS: Final = 16
_GENERATIONS: Final = 3
"""Depth of descendants: workers may be children of a fork server, which is a child of the process on the GPU."""
_LIST_SECONDS: Final = 30.0
_LONGEST_ROUND_SECONDS: Final = 15.0
"""A sample is weighted with the time since the previous one, capped at this."""
_FRESH_SECONDS: Final = 60.0
_AVERAGED_SECONDS: Final = 10.0
_BUSY_RATIO: Final = 0.5
_POLLS: Final = re.compile(r"(?:NCCL|RCCL) .*|uc[xsp]_.*|.*progress.*", re.IGNORECASE)
"""Threads that busy-poll the network, such as "NCCL Progress 3" and those of UCX and MPI. A CPU they fill is not a
bottleneck."""
OTHER: Final = "other"

GPU_BUSIEST_THREAD_RATIO = gpu_gauge(
    "CPU time of the busiest thread of the processes on the GPU and their children, as a share of one CPU over 10 to "
    "20 seconds: at 1, the job waits for a single thread. `thread` is its name. Threads that poll the network, such as "
    "NCCL's, do not count.",
    labels=("pid", "thread"),
    source="/proc/PID/task/TID/stat utime, stime",
    default_samples=no_sample,
)
GPU_RUNNING_THREAD_SECONDS_TOTAL = gpu_counter(
    "Time for which threads of these processes ran or were runnable, from a sample of them in each round.",
    source="/proc/PID/task/TID/stat state R",
    default_samples=no_sample,
)
GPU_BLOCKED_THREAD_SECONDS_TOTAL = gpu_counter(
    "Time for which sampled threads of these processes waited uninterruptibly in the kernel (state D), by kernel "
    "function (see gpu_process_blocked_since_timestamp_seconds). Absent until one does.",
    labels=("wait_channel",),
    source="/proc/PID/task/TID/{stat,wchan}",
)
GPU_MAIN_THREAD_CPU_SECONDS_TOTAL = gpu_counter(
    "CPU time of the main threads of the processes on the GPU, without their children. Its rate is about 1 while one "
    "computes or spins, as in a synchronization with the GPU, and about 0 while it sleeps, waits for a disk or is "
    "stopped.",
    source="/proc/PID/task/PID/stat utime, stime",
)


@dataclass(frozen=True, slots=True)
class BusiestThread:
    pid: int
    name: str
    ratio: Annotated[float, GPU_BUSIEST_THREAD_RATIO]


@dataclass(frozen=True, slots=True)
class ThreadsReading:
    """Thread activity; `busiest` is None until a thread has been sampled twice."""

    running_seconds: Annotated[float, GPU_RUNNING_THREAD_SECONDS_TOTAL]
    blocked_seconds: Annotated[Mapping[str, float], GPU_BLOCKED_THREAD_SECONDS_TOTAL]
    main_seconds: Annotated[float, GPU_MAIN_THREAD_CPU_SECONDS_TOTAL]
    busiest: Annotated[BusiestThread | None, Each("pid", "name")]


class _Thread(NamedTuple):
    """State of a sampled thread, and its CPU share over the last rounds; None in the first.

    The share covers the rounds of the last `_AVERAGED_SECONDS`, or all of a newer thread: of many threads, some are
    busy throughout a single round, and one of them is what the job waits for only if it stays that busy.
    """

    name: str
    rounds: tuple[tuple[int, float], ...]  # CPU ticks, and when they were read, oldest first
    ratio: float | None
    blocked: bool


class ThreadsReader:
    def __init__(self) -> None:
        # Those of the last round and their children; a child is listed within `_LIST_SECONDS`.
        self.processes: list[int] = []
        self._threads: dict[tuple[int, int], _Thread] = {}
        self._known: list[tuple[int, int]] = []  # (PID, TID)
        self._mains: frozenset[tuple[int, int]] = frozenset()  # of the processes on the GPU, as last listed
        self._listed_at = 0.0
        self._main_ticks = 0
        self._next = 0
        self._at: float | None = None
        self._running_seconds = 0.0
        self._blocked_seconds: dict[str, float] = {}

    def read(self, procfs: Path, pids: Collection[int], now: float) -> ThreadsReading | None:
        """Sample the threads of these processes and their children; None if there are no processes."""
        if not pids:
            self._at, self.processes = None, []
            return None
        self._list(procfs, pids, now)
        running, blocked, looked = 0.0, defaultdict[str, float](float), False
        for (pid, thread), stands_for in self._chosen():
            folder = f"{procfs}/{pid}/task/{thread}"
            stat = read_process_stat(folder)
            if stat is None:
                self._threads.pop((pid, thread), None)
                continue
            looked = True
            self._note((pid, thread), stat, now)
            running += stands_for * (stat.state == RUNNING)
            if stat.state == UNINTERRUPTIBLE:
                blocked[wait_channel(folder)] += stands_for
        self._count(running, blocked, now)
        if not looked:
            return None
        main = self._main_ticks / os.sysconf("SC_CLK_TCK")
        return ThreadsReading(self._running_seconds, dict(self._blocked_seconds), main, self._busiest(now))

    def _list(self, procfs: Path, pids: Collection[int], now: float) -> None:
        mains = frozenset((pid, pid) for pid in pids)
        if mains == self._mains and now - self._listed_at < _LIST_SECONDS:
            return
        self._mains, self._listed_at = mains, now
        self.processes = list(_family(procfs, sorted(pids)))[:_MOST_PROCESSES]
        known = dict.fromkeys((pid, pid) for pid in self.processes)  # before all other threads
        for pid in self.processes:
            known |= dict.fromkeys((pid, thread) for thread in thread_numbers(f"{procfs}/{pid}")[:_MOST_THREADS])
        self._known = list(known)[:_MOST_THREADS]
        self._threads = {key: self._threads[key] for key in self._known if key in self._threads}

    def _chosen(self) -> Iterator[tuple[tuple[int, int], float]]:
        """Select the threads to sample in this round, each with the number of threads it represents.

        Main threads, and those that were busy or blocked, are always sampled; of too many, the others take turns.
        """
        eager = [
            key
            for key, each in self._threads.items()
            if key in self._mains or each.blocked or (each.ratio or 0.0) >= _BUSY_RATIO
        ]
        eager = eager[: _MOST_LOOKS // 2]
        yield from ((key, 1.0) for key in eager)
        chosen = frozenset(eager)
        others = [key for key in self._known if key not in chosen]
        room = min(_MOST_LOOKS - len(eager), len(others))
        yield from ((others[(self._next + place) % len(others)], len(others) / room) for place in range(room))
        self._next += room

    def _note(self, key: tuple[int, int], stat: ProcessStat, now: float) -> None:
        rounds, ratio = self._threads[key].rounds if key in self._threads else (), None
        if rounds and (stat.ticks < rounds[-1][0] or now <= rounds[-1][1]):
            rounds = ()  # another thread with its number
        while len(rounds) > 1 and now - rounds[1][1] >= _AVERAGED_SECONDS:
            rounds = rounds[1:]
        if rounds:
            ticks, at = rounds[0]
            ratio = min(1.0, (stat.ticks - ticks) / os.sysconf("SC_CLK_TCK") / (now - at))
            self._main_ticks += stat.ticks - rounds[-1][0] if key in self._mains else 0
        blocked = stat.state == UNINTERRUPTIBLE
        self._threads[key] = _Thread(stat.name, (*rounds, (stat.ticks, now)), ratio, blocked)

    def _count(self, running: float, blocked: Mapping[str, float], now: float) -> None:
        seconds = 0.0 if self._at is None else min(now - self._at, _LONGEST_ROUND_SECONDS)
        self._at = now
        self._running_seconds += running * seconds
        for channel, count in blocked.items():
            room = channel in self._blocked_seconds or len(self._blocked_seconds) < _MOST_CHANNELS
            name = channel if room else OTHER
            self._blocked_seconds[name] = self._blocked_seconds.get(name, 0.0) + count * seconds

    def _busiest(self, now: float) -> BusiestThread | None:
        found = (
            BusiestThread(pid, each.name, each.ratio)
            for (pid, _), each in self._threads.items()
            if each.ratio is not None and now - each.rounds[-1][1] <= _FRESH_SECONDS and not _POLLS.fullmatch(each.name)
        )
        return max(found, key=lambda each: (each.ratio, -each.pid), default=None)


def _family(procfs: Path, pids: list[int]) -> Iterator[int]:
    known, generation = set(pids), pids
    yield from pids
    for _ in range(_GENERATIONS):
        children = [
            int(name)
            for pid in generation
            for name in text_of(f"{procfs}/{pid}/task/{pid}/children").split()
            if name.isdecimal() and name.isascii()
        ]
        generation = [pid for pid in dict.fromkeys(children) if pid not in known][:_MOST_PROCESSES]
        known.update(generation)
        yield from generation


_MOST_PROCESSES_OF_IO: Final = 64
"""Per GPU and round, at about 20 µs each; those on the GPU come first. When a process ends, its bytes pass to its
parent, so short-lived ones need not be looked at."""
_MOST_IO_BYTES: Final = 4096
_LAYERS: Final = {"storage": ("write_bytes", "read_bytes"), "calls": ("wchar", "rchar")}
_COUNT: Final = re.compile(r"^(write_bytes|read_bytes|wchar|rchar): ([0-9]{1,20})$", re.MULTILINE)

GPU_PROCESSES_WRITTEN_BYTES_TOTAL = gpu_counter(
    "Bytes that the processes on the GPU and their children wrote since the exporter saw them, by {layer}: storage is "
    "what they put into the page cache or sent to a disk, of NFS and Lustre too; calls is what they passed to write(), "
    "also for sockets, pipes and file systems that bypass the page cache, such as GPFS and FUSE. Absent without the "
    "right to read it: CAP_SYS_PTRACE, or the same user.",
    labels={"layer": tuple(_LAYERS)},
    source="/proc/PID/io write_bytes, wchar",
    default_samples=no_sample,
)
GPU_PROCESSES_READ_BYTES_TOTAL = gpu_counter(
    "Bytes that these processes read since then, by {layer}: storage is what came from disks and file servers, calls "
    "what read() returned, also from the page cache.",
    labels={"layer": tuple(_LAYERS)},
    source="/proc/PID/io read_bytes, rchar",
    default_samples=no_sample,
)


@dataclass(frozen=True, slots=True)
class IoReading:
    written_bytes: Annotated[Mapping[str, int], GPU_PROCESSES_WRITTEN_BYTES_TOTAL]
    read_bytes: Annotated[Mapping[str, int], GPU_PROCESSES_READ_BYTES_TOTAL]


class IoReader:
    def __init__(self) -> None:
        self._known: dict[int, Counter[str]] = {}
        self._bytes = Counter[str]()

    def read(self, procfs: Path, pids: Sequence[int]) -> IoReading | None:
        """Return what they wrote and read; None if the kernel does not tell, or not for all of these processes.

        What a process had moved when it was first seen does not count. A process that ended took its bytes to its
        parent, so the sum over all of them shows what was moved since.
        """
        known, self._known = self._known, {}
        try:
            for pid in pids[:_MOST_PROCESSES_OF_IO]:
                found = parse_file(f"{procfs}/{pid}/io", _COUNT.findall, _MOST_IO_BYTES)
                if found:
                    self._known[pid] = Counter({name: int(count) for name, count in found})
        except HostReadFailed:
            self._known = {}
        if not self._known:
            return None
        before = sum(known.values(), Counter[str]())
        now = sum((counts for pid, counts in self._known.items() if pid in known), Counter[str]())
        self._bytes += now - before  # of a Counter, without what would be negative
        written, read = ({layer: self._bytes[names[way]] for layer, names in _LAYERS.items()} for way in (0, 1))
        return IoReading(written, read)
