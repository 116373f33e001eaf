"""Which pods and Slurm jobs the scheduler allocated the GPU to, even if they run no process on it yet."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device
from gpu_triage.machine import Holder, HolderSource, Machine, Moment, dra_name, index_name, minor_name
from gpu_triage.read.gpu.identity import read_minor_number
from gpu_triage.read.gpu.mig import read_mig_uuids
from gpu_triage.read.gpu.modes import mig_mode
from gpu_triage.read.metrics.bounds import Bound
from gpu_triage.read.metrics.contract import GpuCollector, GpuLabels, GpuRound, HostRound
from gpu_triage.read.metrics.metric import Sample, Tier, gpu_gauge

MOST_ALLOCATIONS: Final = 64
"""Per GPU. Time slicing typically shares a GPU among about ten pods."""

GPU_ALLOCATED = gpu_gauge(
    "1 for each container or Slurm job to which the GPU, or a MIG device of it, is allocated, even without a process; "
    "a single 0 with empty labels if unallocated. Absent without --kubernetes.pod-resources-socket and "
    "--slurm.jobs-directory, and while neither answers.",
    labels=("mig_uuid", "workload_pod", "workload_namespace", "workload_container", "slurm_job_id", "user", "account"),
    source="the kubelet's pod resources; files of Slurm's prolog",
)


Allocations = Sequence[tuple[str, Holder]]
"""MIG devices of one GPU, "" for the whole GPU, and who holds them; at most MOST_ALLOCATIONS."""


class AllocationCache:
    """Holders by device; they expire when the last answer gets too old. Thread-safe.

    >>> cache = AllocationCache(fresh_for_seconds=15.0)
    >>> cache.keep([("GPU-1", Holder("train-0", "research"))], Moment(monotonic=100.0, wall=0.0))
    >>> [len(cache.holders({"GPU-1", "GPU-2"}, Moment(at, wall=0.0))) for at in (110.0, 120.0)]
    [1, 0]
    """

    def __init__(self, fresh_for_seconds: float) -> None:
        self._fresh_for_seconds = fresh_for_seconds
        self._latest: tuple[float, Mapping[str, set[Holder]]] | None = None

    def keep(self, held: Iterable[tuple[str, Holder]], at: Moment) -> None:
        """Replace all; `held` are devices and holders."""
        found: defaultdict[str, set[Holder]] = defaultdict(set)
        for device, holder in held:
            found[device].add(holder)
        self._latest = (at.monotonic, found)  # replaced atomically: other threads read it

    def holders(self, devices: Collection[str], at: Moment) -> frozenset[Holder]:
        latest = self._latest
        if latest is None or not self.known(at):
            return frozenset()
        return frozenset[Holder]().union(*(latest[1].get(device, ()) for device in devices))

    def known(self, at: Moment) -> bool:
        latest = self._latest
        return latest is not None and at.monotonic - latest[0] <= self._fresh_for_seconds


def refreshing(source_of: Callable[[Machine], HolderSource | None]) -> Callable[[HostRound], None]:
    """Return a reader that refreshes a source, if the machine has it; it produces no samples."""

    def read(round_: HostRound) -> None:
        if (source := source_of(round_.machine)) is not None:
            round_.failures.extend(source.refresh(round_.at))

    return read


def names_of(device: Device, minor: int | None) -> frozenset[str]:
    """All names of the whole GPU with this minor number in the data of schedulers."""
    by_minor = () if minor is None else (dra_name(minor), minor_name(minor))
    return frozenset({device.uuid, index_name(device.index), *by_minor})


class AllocationReader:
    def __init__(self) -> None:
        self._bound = Bound(MOST_ALLOCATIONS, "too_many_holders")
        self._numbered: tuple[Device, int] | None = None

    def read(self, gpu: GpuRound) -> Allocations | None:
        """Holders of a GPU according to the latest data of kubelet and Slurm; empty if it is free, None if unknown.

        Source: nvmlDeviceGetMinorNumber, nvmlDeviceGetMigDeviceHandleByIndex.
        """
        schedulers = [each for each in (gpu.machine.pods, gpu.machine.slurm) if each is not None]
        asked = [each.known(gpu.at) for each in schedulers]
        if not any(asked):
            return None
        instances = read_mig_uuids(gpu.inquiry).values() if mig_mode(gpu.inquiry) else ()
        names = names_of(gpu.inquiry.device, self._minor_number(gpu.inquiry))
        devices = {"": names, **{uuid: frozenset({uuid}) for uuid in instances}}
        found = sorted(
            (uuid, holder)
            for uuid, own in devices.items()
            for holder in frozenset[Holder]().union(*(each.holders(own, gpu.at) for each in schedulers))
        )
        if not found and not all(asked):
            return None  # the scheduler that did not answer may have allocated it
        return self._bound.kept(found, gpu.inquiry.failures)

    def _minor_number(self, inquiry: Inquiry) -> int | None:
        """The minor number, kept as long as the handle once it is known: without it, a GPU that is held looks free."""
        if self._numbered is None or self._numbered[0] is not inquiry.device:
            minor = read_minor_number(inquiry)
            self._numbered = None if minor is None else (inquiry.device, minor)
        return None if self._numbered is None else self._numbered[1]


def render(reading: Allocations | None, gpu: GpuLabels) -> Iterator[Sample]:
    """Yield one sample per allocation, or a single 0 if the GPU is free."""
    for mig_uuid, holder in reading or ():
        yield GPU_ALLOCATED.sample(1, *gpu, mig_uuid, *holder)
    if reading is not None and not reading:
        yield GPU_ALLOCATED.sample(0, *gpu, "", *Holder())


ALLOCATION = GpuCollector(
    about="containers and Slurm jobs that each GPU is allocated to",
    tier=Tier.MEDIUM,
    reader=lambda _config: AllocationReader().read,
    render=render,
)
