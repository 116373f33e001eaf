"""Whose process a PID is: its name, user, CPUs, and the container, pod or Slurm job it runs in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpu_triage.errors import HostReadFailed
from gpu_triage.hardware.kernel_files import is_present, parse_count, parse_cpu_list, read_link, read_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_START_TIME_FIELD = 22
_FIRST_FIELD_AFTER_NAME = 3
_HOST_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO: the inode of the first PID namespace is a constant of the kernel."""

# /docker/ID, docker-ID.scope, crio-ID.scope, cri-containerd-ID.scope, …:cri-containerd:ID, libpod-ID.scope,
# and kubepods' bare ID. conmon is the runtime's monitor outside the container it is named after.
_CONTAINER = re.compile(r"(?<!conmon)[/:-]([0-9a-f]{64})(?:\.scope)?(?=/|$)")
# systemd's cgroup names cannot hold dashes, so kubelet writes the UID with underscores there.
_POD = re.compile(r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?=[/:]|$)")
# v1: /slurm/uid_1000/job_42/…, /slurm_node7/…
# v2: /system.slice/slurmstepd.scope/job_42/…, …/node7_slurmstepd.scope/…
_SLURM_JOB = re.compile(r"/(?:slurm[^/]*|[^/]*slurmstepd\.scope)(?:/uid_[0-9]+)?/job_([0-9]+)(?=/|$)")


_KEPT_SECONDS = 30.0


class Owner(NamedTuple):
    """What a process's cgroups say; empty where they say nothing.

    Attributes:
        container_id: 64 hexadecimal digits.
        pod_uid: with dashes, as the Kubernetes API writes it.
        slurm_job_id: the job's number.
    """

    container_id: str = ""
    pod_uid: str = ""
    slurm_job_id: str = ""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One process; empty or None for what cannot be read.

    Attributes:
        name: comm, 15 bytes at most, without control characters; never the command line.
        user: real user's name, or number as text where the host's names are not known.
        allowed_cpus: CPUs it may run on.
        start_ticks: start time in clock ticks since boot; tells it from a later process of the same PID.
        container_id: of the container it runs in.
        pod_uid: of the Kubernetes pod it runs in.
        slurm_job_id: of the Slurm job it runs in.
    """

    name: str
    user: str
    allowed_cpus: frozenset[int] | None
    start_ticks: int | None
    container_id: str
    pod_uid: str
    slurm_job_id: str


class _Kept(NamedTuple):
    """Facts of a process, its identity when they were read, and the monotonic second of that."""

    identity: tuple[str, int] | None
    facts: ProcessFacts | None
    read_at: float

    @property
    def is_whole(self) -> bool:
        """Whether they are of one process, and nothing is missing that every process has."""
        facts = self.facts
        if self.identity is None or facts is None or facts.start_ticks != self.identity[1]:
            return False
        return bool(facts.name and facts.user and facts.allowed_cpus)


def read_user_names(procfs: Path) -> Mapping[str, str]:
    """Names by user id, of the users in ``/etc/passwd``; empty where that file is not the host's.

    It is this process's own file, and knows the host's users only beside the host's ``/proc``. The name service is
    not asked: over a network it can take as long as it likes, and this is read in a GPU's lane.
    """
    if procfs != Path("/proc"):
        return {}
    entries = (line.split(":") for line in _text(Path("/etc/passwd")).split("\n"))
    return {entry[2]: _printable(entry[0]) for entry in entries if len(entry) > 2}  # noqa: PLR2004 - name:password:id


def read_process_facts(procfs: Path, pid: int, user_names: Mapping[str, str]) -> ProcessFacts | None:
    """Facts of one process; None when there is none, or it ended or gave way to another meanwhile.

    Source: ``/proc/PID/{comm,status,stat,cgroup}``. Never raises: what cannot be read is left out.

    Args:
        procfs: root of procfs.
        pid: as that procfs counts them (see `names_are_host_pids`).
        user_names: by user id (see `read_user_names`).
    """
    directory = procfs / str(pid)
    start_ticks = _start_ticks(directory)
    name = _text(directory / "comm")
    status = parse_status(_text(directory / "status"))
    owner = parse_cgroup(_text(directory / "cgroup"))
    if not is_present(directory) or _start_ticks(directory) != start_ticks:
        return None
    return ProcessFacts(
        name=_printable(name),
        user=_user(status.get("Uid", ""), user_names),
        allowed_cpus=_cpus(status.get("Cpus_allowed_list", "")),
        start_ticks=start_ticks,
        container_id=owner.container_id,
        pod_uid=owner.pod_uid,
        slurm_job_id=owner.slurm_job_id,
    )


class ProcessFactsReader:
    """Reads facts of processes; keeps those of one that lives on, for half a minute.

    Start time and name tell whether a PID is still the process it was: a later one under that PID started later, and
    one that executed another program has its name. Its user, cgroup and CPUs may change all the same, hence the limit.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def read(self, procfs: Path, pids: Collection[int], now: float) -> Mapping[int, ProcessFacts | None]:
        """Facts by PID, as `read_process_facts` gives them; whoever is not asked for is forgotten.

        Args:
            procfs: root of procfs.
            pids: as that procfs counts them.
            now: monotonic seconds.
        """
        kept, self._kept = self._kept, {}
        facts: dict[int, ProcessFacts | None] = {}
        user_names: Mapping[str, str] | None = None
        for pid in pids:
            known, identity = kept.get(pid), parse_identity(_text(procfs / str(pid) / "stat"))
            if known is None or known.identity != identity or now - known.read_at >= _KEPT_SECONDS:
                user_names = read_user_names(procfs) if user_names is None else user_names
                known = _Kept(identity, read_process_facts(procfs, pid, user_names), now)
            facts[pid] = known.facts
            if known.is_whole:
                self._kept[pid] = known
        return facts


def names_are_host_pids(procfs: Path) -> bool | None:
    """Whether PIDs of this procfs are the host's, which is what NVML reports; None when it cannot be told.

    False in a container that has a PID namespace and a procfs of its own: there a host PID would name another
    process, or none. Source: ``/proc/self/status`` NSpid, ``/proc/self/ns/pid``.
    """
    own = procfs / "self"
    try:
        status = read_text(own / "status")
        if status is None:
            return True  # no procfs of this process: a recorded host, or one mounted from outside its namespace
        if len(parse_status(status).get("NSpid", "").split()) > 1:
            return True  # this process has a PID of its own further in: the procfs belongs to an outer namespace
        namespace = read_link(own / "ns" / "pid")
    except HostReadFailed:
        return None
    return None if namespace is None else namespace == _HOST_PID_NAMESPACE


def sees_every_process(procfs: Path) -> bool:
    """Whether the driver lists all processes to this one: it leaves out those of other PID namespaces than its own.

    False in a container without the host's PID namespace, even beside the host's procfs. True where that cannot be
    told, as of a recorded host.
    """
    try:
        status = read_text(procfs / "self" / "status")
    except HostReadFailed:
        return True
    nested = len(parse_status(status or "").get("NSpid", "").split()) > 1
    return not nested and names_are_host_pids(procfs) is not False


def parse_status(text: str) -> Mapping[str, str]:
    """Values by name of /proc/PID/status; its lines: ``Cpus_allowed_list: 0-31``, with a tab."""
    pairs = (line.partition(":") for line in text.split("\n"))
    return {name: value.strip() for name, colon, value in pairs if colon}


def parse_start_ticks(text: str) -> int:
    """Start time in clock ticks since boot, of /proc/PID/stat.

    Raises:
        ValueError: the text is not what that file holds.
    """
    # The name stands in parentheses and may hold spaces and parentheses of its own.
    fields = text.rpartition(")")[2].split()
    if len(fields) <= _START_TIME_FIELD - _FIRST_FIELD_AFTER_NAME:
        raise ValueError(f"{text[:80]!r} is no /proc/PID/stat")
    return parse_count(fields[_START_TIME_FIELD - _FIRST_FIELD_AFTER_NAME])


def parse_identity(text: str) -> tuple[str, int] | None:
    """Name and start time of /proc/PID/stat, which tell a process from any other; None where they are not told."""
    try:
        return text.partition("(")[2].rpartition(")")[0], parse_start_ticks(text)
    except ValueError:
        return None


def parse_cgroup(text: str) -> Owner:
    """Container, pod and job named in /proc/PID/cgroup, v1 or v2; its lines: ``hierarchy:names:path``.

    Of nested containers or pods, the innermost.
    """
    paths = [line.split(":", 2)[2] for line in text.split("\n") if line.count(":") >= 2]  # noqa: PLR2004 - two separators
    return Owner(
        container_id=_last_match(_CONTAINER, paths),
        pod_uid=_last_match(_POD, paths).replace("_", "-"),
        slurm_job_id=_last_match(_SLURM_JOB, paths),
    )


def _last_match(pattern: re.Pattern[str], paths: list[str]) -> str:
    for path in paths:
        found: list[str] = pattern.findall(path)
        if found:
            return found[-1]
    return ""


def _start_ticks(directory: Path) -> int | None:
    try:
        return parse_start_ticks(_text(directory / "stat"))
    except ValueError:
        return None


def _text(path: Path) -> str:
    try:
        return read_text(path) or ""
    except HostReadFailed:
        return ""


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable()).strip()


def _user(uids: str, names: Mapping[str, str]) -> str:
    try:
        real_uid = str(parse_count((uids.split() or [""])[0]))
    except ValueError:
        return ""
    return names.get(real_uid, real_uid)


def _cpus(cpu_list: str) -> frozenset[int] | None:
    try:
        return parse_cpu_list(cpu_list) or None
    except ValueError:
        return None
