"""The seams: all that the program may touch of the machine it runs on, in one frozen bundle.

There are makers for the real host and for a simulated one; nothing else in the program knows which it has.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar, runtime_checkable

Holder_co = TypeVar("Holder_co", covariant=True)

_SET_SECONDS: Final = 1.0
"""A wall clock that jumps by more against the monotonic one was set; less comes from reading one after the other."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on both clocks.

    Attributes:
        monotonic: seconds that never go back; all ages and integrals use these.
        wall: seconds since the Unix epoch; only published, never subtracted. See WallTimes.
    """

    monotonic: float
    wall: float


class WallTimes:
    """Unix seconds of what happened at monotonic seconds, by the wall clock as it is set now.

    They stay the same to the millisecond until the wall clock is set, and then all of them move with it, so that ages
    by this host's clock stay right. Slewing the clock changes nothing: the monotonic clock is slewed with it.
    """

    __slots__ = ("_ahead_seconds",)

    def __init__(self) -> None:
        self._ahead_seconds: float | None = None

    def of(self, monotonic: float, now: Moment) -> float:
        """Unix seconds of a monotonic second."""
        ahead_seconds = now.wall - now.monotonic
        if self._ahead_seconds is None or abs(ahead_seconds - self._ahead_seconds) > _SET_SECONDS:
            self._ahead_seconds = ahead_seconds
        return round(monotonic + self._ahead_seconds, 3)


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> Moment:
        """The present instant."""


@runtime_checkable
class SteppedClock(Clock, Protocol):
    """A clock that stands still until it is advanced."""

    def advance(self, seconds: float) -> None:
        """Move on."""


class RealClock:
    """The kernel's clocks."""

    def now(self) -> Moment:
        """The present instant, from CLOCK_MONOTONIC and CLOCK_REALTIME."""
        return Moment(time.monotonic(), time.time())


class Blocked(BaseException):
    """On a virtual clock, a call that would not return before `until` (monotonic seconds).

    A stand-in driver raises it instead of sleeping, so that a hang of 30 s costs no real time. It derives
    from BaseException so that no reader can mistake it for an answer; only a lane catches it.
    """

    def __init__(self, until: float) -> None:
        super().__init__(until)
        self.until = until


class NvmlLibrary(Protocol):
    """The shared library below pynvml."""

    def load(self) -> object | None:
        """The object whose attributes are NVML's functions; None for the system's libnvidia-ml.so.1."""


class SystemNvml:
    """The host's own libnvidia-ml.so.1, found by the dynamic linker when pynvml first needs it."""

    def load(self) -> None:
        """Leave the loading to pynvml."""
        return


class ProbeReport(NamedTuple):
    """What a new NVML session found.

    Attributes:
        gpus: how many it counts.
        answering: NVML index of each GPU that answered it, by UUID.
        seconds: how long it took to open it and to ask them.
    """

    gpus: int
    answering: Mapping[str, int]
    seconds: float


class Probe(Protocol):
    """Finds out which GPUs answer a new NVML session, without touching the session of this process."""

    def look(self) -> ProbeReport:
        """Open a session elsewhere and ask every GPU; takes a minute at most.

        Raises:
            ProbeFailed: nobody could find out.
        """


class Workload(NamedTuple):
    """A container of a Kubernetes pod, by the names of its manifest; empty for a name that is not known."""

    pod: str
    namespace: str
    container: str


class Holders(Protocol[Holder_co]):
    """Who was given which GPU, as a scheduler last said."""

    def holders(self, devices: Collection[str], at: Moment) -> frozenset[Holder_co]:
        """Holders of any of these devices. Asks nobody; empty if the last answer is too old to be true still.

        Args:
            devices: UUIDs of GPUs and MIG devices, and what `dra_name`, `index_name` and `minor_name` make of numbers.
            at: now.
        """

    def known(self, at: Moment) -> bool:
        """Whether there is an answer that is not too old, so that a device without a holder is free."""


class PodNames(Holders[Workload], Protocol):
    """Which container holds which GPU, as the kubelet last said."""

    def refresh(self, at: Moment) -> None:
        """Ask the kubelet anew; takes as long as its deadline at most.

        Raises:
            HostReadFailed: it does not answer, or not as it should.
        """


class ContainerNames(Protocol):
    """Which container has which id, as the links to containers' logs are named."""

    def refresh(self) -> tuple[str, ...]:
        """List them anew, and return the names of what is wrong with them.

        Raises:
            HostReadFailed: the folder is missing or cannot be listed.
        """

    def workload(self, container_id: str) -> Workload | None:
        """The container with this id, None where it is not known. Reads nothing."""


def dra_name(minor_number: int) -> str:
    """What NVIDIA's DRA driver calls a GPU; a MIG device that it made counts as its GPU."""
    return f"gpu.nvidia.com/gpu-{minor_number}"


class SlurmJob(NamedTuple):
    """A job of Slurm; user and account are empty where unknown."""

    job_id: str
    user: str
    account: str


class SlurmJobs(Holders[SlurmJob], Protocol):
    """Which job of Slurm has which GPU, as its prolog last wrote."""

    def refresh(self, at: Moment, booted_at: float | None) -> tuple[str, ...]:
        """Read the jobs' files anew, and return the names of what is wrong with them.

        Args:
            at: now.
            booted_at: Unix seconds; files from before then are of jobs that the reboot ended. None where unknown.

        Raises:
            HostReadFailed: the folder is missing or cannot be read.
        """


def index_name(index: int) -> str:
    """A GPU by its NVML index."""
    return f"index {index}"


def minor_name(minor_number: int) -> str:
    """A GPU by the number of its device file."""
    return f"minor {minor_number}"


@dataclass(frozen=True, slots=True)
class Machine:
    """The seams of one host.

    Attributes:
        nvml: the NVML library.
        sysfs: root of sysfs (``/sys``).
        procfs: root of procfs (``/proc``).
        kmsg: the kernel log device (``/dev/kmsg``), None where it must not be read.
        clock: where time comes from.
        simulated: whether any of it is made up; published as gpu_exporter_simulated.
        hotplug: whether the kernel's device events concern this machine (only a real ``/sys``).
        pods: who holds the GPUs in Kubernetes' terms; None where no kubelet is to be asked.
        containers: names of Kubernetes' containers; None where they are not to be looked up.
        slurm: who holds them in Slurm's terms; None where no folder of jobs is to be read.
        gpus_given: how many of the host's GPUs this process was given; None where all, or where nobody says.
        incidents: a ledger of incidents from before, as the state directory has one; None without one.
        probe: looks for GPUs that this process's NVML session cannot see; None where nobody can (a recording).
    """

    nvml: NvmlLibrary
    sysfs: Path
    procfs: Path
    kmsg: Path | None
    clock: Clock
    simulated: bool = False
    hotplug: bool = False
    pods: PodNames | None = None
    containers: ContainerNames | None = None
    slurm: SlurmJobs | None = None
    gpus_given: int | None = None
    incidents: Path | None = None
    probe: Probe | None = None


def real_machine(sysfs: Path, procfs: Path, kmsg: Path | None, visible_devices: str = "") -> Machine:
    """The host this process runs on, its file systems at the given roots.

    Args:
        sysfs: root of sysfs.
        procfs: root of procfs.
        kmsg: the kernel log device.
        visible_devices: NVIDIA_VISIBLE_DEVICES, by which a container is given GPUs; "" outside one.
    """
    return Machine(
        nvml=SystemNvml(),
        sysfs=sysfs,
        procfs=procfs,
        kmsg=kmsg,
        clock=RealClock(),
        hotplug=sysfs == Path("/sys"),
        gpus_given=gpus_given(visible_devices),
    )


def gpus_given(visible_devices: str) -> int | None:
    """How many GPUs NVIDIA_VISIBLE_DEVICES names, at least; None where it does not say.

    Indices and UUIDs (``0,1``, ``GPU-…``), or MIG devices of them (``0:1``, ``MIG-…``). ``void`` leaves it to another
    mechanism (CDI). Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/
    """
    names = {name.strip() for name in visible_devices.split(",")} - {""}
    if not names or names & {"all", "void"}:
        return None
    names.discard("none")
    # A MIG device's UUID does not tell its GPU: there is one at least.
    gpus = {name.partition(":")[0] for name in names if not name.startswith("MIG-")}
    return len(gpus) or min(len(names), 1)
