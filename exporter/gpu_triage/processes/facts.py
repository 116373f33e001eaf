"""Whose process a PID is: its user, its CPUs, and the container, pod or Slurm job it runs in.

psutil tells processes apart and knows their users and CPUs. It is not asked for

- their names: one of 15 bytes it completes from the command line, which must not be published, and which cannot be read
  while the process holds its memory lock;
- the names of their users: it asks the name service, which over a network may take as long as it likes;
- their cgroups, which it does not read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil

from gpu_triage.kernel.cgroups import parse_membership
from gpu_triage.kernel.files import parse_cpu_list, text_of
from gpu_triage.kernel.process_stat import ProcessStat
from gpu_triage.processes.cgroup_names import parse_cgroup
from gpu_triage.processes.pids import (
    ProcessFacts,
    counts_as_this_process,
    parse_status,
    printable,
    process_name,
)

T = TypeVar("T")

_KEPT_SECONDS = 30.0


class _Kept(NamedTuple):
    """Facts, what told the process apart, and the monotonic second at which they were read."""

    identity: _Identity
    facts: ProcessFacts
    read_at: float


class _Identity(NamedTuple):
    """What tells a process apart from a later one under its PID, and from the program that it ran before."""

    name: str
    started_ticks: int


class ProcessFactsReader:
    """Reads facts of processes; keeps those of one that lives on, for half a minute.

    Start time and name tell whether a PID is still the process it was: a later one under that PID started later, and
    one that executed another program has its name. Its user, cgroup and CPUs may change all the same, hence the limit.
    ``/proc/PID/stat`` tells them, so that processes which stay cost little.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def read(
        self, procfs: Path, stats: Mapping[int, ProcessStat | None], now: float
    ) -> Mapping[int, ProcessFacts | None]:
        """Facts by PID; None where there is no such process, or it ended or gave way to another meanwhile.

        Whoever is not asked for is forgotten. Source: ``/proc/PID/{comm,status,cgroup}``, sched_getaffinity(2).

        Args:
            procfs: root of procfs.
            stats: of each process by PID, as that procfs counts them (see `names_are_host_pids`).
            now: monotonic seconds.
        """
        # A global of psutil's; but a process has one machine, so all its lanes set the same.
        psutil.PROCFS_PATH = str(procfs)
        kept, self._kept = self._kept, {}
        facts: dict[int, ProcessFacts | None] = dict.fromkeys(stats)
        user_names: Mapping[int, str] | None = None
        for pid, stat in stats.items():
            identity, known = _identity(stat), kept.get(pid)
            if known is None or known.identity != identity or now - known.read_at >= _KEPT_SECONDS:
                process = _process(pid)
                if process is None:
                    continue
                user_names = read_user_names(procfs) if user_names is None else user_names
                read = _read_facts(procfs, process, user_names)
                if _process(pid) != process:
                    continue
                facts[pid] = read
                if identity is None or not (read.name and read.user and read.allowed_cpus):
                    # Something is missing that every process has: it is read again.
                    continue
                known = _Kept(identity, read, now)
            facts[pid], self._kept[pid] = known.facts, known
        return facts


def read_user_names(procfs: Path) -> Mapping[int, str]:
    """Names by user id, of the users in ``/etc/passwd``; empty where that file is not the host's.

    It is this process's own file, and knows the host's users only beside the host's ``/proc``.
    """
    if procfs != Path("/proc"):
        return {}
    entries = (line.split(":") for line in text_of(Path("/etc/passwd")).split("\n"))
    return {int(e[2]): printable(e[0]) for e in entries if len(e) > 2 and e[2].isdecimal()}  # noqa: PLR2004 - name:password:id


def _process(pid: int) -> psutil.Process | None:
    return _known(lambda: psutil.Process(pid))


def _identity(stat: ProcessStat | None) -> _Identity | None:
    return _Identity(stat.name, stat.started_ticks) if stat else None


def _read_facts(procfs: Path, process: psutil.Process, user_names: Mapping[int, str]) -> ProcessFacts:
    name = process_name(procfs, process.pid)
    uid = _known(lambda: process.uids().real)
    cpus = _known(lambda: _allowed_cpus(procfs, process))
    user = "" if uid is None else user_names.get(uid, str(uid))
    cgroups = text_of(f"{procfs}/{process.pid}/cgroup")
    allowed = frozenset(cpus) if cpus else None
    return ProcessFacts(name, user, allowed, parse_cgroup(cgroups), parse_membership(cgroups))


def _allowed_cpus(procfs: Path, process: psutil.Process) -> Collection[int]:
    if counts_as_this_process(procfs):
        return process.cpu_affinity()
    # psutil asks the kernel by PID, not procfs: in this process's namespace that PID is another process, or nobody.
    return parse_cpu_list(parse_status(text_of(f"{procfs}/{process.pid}/status")).get("Cpus_allowed_list", ""))


def _known(read: Callable[[], T]) -> T | None:
    """What `read` returns; None where psutil cannot read it, or does not understand it."""
    try:
        return read()
    except (psutil.Error, OSError, ValueError, IndexError):
        return None
