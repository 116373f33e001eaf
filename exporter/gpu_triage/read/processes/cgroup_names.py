"""Parse cgroup paths to find the container, pod or Slurm job a process runs in."""

from __future__ import annotations

import re

from gpu_triage.driver.kernel.cgroups import hierarchies
from gpu_triage.read.processes.pids import Owner

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
    """Parse /proc/PID/cgroup (v1 or v2; lines ``hierarchy:names:path``) into container, pod and job.

    For nested containers or pods, returns the innermost.
    """
    paths = [path for _, _, path in hierarchies(text)]
    return Owner(
        container_id=_last_match(_CONTAINER, paths),
        pod_uid=_last_match(_POD, paths).replace("_", "-"),
        slurm_job_id=_last_match(_SLURM_JOB, paths),
    )


def job_level(path: str) -> str:
    """Truncate a cgroup path to the level of the job: the Slurm job, the container, or the systemd unit.

    Worker processes stay at or below this level, whatever sub-cgroups the job creates.

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
