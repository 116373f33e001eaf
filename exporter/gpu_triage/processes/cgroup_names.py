"""What the names of cgroups tell: the container, pod or Slurm job that a process runs in."""

from __future__ import annotations

import re

from gpu_triage.processes.pids import Owner

# /docker/ID, docker-ID.scope, crio-ID.scope, cri-containerd-ID.scope, …:cri-containerd:ID, libpod-ID.scope,
# and kubepods' bare ID. conmon is the runtime's monitor outside the container it is named after.
_CONTAINER = re.compile(r"(?<!conmon)[/:-]([0-9a-f]{64})(?:\.scope)?(?=/|$)")
# systemd's cgroup names cannot hold dashes, so kubelet writes the UID with underscores there.
_POD = re.compile(r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?=[/:]|$)")
# v1: /slurm/uid_1000/job_42/…, /slurm_node7/…
# v2: /system.slice/slurmstepd.scope/job_42/…, …/node7_slurmstepd.scope/…
_SLURM_JOB = re.compile(r"/(?:slurm[^/]*|[^/]*slurmstepd\.scope)(?:/uid_[0-9]+)?/job_([0-9]+)(?=/|$)")
_UNIT = re.compile(r"/[^/]+\.(?:service|scope)(?=/|$)")


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


def job_level(path: str) -> str:
    """Of the path of a process's cgroup, the part that is the job's: Slurm's job, the container, or systemd's unit.

    Workers that the process starts are in it or below, whatever cgroups the job makes there.

    >>> job_level("/system.slice/slurmstepd.scope/job_42/step_0/user/task_0")
    '/system.slice/slurmstepd.scope/job_42'
    >>> job_level("/user.slice/user-1000.slice/session-3.scope")
    '/user.slice/user-1000.slice/session-3.scope'
    """
    for pattern in (_SLURM_JOB, _CONTAINER, _UNIT):
        matches = tuple(pattern.finditer(path))
        if matches:
            return path[: matches[-1].end()]
    return path


def _last_match(pattern: re.Pattern[str], paths: list[str]) -> str:
    for path in paths:
        found: list[str] = pattern.findall(path)
        if found:
            return found[-1]
    return ""
