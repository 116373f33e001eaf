"""Who uses a GPU (pods and jobs it is allocated to, owners of its processes), and whether a scheduler is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.wording import first_few
from gpu_triage.read.host.access import GPU_EXPORTER_DEGRADED_INFO
from gpu_triage.read.host.services import GPU_HOST_SERVICE_RUNNING, KUBELET, SLURMD
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO

_SHOWN: Final = 3


class GpuOwner(NamedTuple):
    """A pod, a Slurm job or a user; fields that are unknown or do not apply are ""."""

    namespace: str = ""
    pod: str = ""
    slurm_job_id: str = ""
    user: str = ""
    account: str = ""

    @property
    def text(self) -> str:
        """As shown to people: ``pod team/train-0``."""
        if self.pod:
            return f"pod {self.namespace}/{self.pod}"
        if self.slurm_job_id:
            return f"Slurm job {self.slurm_job_id}" + (f" of {self.user}" if self.user else "")
        return f"user {self.user}"


def owners_of(gpu: GpuEvidence) -> tuple[GpuOwner, ...]:
    """Return pods first, then Slurm jobs, then users of processes in neither.

    Users of processes in unnamed pods are listed only if there is no other owner: they are mostly root.
    """
    return owners_among(
        (each.labels for each in gpu.series(GPU_ALLOCATED) if each.last == 1), gpu.labels_of(GPU_PROCESS_INFO)
    )


def owners_among(
    allocated: Iterable[Mapping[str, str]], processes: Iterable[Mapping[str, str]]
) -> tuple[GpuOwner, ...]:
    """Like `owners_of`, from the labels of gpu_allocated series at 1, and of gpu_process_(owner_)info."""
    given, processes = _given(allocated), list(processes)
    in_pods = {GpuOwner(each["workload_namespace"], each["workload_pod"]) for each in processes if each["workload_pod"]}
    pods = {each for each in given if each.pod} | in_pods
    jobs = {each.slurm_job_id: each for each in given if each.slurm_job_id}
    others = [each for each in processes if not each["workload_pod"]]
    for each in others:
        if each["slurm_job_id"]:
            jobs.setdefault(each["slurm_job_id"], GpuOwner(slurm_job_id=each["slurm_job_id"], user=each["user"]))
    alone = [each for each in others if each["user"] and not each["slurm_job_id"]]
    users = {each["user"] for each in alone if not each["pod_uid"]}
    if not (pods or jobs or users):
        users = {each["user"] for each in alone}
    return (*sorted(pods), *sorted(jobs.values()), *(GpuOwner(user=user) for user in sorted(users)))


def allocated_to(gpu: GpuEvidence) -> frozenset[GpuOwner]:
    """Return the owners to which a scheduler allocated the GPU or one of its MIG devices; empty if unknown."""
    return _given(each.labels for each in gpu.series(GPU_ALLOCATED) if each.last == 1)


def _given(allocated: Iterable[Mapping[str, str]]) -> frozenset[GpuOwner]:
    return frozenset(
        GpuOwner(each["workload_namespace"], each["workload_pod"], each["slurm_job_id"], each["user"], each["account"])
        for each in allocated
    )


def owners_text(owners: Iterable[GpuOwner]) -> str:
    """Return the first few owners as text, or ""."""
    return first_few([owner.text for owner in owners], _SHOWN)


_CONFIGURED: Final = ("pod_names", "container_names", "slurm_jobs")
"""Features that are only limited where the exporter is configured for a scheduler."""


def scheduler_known(host: HostEvidence) -> bool:
    """Whether Slurm or Kubernetes is seen: its service, its jobs on the GPUs, or options of the exporter for it."""
    if host.has(GPU_ALLOCATED) or any(host.has(GPU_HOST_SERVICE_RUNNING, service=each) for each in (KUBELET, SLURMD)):
        return True
    if any(host.has(GPU_EXPORTER_DEGRADED_INFO, feature=each) for each in _CONFIGURED):
        return True
    return any(each["pod_uid"] or each["slurm_job_id"] for each in host.labels_of(GPU_PROCESS_INFO))
