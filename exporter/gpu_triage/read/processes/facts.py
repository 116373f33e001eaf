"""Who owns a process: its user, allowed CPUs, and the container, pod or Slurm job it runs in.

User names don't come from the name service, which may block on the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gpu_triage.driver.kernel.cgroups import parse_membership
from gpu_triage.driver.kernel.files import parse_count, parse_cpu_list, refusal, text_of
from gpu_triage.driver.kernel.process_stat import ProcessStat, read_process_stat
from gpu_triage.read.processes.pids import ProcessFacts, parse_cgroup, parse_status, process_name

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

        Facts without any value are those of a process with files that procfs hides, as with hidepid=1.
        Cache entries for PIDs not in `stats` are dropped. Source: ``/proc/PID/{comm,status,cgroup,stat}``.
        """
        kept, self._kept = self._kept, {}
        facts: dict[int, ProcessFacts | None] = dict.fromkeys(stats)
        user_names: Mapping[int, str] | None = None
        for pid, stat in stats.items():
            identity, known = _identity(stat), kept.get(pid)
            if known is None or known.identity != identity or now - known.read_at >= _KEPT_SECONDS:
                if stat is None and refusal(f"{procfs}/{pid}/stat") != "no_permission":
                    continue
                user_names = read_user_names(procfs) if user_names is None else user_names
                read = _read_facts(procfs, pid, user_names)
                if _identity(read_process_stat(f"{procfs}/{pid}")) != identity:
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


def _identity(stat: ProcessStat | None) -> _Identity | None:
    return _Identity(stat.name, stat.started_ticks) if stat else None


def _read_facts(procfs: Path, pid: int, user_names: Mapping[int, str]) -> ProcessFacts:
    status = parse_status(text_of(f"{procfs}/{pid}/status"))
    cgroups = text_of(f"{procfs}/{pid}/cgroup")
    return ProcessFacts(
        process_name(procfs, pid),
        _user(status.get("Uid", ""), user_names),
        _cpus(status.get("Cpus_allowed_list", "")),
        parse_cgroup(cgroups),
        parse_membership(cgroups),
    )


def _user(uids: str, user_names: Mapping[int, str]) -> str:
    """The name of the real user, the first of a process's four, or its UID."""
    try:
        uid = parse_count(uids.partition("\t")[0])
    except ValueError:
        return ""
    return user_names.get(uid, str(uid))


def _cpus(text: str) -> frozenset[int] | None:
    try:
        return parse_cpu_list(text) or None
    except ValueError:
        return None
