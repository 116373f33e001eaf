"""Who owns a process: its user, allowed CPUs, and the container, pod or Slurm job it runs in.

psutil identifies processes and provides their users and CPUs. It is not used for:

- names: it extends a 15-byte name from the command line, which must not be published and cannot be read while the
  process holds its memory lock;
- user names: it uses the name service, which may block on the network;
- cgroups: it does not read them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil

from gpu_triage.driver.kernel.cgroups import parse_membership
from gpu_triage.driver.kernel.files import parse_cpu_list, text_of
from gpu_triage.driver.kernel.process_stat import ProcessStat
from gpu_triage.read.processes.pids import (
    ProcessFacts,
    counts_as_this_process,
    parse_cgroup,
    parse_status,
    process_name,
)

T = TypeVar("T")

_KEPT_SECONDS = 30.0


class _Kept(NamedTuple):
    """Cached facts, the identity they belong to, and the monotonic second at which they were read."""

    identity: _Identity
    facts: ProcessFacts
    read_at: float


class _Identity(NamedTuple):
    """Distinguishes a process from a later one with the same PID, and from the program it ran before exec."""

    name: str
    started_ticks: int


class ProcessFactsReader:
    """Reads facts about processes; caches those of a running process for half a minute.

    Start time and name show whether a PID still refers to the same process and program: a later process with that PID
    has a later start time, and exec changes the name. User, cgroup and CPUs may change without either, so
    entries expire. Both come from ``/proc/PID/stat``, so long-running processes cost little.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def read(
        self, procfs: Path, stats: Mapping[int, ProcessStat | None], now: float
    ) -> Mapping[int, ProcessFacts | None]:
        """Read facts by PID of this procfs; None if the process does not exist, or ended or was replaced meanwhile.

        Cache entries for PIDs not in `stats` are dropped. Source: ``/proc/PID/{comm,status,cgroup}``,
        sched_getaffinity(2).
        """
        # A psutil global; the process only ever uses one machine, so all lanes set the same value.
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
                    # A value that every process has is missing: do not cache.
                    continue
                known = _Kept(identity, read, now)
            facts[pid], self._kept[pid] = known.facts, known
        return facts


def read_user_names(procfs: Path) -> Mapping[int, str]:
    """User names by UID from ``/etc/passwd``; empty if that file is not the host's.

    The exporter's own ``/etc/passwd`` is only used with the host's own ``/proc``, where it lists the host's users.
    """
    if procfs != Path("/proc"):
        return {}
    entries = (line.split(":") for line in text_of(Path("/etc/passwd")).split("\n"))
    return {int(e[2]): e[0] for e in entries if len(e) > 2 and e[2].isdecimal()}  # noqa: PLR2004 - name:password:id


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
    # psutil uses the PID rather than procfs; in this PID namespace the PID may be another process or unused.
    return parse_cpu_list(parse_status(text_of(f"{procfs}/{process.pid}/status")).get("Cpus_allowed_list", ""))


def _known(read: Callable[[], T]) -> T | None:
    """Call `read`; return None if psutil cannot read or parse the value."""
    try:
        return read()
    except (psutil.Error, OSError, ValueError, IndexError):
        return None
