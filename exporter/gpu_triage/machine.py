"""The seams between the program and the machine it runs on, in one frozen bundle.

One function creates it for the real host, another for a simulated one; nothing else sees the difference.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol, runtime_checkable

_SET_SECONDS: Final = 1.0
"""If wall and monotonic clock diverge by more, the wall clock was set; less is due to reading them in sequence."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment, in monotonic and wall-clock seconds."""

    monotonic: float  # seconds that never go back; used for all ages and integrals
    wall: float  # Unix seconds; only published, never subtracted. See WallTimes.


class WallTimes:
    """Converts monotonic seconds to Unix seconds, using the wall clock's present setting.

    Results are stable to the millisecond until the wall clock is set; then all of them shift with it, so that ages by
    this host's clock stay correct. Slewing doesn't matter, because it affects both clocks.
    """

    __slots__ = ("_ahead_seconds",)

    def __init__(self) -> None:
        self._ahead_seconds: float | None = None

    def of(self, monotonic: float, now: Moment) -> float:
        """The Unix seconds for a monotonic time."""
        ahead_seconds = now.wall - now.monotonic
        if self._ahead_seconds is None or abs(ahead_seconds - self._ahead_seconds) > _SET_SECONDS:
            self._ahead_seconds = ahead_seconds
        return round(monotonic + self._ahead_seconds, 3)


class Clock(Protocol):
    def now(self) -> Moment: ...


@runtime_checkable
class SteppedClock(Clock, Protocol):
    """A clock that moves only when advanced."""

    def advance(self, seconds: float) -> None: ...


class RealClock:
    def now(self) -> Moment:
        return Moment(time.monotonic(), time.time())


class CallBlocked(BaseException):
    """On a virtual clock: a call that would not return before `until` (monotonic seconds).

    A simulated driver raises it instead of sleeping, so that a hang of 30 s takes no real time. It derives from
    BaseException, so that no reader catches it by accident; only a lane does.
    """

    def __init__(self, until: float) -> None:
        super().__init__(until)
        self.until = until


class NvmlLibrary(Protocol):
    """The shared library underneath pynvml."""

    def load(self) -> object | None:
        """An object with NVML's functions as attributes; None for the system's libnvidia-ml.so.1."""


class SystemNvml:
    """The host's own libnvidia-ml.so.1, loaded through the dynamic linker when pynvml first needs it."""

    def load(self) -> None:
        return


class ProbeReport(NamedTuple):
    gpus: int  # device count
    answering: Mapping[str, int]  # NVML index of each GPU that answers, by UUID
    seconds: float  # how long opening the session and querying the GPUs took


class Probe(Protocol):
    """Determines which GPUs answer a new NVML session, without touching the session of this process."""

    def look(self) -> ProbeReport:
        """Query every GPU in another process's session, for up to a minute. Raises ProbeFailed if that fails."""


class Holder(NamedTuple):
    """A container of a pod, or a Slurm job, that holds a GPU; what does not apply, or is unknown, is ""."""

    pod: str = ""
    namespace: str = ""
    container: str = ""
    slurm_job_id: str = ""
    user: str = ""  # like account, of the Slurm job
    account: str = ""


class HolderSource(Protocol):
    """Which container or job holds which GPU, or has which container ID: the kubelet, its links to logs, Slurm's files.

    Devices are UUIDs of GPUs and MIG devices, names from `dra_name`, `index_name` and `minor_name`, or container IDs.
    """

    def refresh(self, at: Moment) -> tuple[str, ...]:
        """Query it, which blocks up to a deadline; return the names of the problems found.

        Raises HostReadFailed without a valid response.
        """

    def holders(self, devices: Collection[str], at: Moment) -> frozenset[Holder]:
        """Holders of any of these devices, from cached data; empty if that is too old."""

    def known(self, at: Moment) -> bool:
        """Whether there is recent data, so that a device without a holder is known to be free."""


def dra_name(minor_number: int) -> str:
    """The name of a GPU in NVIDIA's DRA driver; a MIG device created by it counts as its GPU."""
    return f"gpu.nvidia.com/gpu-{minor_number}"


def index_name(index: int) -> str:
    """The name of a GPU by NVML index."""
    return f"index {index}"


def minor_name(minor_number: int) -> str:
    """The name of a GPU by the minor number of its device file."""
    return f"minor {minor_number}"


@dataclass(frozen=True, slots=True)
class Machine:
    """The seams of one host."""

    nvml: NvmlLibrary  # the NVML library
    sysfs: Path  # root of sysfs (``/sys``)
    procfs: Path  # root of procfs (``/proc``)
    kmsg: Path | None  # the kernel log device (``/dev/kmsg``); None if it must not be read
    clock: Clock  # source of time
    hotplug: bool = False  # whether the kernel's device events apply to this machine (only with a real ``/sys``)
    pods: HolderSource | None = None  # which Kubernetes containers hold GPUs; None if no kubelet is configured
    containers: HolderSource | None = None  # Kubernetes containers by id; None if not configured
    slurm: HolderSource | None = None  # which Slurm jobs hold GPUs; None if no folder of job files is configured
    gpus_given: int | None = None  # how many of the host's GPUs this process may use; None if all, or if unknown
    # detects GPUs that this process's NVML session can't see; None if unavailable (a recording)
    probe: Probe | None = None


def real_machine(sysfs: Path, procfs: Path, kmsg: Path | None, visible_devices: str = "") -> Machine:
    """The host this process runs on; `visible_devices` is NVIDIA_VISIBLE_DEVICES, "" outside a container."""
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
    """The minimum number of GPUs listed in NVIDIA_VISIBLE_DEVICES; None if it doesn't list any.

    It holds indices or UUIDs (``0,1``, ``GPU-…``), or MIG devices (``0:1``, ``MIG-…``). ``void`` leaves it to another
    mechanism (CDI). Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/
    """
    names = {name.strip() for name in visible_devices.split(",")} - {""}
    if not names or names & {"all", "void"}:
        return None
    names.discard("none")
    # The UUID of a MIG device doesn't identify its GPU, so count at least one.
    gpus = {name.partition(":")[0] for name in names if not name.startswith("MIG-")}
    return len(gpus) or min(len(names), 1)
