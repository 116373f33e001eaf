"""Whether a scheduler gives this host its work: "drain" means something only where one does."""

from __future__ import annotations

from typing import Final

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.read.host.access import GPU_EXPORTER_DEGRADED_INFO
from gpu_triage.read.host.services import GPU_HOST_SERVICE_RUNNING, KUBELET, SLURMD
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO

_CONFIGURED: Final = ("pod_names", "container_names", "slurm_jobs")
"""Features that are only limited where the exporter is configured for a scheduler."""


def scheduler_known(host: HostEvidence) -> bool:
    """Whether Slurm or Kubernetes is seen: its service, its jobs on the GPUs, or options of the exporter for it."""
    if host.has(GPU_ALLOCATED) or any(host.has(GPU_HOST_SERVICE_RUNNING, service=each) for each in (KUBELET, SLURMD)):
        return True
    if any(host.has(GPU_EXPORTER_DEGRADED_INFO, feature=each) for each in _CONFIGURED):
        return True
    return any(each["pod_uid"] or each["slurm_job_id"] for each in host.labels_of(GPU_PROCESS_INFO))
