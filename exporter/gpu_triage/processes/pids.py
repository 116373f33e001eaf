"""PIDs as a procfs counts them: whose they are, and what the processes are called."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.errors import HostReadFailed
from gpu_triage.kernel.cgroups import NO_CGROUPS, Membership
from gpu_triage.kernel.files import read_link, read_text, text_of

_HOST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""PROC_PID_INIT_INO: the inode of the first PID namespace is a constant of the kernel."""


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
        name: as `process_name` gives it.
        user: real user's name, or number as text where the host's names are not known.
        allowed_cpus: CPUs it may run on.
        owner: the container, pod and job it runs in.
        cgroups: where its limits are.
    """

    name: str
    user: str
    allowed_cpus: frozenset[int] | None
    owner: Owner
    cgroups: Membership = NO_CGROUPS


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


def counts_as_this_process(procfs: Path) -> bool:
    """Whether a PID in this procfs is the same process to the kernel's calls of this process."""
    try:
        return read_link(procfs / "self") == str(os.getpid())
    except HostReadFailed:
        return False


def process_name(procfs: Path, pid: int) -> str:
    """The comm of a process: 15 bytes at most, without control characters; "" where it cannot be read.

    Never the command line, which may hold secrets.
    """
    return printable(text_of(f"{procfs}/{pid}/comm"))


def printable(text: str) -> str:
    """A text without control characters."""
    return "".join(character for character in text if character.isprintable()).strip()
