"""Which pods and Slurm jobs the scheduler allocated the GPU to, even if they run no process on it yet."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device
from gpu_triage.machine import Machine, Moment, dra_name, index_name, minor_name
from gpu_triage.read.gpu.identity import read_minor_number
from gpu_triage.read.gpu.mig import read_mig_uuids
from gpu_triage.read.gpu.modes import mig_mode
from gpu_triage.read.metrics.bounds import Bound
from gpu_triage.read.metrics.contract import GpuCollector, GpuLabels, GpuRound
from gpu_triage.read.metrics.metric import Sample, Tier, gpu_gauge

MOST_ALLOCATIONS: Final = 64
"""Per GPU. Time slicing typically shares a GPU among about ten pods."""

GPU_ALLOCATED = gpu_gauge(
    "gpu_allocated",
    "1 for each container or Slurm job to which the GPU, or a MIG device of it, is allocated, even without a process; "
    "a single 0 with empty labels if unallocated. Absent without --kubernetes.pod-resources-socket and "
    "--slurm.jobs-directory, and while neither answers.",
    labels=("mig_uuid", "workload_pod", "workload_namespace", "workload_container", "slurm_job_id", "user", "account"),
    source="the kubelet's pod resources; files of Slurm's prolog",
)


class GpuAllocation(NamedTuple):
    """A container or job that holds a GPU or MIG device ("" for the whole GPU), in gpu_allocated's label order.

    Names are the kubelet's, user and account Slurm's; "" if not applicable.
    """

    mig_uuid: str = ""
    workload_pod: str = ""
    workload_namespace: str = ""
    workload_container: str = ""
    slurm_job_id: str = ""
    user: str = ""
    account: str = ""


UNALLOCATED: Final = GpuAllocation()


@dataclass(frozen=True, slots=True)
class AllocationReading:
    """At most MOST_ALLOCATIONS allocations of one GPU; empty if it is free, None if unknown."""

    allocations: tuple[GpuAllocation, ...] | None


Allocation = TypeVar("Allocation")


class AllocationCache(Generic[Allocation]):
    """Allocations by device; they expire when the last answer gets too old. Thread-safe.

    >>> cache = AllocationCache[str](fresh_for_seconds=15.0)
    >>> cache.keep({"GPU-1": frozenset({"alice"})}, Moment(monotonic=100.0, wall=0.0))
    >>> [sorted(cache.allocations({"GPU-1", "GPU-2"}, Moment(at, wall=0.0))) for at in (110.0, 120.0)]
    [['alice'], []]
    """

    def __init__(self, fresh_for_seconds: float) -> None:
        self._fresh_for_seconds = fresh_for_seconds
        self._latest: tuple[float, Mapping[str, frozenset[Allocation]]] | None = None

    def keep(self, allocations: Mapping[str, frozenset[Allocation]], at: Moment) -> None:
        self._latest = (at.monotonic, allocations)  # replaced atomically: other threads read it

    def allocations(self, devices: Collection[str], at: Moment) -> frozenset[Allocation]:
        latest = self._latest
        if latest is None or not self.known(at):
            return frozenset()
        return frozenset().union(*(latest[1].get(device, frozenset()) for device in devices))

    def known(self, at: Moment) -> bool:
        latest = self._latest
        return latest is not None and at.monotonic - latest[0] <= self._fresh_for_seconds


class AllocationReader:
    """Queries the kubelet and Slurm for a GPU's allocations; caches the GPU's minor number, a name they may use."""

    def __init__(self) -> None:
        self._minor_number: tuple[Device, int | None] | None = None
        self._bound = Bound(MOST_ALLOCATIONS, "too_many_holders")

    def read(self, gpu: GpuRound) -> AllocationReading:
        """Allocations from the latest kubelet and Slurm data (nvmlDeviceGetMinorNumber, …MigDeviceHandleByIndex)."""
        pods, slurm = gpu.machine.pods, gpu.machine.slurm
        asked = [source.known(gpu.at) for source in (pods, slurm) if source is not None]
        if not any(asked):
            return AllocationReading(None)
        found = sorted(
            {allocation for names, mig in self._devices(gpu.inquiry) for allocation in _allocations(gpu, names, mig)}
        )
        if not found and not all(asked):
            return AllocationReading(None)  # the scheduler that did not answer may have allocated it
        return AllocationReading(tuple(self._bound.kept(found, gpu.inquiry.failures)))

    def _devices(self, inquiry: Inquiry) -> Iterator[tuple[frozenset[str], str]]:
        device = inquiry.device
        names = {device.uuid, index_name(device.index)}
        minor = self._minor(inquiry)
        if minor is not None:
            names |= {dra_name(minor), minor_name(minor)}
        yield frozenset(names), ""
        instances: Mapping[tuple[int, int], str] = read_mig_uuids(inquiry) if mig_mode(inquiry) else {}
        for uuid in instances.values():
            yield frozenset({uuid}), uuid

    def _minor(self, inquiry: Inquiry) -> int | None:
        known = self._minor_number
        if known is None or known[0] is not inquiry.device:
            known = self._minor_number = (inquiry.device, read_minor_number(inquiry))
        return known[1]


def _allocations(gpu: GpuRound, devices: frozenset[str], mig_uuid: str) -> Iterator[GpuAllocation]:
    machine: Machine = gpu.machine
    if machine.pods is not None:
        for workload in machine.pods.allocations(devices, gpu.at):
            yield GpuAllocation(mig_uuid, workload.pod, workload.namespace, workload.container)
    if machine.slurm is not None:
        for job in machine.slurm.allocations(devices, gpu.at):
            yield GpuAllocation(mig_uuid, slurm_job_id=job.job_id, user=job.user, account=job.account)


def render(reading: AllocationReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Yield one sample per allocation, or a single 0 if the GPU is free."""
    if reading.allocations is None:
        return
    for allocation in reading.allocations:
        yield GPU_ALLOCATED.sample(1, *gpu, *allocation)
    if not reading.allocations:
        yield GPU_ALLOCATED.sample(0, *gpu, *UNALLOCATED)


ALLOCATION = GpuCollector(
    name="allocation",
    about="containers and Slurm jobs that each GPU is allocated to",
    tier=Tier.MEDIUM,
    reader=lambda _config: AllocationReader().read,
    render=render,
)
