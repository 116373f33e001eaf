"""``/proc/PID/stat``: one line per process or thread.

    4242 (python3) S 1 4242 4242 0 …

The name may contain parentheses and spaces; proc(5) numbers the fields after it from 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.files import parse_count, text_of

UNINTERRUPTIBLE: Final = "D"
RUNNING: Final = "R"

_STATE: Final = 0
_TICKS_END: Final = 13
_COUNTS: Final = (11, 12, 17, 19, 20, 21)


class ProcessStat(NamedTuple):
    """The fields used of a process's stat file. Times are in ticks of 1/sysconf(SC_CLK_TCK) seconds.

    The name is the comm: 15 bytes at most. Ticks are those of all threads; `started_ticks` count from boot.
    """

    name: str
    state: str
    user_ticks: int
    system_ticks: int
    threads: int
    started_ticks: int
    virtual_bytes: int
    resident_pages: int


class ThreadStat(NamedTuple):
    """The fields used of a thread's stat file; its name may differ from the process's, ticks are user plus system."""

    name: str
    state: str
    ticks: int


def read_thread_stat(folder: str) -> ThreadStat | None:
    """Read the stat file in ``/proc/PID/task/TID``; None if missing or invalid."""
    before, bracket, after = text_of(f"{folder}/stat").rpartition(")")
    fields = after.split(None, _TICKS_END) if bracket else []
    if len(fields) <= _TICKS_END:
        return None
    try:
        ticks = parse_count(fields[_TICKS_END - 2]) + parse_count(fields[_TICKS_END - 1])
    except ValueError:
        return None
    return ThreadStat(before.partition("(")[2], fields[_STATE], ticks)


def read_process_stats(procfs: Path, pids: Iterable[int]) -> dict[int, ProcessStat | None]:
    """Read the stats of these processes with `read_process_stat`."""
    return {pid: read_process_stat(f"{procfs}/{pid}") for pid in pids}


def read_process_stat(folder: Path | str) -> ProcessStat | None:
    """Read the stat file in ``/proc/PID`` or ``/proc/PID/task/TID``; None if missing or invalid."""
    before, bracket, after = text_of(f"{folder}/stat").rpartition(")")
    if not bracket:
        return None
    fields = after.split()
    try:
        counts = [parse_count(fields[place]) for place in _COUNTS]
    except (ValueError, IndexError):
        return None
    return ProcessStat(before.partition("(")[2], fields[_STATE], *counts)
