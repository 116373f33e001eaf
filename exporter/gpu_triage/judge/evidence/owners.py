"""Who uses a GPU (pods, jobs, owners of its processes), whether a scheduler is known, and whether a job saves."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.limited_jobs import stalls, waits_for_storage
from gpu_triage.judge.evidence.wording import first_few
from gpu_triage.read.host import network_interfaces
from gpu_triage.read.host.access import GPU_EXPORTER_DEGRADED_INFO
from gpu_triage.read.host.services import GPU_HOST_SERVICE_RUNNING, KUBELET, SLURMD
from gpu_triage.read.processes import threads
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.cgroup_limits import GPU_CGROUP_WRITTEN_BYTES_TOTAL
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
    """Return pods, then Slurm jobs, then users; those in unnamed pods only if there is no other (mostly root)."""
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


def ranks_of(host: HostEvidence, gpu: GpuEvidence) -> list[GpuEvidence]:
    """Return the GPUs of this host that the job on a GPU has, with that GPU."""
    owners = owners_of(gpu)
    return [each for each in host.answering if each.occupied and owners_of(each) == owners]


def idle_for_a_reason(host: HostEvidence, gpu: GpuEvidence) -> str:
    """Describe why a job that stopped its GPU need not hang; "" if nothing is known that explains it.

    What computes on CPUs may do so for long if no other rank waits for it; a rank of several may as well spin.
    """
    if gpu.may_wait_for:
        return f"it may wait for {gpu.may_wait_for}"
    if (read := loaded_bytes_per_second(host, gpu) or 0.0) >= thresholds.LOADING_BYTES_PER_SECOND:
        return f"its job reads {read / 1e6:.0f} MB a second"
    if len({each["pid"] for rank in ranks_of(host, gpu) for each in rank.labels_of(GPU_PROCESS_INFO)}) > 1:
        return ""
    busiest = gpu.one(threads.GPU_BUSIEST_THREAD_RATIO)
    if busiest is None or busiest.mean < thresholds.WORKING_CPU_SHARE:
        return ""
    return f"thread {busiest.labels['thread']} of process {busiest.labels['pid']} uses {busiest.mean:.0%} of a CPU"


def loaded_bytes_per_second(host: HostEvidence, gpu: GpuEvidence) -> float | None:
    """Return what the rank that reads most, of the job on the GPU, reads on this host; None if that is not known."""
    counters = (each for rank in ranks_of(host, gpu) for each in rank.series(threads.GPU_PROCESSES_READ_BYTES_TOTAL))
    return max((rate for each in counters if (rate := each.rate) is not None), default=None)


def saves(host: HostEvidence, gpu: GpuEvidence) -> bool | None:
    """Return whether the job on the GPU writes as much as while it saves a checkpoint; None if that cannot be read.

    Its ranks on this host count together, as one of them often writes for all. What its cgroup writes proves that it
    saves, but not that it does not: a cgroup does not count what goes to file servers. What is in the page
    cache may take minutes to be written back: then the job's own tasks wait for that, and the host writes.
    """
    ranks = ranks_of(host, gpu)
    processes: dict[frozenset[str], float] = {}  # by PIDs: a process on several GPUs counts once
    cgroups: dict[str, float] = {}
    for rank in ranks:
        rates = [each.rate for each in rank.series(threads.GPU_PROCESSES_WRITTEN_BYTES_TOTAL) if each.rate is not None]
        if rates:
            processes[frozenset(labels["pid"] for labels in rank.labels_of(GPU_PROCESS_INFO))] = max(rates)
        cgroups |= {each.labels["cgroup"]: each.rate or 0.0 for each in rank.series(GPU_CGROUP_WRITTEN_BYTES_TOTAL)}
    if max(sum(processes.values()), sum(cgroups.values())) >= thresholds.SAVING_BYTES_PER_SECOND:
        return True
    if not processes:
        return None
    writes = host.mostly_writes() and host.bytes_per_second("write") >= thresholds.SAVING_BYTES_PER_SECOND
    return writes and any(waits_for_storage(rank) or stalls(rank, "storage") for rank in ranks)


def saving_explains_seconds(host: HostEvidence, gpu: GpuEvidence) -> float:
    """Return for how long a checkpoint explains that the GPU is idle; 0 if none is saved."""
    saving = saves(host, gpu)
    if saving is not None:
        return thresholds.UNEXPLAINED_SECONDS if saving else 0.0
    # What its cgroup does not write to disks, others do.
    written = host.bytes_per_second("write", disks=not gpu.has(GPU_CGROUP_WRITTEN_BYTES_TOTAL))
    sent = host.rate(network_interfaces.GPU_HOST_NETWORK_TRANSMIT_BYTES_TOTAL) or 0.0
    received = host.rate(network_interfaces.GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL) or 0.0
    if sent > thresholds.UPLOADING_RATIO * received:  # as to an object store
        written += sent
    return thresholds.HOST_SAVES_SECONDS if written >= thresholds.SAVING_BYTES_PER_SECOND else 0.0


def is_explained(host: HostEvidence, gpu: GpuEvidence, seconds: float) -> bool:
    """Whether something is known that explains why a job stopped its GPU for so long: it need not hang."""
    return seconds < saving_explains_seconds(host, gpu) or bool(idle_for_a_reason(host, gpu))
