"""PID namespaces of a procfs, and names of its processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.cgroups import NO_CGROUPS, Membership
from gpu_triage.driver.kernel.files import read_link, read_text, text_of
from gpu_triage.errors import HostReadFailed

_HOST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""PROC_PID_INIT_INO: the inode of the initial PID namespace, a kernel constant."""


class Owner(NamedTuple):
    """Owner of a process according to its cgroup paths; empty where not found.

    Attributes:
        container_id: 64 hexadecimal digits.
        pod_uid: with dashes, as in the Kubernetes API.
        slurm_job_id: job number.
    """

    container_id: str = ""
    pod_uid: str = ""
    slurm_job_id: str = ""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """Facts about one process; empty or None for what cannot be read.

    Attributes:
        name: from `process_name`.
        user: real user's name, or the UID as text if the host's user names are unknown.
        allowed_cpus: CPUs it may run on.
        owner: its container, pod and job.
        cgroups: its cgroups, where its limits apply.
    """

    name: str
    user: str
    allowed_cpus: frozenset[int] | None
    owner: Owner
    cgroups: Membership = NO_CGROUPS


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
        if len(parse_status(status).get("NSpid", "").split()) > 1:
            return True  # we also have a PID in a nested namespace: this procfs belongs to an outer one
        namespace = read_link(own / "ns" / "pid")
    except HostReadFailed:
        return None
    return None if namespace is None else namespace == _HOST_PID_NAMESPACE


def sees_every_process(procfs: Path) -> bool:
    """Whether the driver lists all processes to us; it hides those outside the caller's PID namespace.

    False in a container without the host's PID namespace, even with the host's procfs. True if unknown, such as for a
    recorded host.
    """
    try:
        status = read_text(procfs / "self" / "status")
    except HostReadFailed:
        return True
    nested = len(parse_status(status or "").get("NSpid", "").split()) > 1
    return not nested and names_are_host_pids(procfs) is not False


def parse_status(text: str) -> Mapping[str, str]:
    """Parse /proc/PID/status (lines like ``Cpus_allowed_list: 0-31``, with a tab)."""
    pairs = (line.partition(":") for line in text.split("\n"))
    return {name: value.strip() for name, colon, value in pairs if colon}


def counts_as_this_process(procfs: Path) -> bool:
    """Whether PIDs in this procfs mean the same processes in this process's system calls."""
    try:
        return read_link(procfs / "self") == str(os.getpid())
    except HostReadFailed:
        return False


def process_name(procfs: Path, pid: int) -> str:
    """The process's comm: at most 15 bytes, without control characters; "" if it cannot be read.

    Never the command line, which may contain secrets.
    """
    return printable(text_of(f"{procfs}/{pid}/comm"))


def printable(text: str) -> str:
    """Remove control characters and surrounding whitespace."""
    return "".join(character for character in text if character.isprintable()).strip()
