"""Whose GPU it is: who was given it, and whose processes are on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpu_triage.diagnosis.evidence.gpu import GpuEvidence
from gpu_triage.processes.allocation import GPU_ALLOCATED
from gpu_triage.processes.on_gpu import GPU_PROCESS_INFO

_SHOWN: Final = 3


class GpuHolder(NamedTuple):
    """A pod, a Slurm job or a user; "" for what does not apply or is not known."""

    namespace: str = ""
    pod: str = ""
    slurm_job_id: str = ""
    user: str = ""
    account: str = ""

    @property
    def words(self) -> str:
        """As people call it."""
        if self.pod:
            return f"pod {self.namespace}/{self.pod}"
        if self.slurm_job_id:
            return f"Slurm job {self.slurm_job_id}" + (f" of {self.user}" if self.user else "")
        return f"user {self.user}"


def holders_of(gpu: GpuEvidence) -> tuple[GpuHolder, ...]:
    """Pods first, then jobs of Slurm, then users of processes in neither.

    Users of processes in a pod without a name are told only where nobody else is: they say little (mostly root).
    """
    return holders_among(
        (each.labels for each in gpu.series(GPU_ALLOCATED) if each.last == 1), gpu.labels_of(GPU_PROCESS_INFO)
    )


def holders_among(
    allocated: Iterable[Mapping[str, str]], processes: Iterable[Mapping[str, str]]
) -> tuple[GpuHolder, ...]:
    """The same by the labels of gpu_allocated where it is 1, and of gpu_process_info or gpu_process_owner_info."""
    given, processes = _given(allocated), list(processes)
    in_pods = {
        GpuHolder(each["workload_namespace"], each["workload_pod"]) for each in processes if each["workload_pod"]
    }
    pods = {each for each in given if each.pod} | in_pods
    jobs = {each.slurm_job_id: each for each in given if each.slurm_job_id}
    others = [each for each in processes if not each["workload_pod"]]
    for each in others:
        if each["slurm_job_id"]:
            jobs.setdefault(each["slurm_job_id"], GpuHolder(slurm_job_id=each["slurm_job_id"], user=each["user"]))
    alone = [each for each in others if each["user"] and not each["slurm_job_id"]]
    users = {each["user"] for each in alone if not each["pod_uid"]}
    if not (pods or jobs or users):
        users = {each["user"] for each in alone}
    return (*sorted(pods), *sorted(jobs.values()), *(GpuHolder(user=user) for user in sorted(users)))


def given_to(gpu: GpuEvidence) -> frozenset[GpuHolder]:
    """Whom a scheduler gave the GPU, or a MIG device of it, to; empty too where nobody knows."""
    return _given(each.labels for each in gpu.series(GPU_ALLOCATED) if each.last == 1)


def _given(allocated: Iterable[Mapping[str, str]]) -> frozenset[GpuHolder]:
    return frozenset(
        GpuHolder(each["workload_namespace"], each["workload_pod"], each["slurm_job_id"], each["user"], each["account"])
        for each in allocated
    )


def in_words(holders: Iterable[GpuHolder]) -> str:
    """The first few of them; "" for none."""
    words = [holder.words for holder in holders]
    more = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
