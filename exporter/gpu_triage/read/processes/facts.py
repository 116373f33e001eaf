"""Who owns a process: its user, allowed CPUs, and the container, pod or Slurm job it runs in; and PID namespaces.

User names don't come from the name service, which may block on the network.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.cgroups import NO_CGROUPS, Membership, hierarchies, parse_membership
from gpu_triage.driver.kernel.files import parse_cpu_list, read_link, read_text, refusal, text_of
from gpu_triage.driver.kernel.procfs import STOPPED, ProcessStat, read_process_stat, thread_numbers
from gpu_triage.driver.nvml.session import version_numbers
from gpu_triage.errors import HostReadFailed

_HOST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""PROC_PID_INIT_INO: the inode of the initial PID namespace, a kernel constant."""


class Owner(NamedTuple):
    """Owner of a process according to its cgroup paths; empty where not found. The pod's UID has dashes."""

    container_id: str = ""
    pod_uid: str = ""
    slurm_job_id: str = ""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """Facts about one process; empty or None for what cannot be read."""

    name: str
    user: str
    allowed_cpus: frozenset[int] | None
    owner: Owner
    cgroups: Membership = NO_CGROUPS
    waits_for: int = 0  # a state of gpu_process_waits_for


NO_FACTS: Final = ProcessFacts("", "", None, Owner())

# /docker/ID, docker-ID.scope, crio-ID.scope, cri-containerd-ID.scope, …:cri-containerd:ID, libpod-ID.scope,
# and kubepods' bare ID. conmon is the runtime's monitor, which runs outside the container its cgroup is named after.
_CONTAINER = re.compile(r"(?<!conmon)[/:-]([0-9a-f]{64})(?:\.scope)?(?=/|$)")
# systemd unit names cannot contain dashes here, so the kubelet writes the UID with underscores.
_POD = re.compile(r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?=[/:]|$)")
# v1: /slurm/uid_1000/job_42/…, /slurm_node7/…
# v2: /system.slice/slurmstepd.scope/job_42/…, …/node7_slurmstepd.scope/…
_SLURM_JOB = re.compile(r"/(?:slurm[^/]*|[^/]*slurmstepd\.scope)(?:/uid_[0-9]+)?/job_([0-9]+)(?=/|$)")
_UNIT = re.compile(r"/[^/]+\.(?:service|scope)(?=/|$)")


def parse_cgroup(text: str) -> Owner:
    """Parse /proc/PID/cgroup (v1 or v2; lines ``hierarchy:names:path``) into the innermost container, pod and job."""
    paths = [path for _, _, path in hierarchies(text)]
    return Owner(
        container_id=_last_match(_CONTAINER, paths),
        pod_uid=_last_match(_POD, paths).replace("_", "-"),
        slurm_job_id=_last_match(_SLURM_JOB, paths),
    )


def job_level(path: str) -> str:
    """Truncate a cgroup path to the level of the job: the Slurm job, the container, or the systemd unit."""
    for pattern in (_SLURM_JOB, _CONTAINER, _UNIT):
        matches = tuple(pattern.finditer(path))
        if matches:
            return path[: matches[-1].end()]
    return path


def _last_match(pattern: re.Pattern[str], paths: list[str]) -> str:
    return next((found[-1] for path in paths if (found := pattern.findall(path))), "")


def names_are_host_pids(procfs: Path) -> bool | None:
    """Whether this procfs shows the host's PIDs, which NVML reports; None if unknown.

    False in a container with its own PID namespace and procfs: there a host PID refers to another process or none.
    Source: ``/proc/self/status`` NSpid, ``/proc/self/ns/pid``.
    """
    own = procfs / "self"
    try:
        status = read_text(own / "status")
        if status is None:
            return True  # no /proc/self: a recorded host, or a procfs mounted from outside our PID namespace
        if _is_nested(status):
            return True  # we also have a PID in a nested namespace: this procfs belongs to an outer one
        namespace = read_link(own / "ns" / "pid")
    except HostReadFailed:
        return None
    return None if namespace is None else namespace == _HOST_PID_NAMESPACE


def sees_every_process(procfs: Path) -> bool:
    """Whether the driver lists all processes to us; it hides those outside the caller's PID namespace.

    False in a container without the host's PID namespace, whatever its procfs; True if unknown (recordings).
    """
    nested = _is_nested(text_of(procfs / "self" / "status"))
    return not nested and names_are_host_pids(procfs) is not False


def _is_nested(status: str) -> bool:
    """Whether a process has a PID in a nested namespace, too."""
    return len(parse_status(status).get("NSpid", "").split()) > 1


_LISTS_OF_THE_CALLER: Final = (535, 113)
_MEMORY_OF_THE_CALLER: Final = (565, 57)
_SAMPLES_OF_THE_CALLER: Final = (570, 86)


class DriverPids(NamedTuple):
    """What the PIDs in the driver's process lists are valid for. False means the PID may refer to another process."""

    procfs: bool
    memory: bool
    utilization: bool


def driver_pids(procfs: Path, driver_version: str | None) -> DriverPids:
    """Determine what the PIDs that a driver of this version reports to this process are valid for."""
    if sees_every_process(procfs):
        return DriverPids(procfs=True, memory=True, utilization=True)
    version = version_numbers(driver_version)
    if not version:
        return DriverPids(procfs=False, memory=False, utilization=False)
    own_procfs = names_are_host_pids(procfs) is False
    if version < _LISTS_OF_THE_CALLER:
        return DriverPids(procfs=not own_procfs, memory=True, utilization=True)
    return DriverPids(
        procfs=own_procfs, memory=version >= _MEMORY_OF_THE_CALLER, utilization=version >= _SAMPLES_OF_THE_CALLER
    )


def parse_status(text: str) -> Mapping[str, str]:
    pairs = (line.partition(":") for line in text.split("\n"))
    return {name: value.strip() for name, colon, value in pairs if colon}


_KEPT_SECONDS = 30.0


class _Kept(NamedTuple):
    """Cached facts, the process they belong to, and the monotonic second at which they were read."""

    stat: ProcessStat
    facts: ProcessFacts
    read_at: float


class ProcessFactsReader:
    """Reads facts about processes; caches those of a running process for half a minute.

    Start time and name show whether a PID still refers to the same process and program: a later process with that PID
    has a later start time, and exec changes the name. User, cgroup and CPUs may change without either, so
    entries expire. Both come from ``/proc/PID/stat``, so long-running processes cost little.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def read(self, procfs: Path, stats: Mapping[int, ProcessStat | None], now: float) -> Mapping[int, ProcessFacts]:
        """Read facts by PID of this procfs, without processes that do not exist, or ended or were replaced meanwhile.

        Facts without any value are those of a process with files that procfs hides, as with hidepid=1.
        Cache entries for PIDs not in `stats` are dropped. Source: ``/proc/PID/{status,cgroup,stat}``.
        """
        kept, self._kept = self._kept, {}
        facts: dict[int, ProcessFacts] = {}
        user_names: Mapping[int, str] | None = None
        for pid, stat in stats.items():
            if stat is None:
                if refusal(f"{procfs}/{pid}/stat") == "no_permission":
                    facts[pid] = NO_FACTS
                continue
            known = kept.get(pid)
            if known is None or not stat.is_same(known.stat) or now - known.read_at >= _KEPT_SECONDS:
                user_names = read_user_names(procfs) if user_names is None else user_names
                known = _Kept(stat, _read_facts(procfs, pid, stat, user_names), now)
                if not stat.is_same(read_process_stat(f"{procfs}/{pid}")):
                    continue
            facts[pid] = known.facts
            if known.facts.user and known.facts.allowed_cpus:  # which every process has
                self._kept[pid] = known
        return facts


def read_user_names(procfs: Path) -> Mapping[int, str]:
    """User names by UID from ``/etc/passwd``; empty if that file is not the host's.

    The exporter's own ``/etc/passwd`` is only used with the host's own ``/proc``, where it lists the host's users.
    """
    if procfs != Path("/proc"):
        return {}
    entries = (line.split(":") for line in text_of(Path("/etc/passwd")).split("\n"))
    return {int(e[2]): e[0] for e in entries if len(e) > 2 and e[2].isdecimal()}  # noqa: PLR2004 - name:password:id


def _read_facts(procfs: Path, pid: int, stat: ProcessStat, user_names: Mapping[int, str]) -> ProcessFacts:
    status = parse_status(text_of(f"{procfs}/{pid}/status"))
    cgroups = text_of(f"{procfs}/{pid}/cgroup")
    return ProcessFacts(
        stat.name,
        _user(status.get("Uid", ""), user_names),
        _cpus(status.get("Cpus_allowed_list", "")),
        parse_cgroup(cgroups),
        parse_membership(cgroups),
        _waits_for(procfs, pid, stat),
    )


WAITS_FOR: Final = {0: "unknown", 1: "input", 2: "requests", 3: "continuation"}
_SERVES: Final = re.compile(
    r"jupyter.*|ipython.*|rsession.*|ZMQbg/.*|ray::(?:IDLE|ServeRepl.*)|dask.*|VLLM::.*|sglang::.*|tritonserver|ollama.*"
    r"|llama-server"
)
"""Names of notebooks, servers and idle workers, and of libzmq's threads, which every Jupyter kernel has from the start:
its own name is python3."""
_FIRST_THREADS: Final = 32


def _waits_for(procfs: Path, pid: int, stat: ProcessStat) -> int:
    """Tell what a process without work may wait for; it serves if its parent does, as that of a worker.

    A rank that was started by hand waits for the others of its process group, not for a person.
    """
    if stat.state in STOPPED:
        return 3
    parent = read_process_stat(f"{procfs}/{stat.parent}")
    first = sorted(thread_numbers(f"{procfs}/{pid}"))[:_FIRST_THREADS]
    threads = (read_process_stat(f"{procfs}/{pid}/task/{thread}") for thread in first)
    if any(each is not None and _SERVES.fullmatch(each.name) for each in (stat, parent, *threads)):
        return 2
    siblings = text_of(f"{procfs}/{stat.parent}/task/{stat.parent}/children").split() if stat.foreground else []
    others = (read_process_stat(f"{procfs}/{each}") for each in siblings if each.isdecimal() and int(each) != pid)
    is_rank = any(each and (each.name, each.group) == (stat.name, stat.group) for each in others)
    return int(stat.foreground and not is_rank)


def _user(uids: str, user_names: Mapping[int, str]) -> str:
    """The name of the real user, the first of a process's four, or its UID."""
    uid = uids.partition("\t")[0]
    return user_names.get(int(uid), uid) if uid.isdecimal() and uid.isascii() else ""


def _cpus(text: str) -> frozenset[int] | None:
    try:
        return parse_cpu_list(text) or None
    except ValueError:
        return None
