"""The bottleneck of a GPU: the first class that matches, from the top of the playbook's ladder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis import thresholds
from gpu_triage.diagnosis.starvation import mostly_writes, scarce_cpu, scarce_memory, scarce_network, scarce_storage
from gpu_triage.diagnosis.view import GpuView, HostView
from gpu_triage.hardware.xid_codes import CONTAINED_ERROR, DOUBLE_BIT_ERROR, XID_CODES, XidKind

FABRIC_JOINED: Final = 3
FABRIC_UNHEALTHY: Final = 2
DRAIN_AND_RESET: Final = 4
"""The recovery action that can wait until the jobs on the GPU are done."""

LIMITED_CLOCKS: Final = ("sm", "graphics", "memory")
STARVED: Final = frozenset({"memory", "storage", "cpu", "network", "numa"})
"""Classes of GPUs that wait for their host."""

_NOT_BUSY: Final = STARVED | {"hung", "unattributed", "idle"}


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Which resource is scarce first for one GPU.

    Attributes:
        name: the class, a state of gpu_bottleneck.
        because: what was measured.
        unseen: what a short look cannot tell, but would change the class; "" mostly.
    """

    name: str
    because: str
    unseen: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What is remembered of a GPU's work.

    Attributes:
        worked_recently: whether it did any within the last hour.
        resting_seconds: for how long it has done none; None while it works, or where that is not known.
        pace: busy share of the minute before it came to rest; 0 where it never worked.
        recovering: whether it has worked at that pace since a pause that the window still shows.
    """

    worked_recently: bool
    resting_seconds: float | None = None
    pace: float = 0.0
    recovering: bool = False

    @property
    def stopped_seconds(self) -> float:
        """For how long it has rested straight after it worked; 0 while it has not."""
        return (self.resting_seconds or 0.0) if self.pace >= thresholds.WORKED_SHARE else 0.0

    @property
    def paused(self) -> bool:
        """Whether it rests, straight after it worked, no longer than a job does that saves a checkpoint."""
        return 0.0 < self.stopped_seconds < thresholds.HUNG_SECONDS


@dataclass(frozen=True)
class Case:
    """A GPU to be judged: what was measured, what is remembered, and the class it is in so far.

    Attributes:
        gpu, host: as measured.
        work: as remembered.
        current: its class so far; None for one that was never judged.
    """

    gpu: GpuView
    host: HostView
    work: Work
    current: str | None = None

    def ease(self, name: str) -> float:
        """What the thresholds of a class are multiplied by: it takes less to stay in it than to enter it."""
        return thresholds.EASE if self.current == name else 1.0

    @cached_property
    def waiting(self) -> bool:
        """As the playbook says it; never of a MIG parent, which has no busy share to tell by."""
        gpu, share = self.gpu, self.gpu.busy_share
        if share is None or gpu.partitioned or gpu.paced_by_video or self.work.recovering:
            return False
        if not gpu.occupied or (gpu.processes_known and gpu.owner_unseen):
            return False
        starved = self.current in STARVED
        below = thresholds.STILL_WAITING_SHARE if starved else thresholds.WAITING_BELOW_SHARE
        return share < below and (starved or self.work.worked_recently)

    @cached_property
    def storage(self) -> str | None:
        """Why storage is scarce; a checkpoint that is being saved during a pause makes no scarcity."""
        host = self.host.recent
        saving = self.work.paused and mostly_writes(host)
        return None if saving else scarce_storage(host, self.ease("storage"))


Rung = Callable[[Case], str | None]
"""Why a class matches; None when it does not."""


def bottleneck_of(case: Case) -> Bottleneck:
    """The first class that matches; there always is one."""
    if case.host.released:
        return Bottleneck("idle", "released on request", "what it does: the exporter holds no GPU")
    for name, rung in RUNGS.items():
        because = rung(case)
        if because is not None:
            return Bottleneck(name, because, _unseen(name, case))
    return Bottleneck("idle", "no compute process")


def recent_critical_xids(gpu: GpuView) -> Iterator[str]:
    """Codes of the Xids that count as of now, and after which the GPU must not go on."""
    contained = contained_error(gpu)
    for track in gpu.series(catalogue.XID_LAST_TIMESTAMP):
        xid = track.labels["xid"]
        recent = gpu.evidence.wall - track.last <= thresholds.XID_RECENT_SECONDS
        if recent and is_critical(xid, track.labels["fatal"]) and not (contained and xid == str(DOUBLE_BIT_ERROR)):
            yield xid


def contained_error(gpu: GpuView) -> bool:
    """Whether the last uncorrectable memory error was contained: it cost the job that met it, and nothing else."""
    contained_at = gpu.last(catalogue.XID_LAST_TIMESTAMP, xid=str(CONTAINED_ERROR))
    double_bit_at = gpu.last(catalogue.XID_LAST_TIMESTAMP, xid=str(DOUBLE_BIT_ERROR))
    if contained_at is None:
        return False
    return double_bit_at is None or abs(contained_at - double_bit_at) < thresholds.CONTAINED_SECONDS


def recovery_action(gpu: GpuView) -> int:
    """What the driver asks for, a state of gpu_recovery_action; 0 for nothing, and where it is not reported."""
    return int(gpu.last(catalogue.RECOVERY_ACTION) or 0)


def is_critical(xid: str, fatal: str) -> bool:
    """Whether a GPU must not go on after this Xid; `fatal` as the label has it."""
    known = XID_CODES.get(int(xid)) if xid.isdecimal() else None
    return known is not None and known.kind is XidKind.PAGE and fatal != "false"


def fabric_trouble(gpu: GpuView) -> str | None:
    """What is wrong with the GPU's part of the NVSwitch fabric."""
    state, health = gpu.last(catalogue.FABRIC_STATE), gpu.last(catalogue.FABRIC_HEALTH)
    if state is not None and 0 < state < FABRIC_JOINED:
        return "has not joined the NVSwitch fabric"
    return "its part of the NVSwitch fabric is unhealthy" if health == FABRIC_UNHEALTHY else None


def narrow_link(gpu: GpuView) -> str | None:
    """By how many lanes the link is short, if it was for all of the last part of the window."""
    width, expected = gpu.recent.one(catalogue.PCIE_WIDTH), gpu.last(catalogue.PCIE_EXPECTED_WIDTH)
    if width is None or expected is None or width.high >= expected:
        return None
    return f"{width.last:.0f} of {expected:.0f} lanes"


def slow_link(gpu: GpuView) -> str | None:
    """By how many generations the link is short, likewise, at rest or not."""
    generation, expected = gpu.recent.one(catalogue.PCIE_GENERATION), gpu.last(catalogue.PCIE_EXPECTED_GENERATION)
    if generation is None or expected is None or generation.high >= expected:
        return None
    return f"PCIe generation {generation.last:.0f} of {expected:.0f}"


def limited_clock(gpu: GpuView) -> str | None:
    """Which clock somebody set below its default."""
    for clock in LIMITED_CLOCKS:
        target = gpu.last(catalogue.CLOCK_TARGET, clock=clock)
        default = gpu.last(catalogue.CLOCK_DEFAULT, clock=clock)
        if target is not None and default is not None and target < default:
            return f"{clock} clock set to {target / 1e6:.0f} MHz, default {default / 1e6:.0f} MHz"
    return None


def held_idle(gpu: GpuView) -> bool:
    """Whether its memory is held while it rests: hung, if it was busy before."""
    share, power = gpu.busy_share, gpu.power_share
    return (
        gpu.occupied
        and gpu.holds_memory
        and share is not None
        and share < thresholds.HUNG_BUSY_SHARE
        and (power is None or power < thresholds.HUNG_POWER_SHARE)
    )


def _sick(case: Case) -> str | None:
    gpu = case.gpu
    if not gpu.up:
        return f"does not answer ({gpu.label(catalogue.ERROR_INFO, 'error') or 'unknown'})"
    xids = tuple(dict.fromkeys(recent_critical_xids(gpu)))
    if xids:
        return f"Xid {', '.join(xids)} within {thresholds.XID_RECENT_SECONDS / 60:.0f} minutes"
    uncorrected = gpu.last(catalogue.ECC_VOLATILE_ERRORS, severity="uncorrected")
    if uncorrected and not contained_error(gpu):
        return f"{uncorrected:.0f} uncorrected memory errors"
    if gpu.last(catalogue.ROW_REMAP_FAILURE):
        return "a memory row could not be remapped"
    if recovery_action(gpu) not in {0, DRAIN_AND_RESET}:
        return "the driver asks for a recovery action"
    return fabric_trouble(gpu)


def _thermal(case: Case) -> str | None:
    share = max(case.gpu.throttled("hw_thermal"), case.gpu.throttled("sw_thermal"))
    if not case.gpu.loaded or share <= thresholds.THERMAL_SHARE * case.ease("thermal"):
        return None
    return f"throttled for heat {share:.0%} of the time"


def _power_brake(case: Case) -> str | None:
    share = case.gpu.brake_share
    if share <= thresholds.POWER_BRAKE_SHARE * case.ease("power_brake"):
        return None
    return f"braked {share:.0%} of the time"


def _pcie_link(case: Case) -> str | None:
    # Under load for as long as the link was short: a GPU that comes to rest lets its link slow down.
    return (narrow_link(case.gpu) or slow_link(case.gpu)) if case.gpu.recent.loaded else None


def _power_cap(case: Case) -> str | None:
    share = case.gpu.capped_share
    if not case.gpu.capped or share < thresholds.POWER_CAP_CLASS_SHARE * case.ease("power_cap"):
        return None
    return f"at a lowered power limit {share:.0%} of the time"


def _clock_cap(case: Case) -> str | None:
    # Of a GPU that waits or rests, its clocks are not the bottleneck, and must not hide what is.
    return limited_clock(case.gpu) if case.gpu.loaded and not case.waiting else None


def _hung(case: Case) -> str | None:
    seconds = case.work.stopped_seconds
    if seconds < thresholds.HUNG_SECONDS or not held_idle(case.gpu):
        return None
    if case.storage is not None:
        return None  # what everybody waits for is not the job's doing
    return f"no work for {seconds / 60:.0f} minutes, after it was busy {case.work.pace:.0%} of the time"


def _memory(case: Case) -> str | None:
    return scarce_memory(case.host.recent, case.ease("memory")) if case.waiting else None


def _storage(case: Case) -> str | None:
    return case.storage if case.waiting else None


def _cpu(case: Case) -> str | None:
    if not case.waiting:
        return None
    # Saving a checkpoint keeps one CPU busy, and an adapter sending; it neither fills a node nor receives.
    return scarce_cpu(case.host.recent, case.gpu.node, case.ease("cpu"), single=not case.work.paused)


def _network(case: Case) -> str | None:
    if not case.waiting:
        return None
    return scarce_network(case.host.recent, case.ease("network"), receiving=case.work.paused)


def _numa(case: Case) -> str | None:
    remote = case.gpu.last(catalogue.NUMA_MISMATCHED_PROCESSES) or 0
    return f"{remote:.0f} of its processes on the wrong NUMA node" if case.waiting and remote else None


def _communication(case: Case) -> str | None:
    gpu, ease = case.gpu.recent, case.ease("communication")
    busy, power, activity = gpu.kernel_share, gpu.power_share, gpu.one(catalogue.SM_ACTIVE)
    if gpu.partitioned or busy is None or power is None:
        return None
    if busy < thresholds.SPINNING_BUSY_SHARE * ease or power >= thresholds.SPINNING_POWER_SHARE / ease:
        return None
    if activity is not None and activity.mean >= thresholds.SPINNING_SM_ACTIVITY / ease:
        return None
    return f"busy {busy:.0%} of the time at {power:.0%} of its power"


def _compute(case: Case) -> str | None:
    share = case.gpu.busy_share or 0.0
    enough = thresholds.STILL_BUSY_SHARE if case.current == "compute" else thresholds.BUSY_SHARE
    resumed = case.current in _NOT_BUSY and (case.gpu.recent.busy_share or 0.0) >= thresholds.RESUMED_SHARE
    if share < enough and not resumed:
        return None
    return f"busy {share:.0%} of the time, and nothing holds it back"


def _unattributed(case: Case) -> str | None:
    gpu, share = case.gpu, case.gpu.busy_share
    if not gpu.was_read:
        return "not read yet"
    if not gpu.occupied:
        return None
    if share is None:
        return "a compute process, busy share not known"
    owner = ", by a process that the driver does not list" if gpu.owner_unseen else ""
    return f"busy {share:.0%} of the time{owner}, no cause seen"


RUNGS: Final[Mapping[str, Rung]] = MappingProxyType(
    {
        "sick": _sick,
        "thermal": _thermal,
        "power_brake": _power_brake,
        "pcie_link": _pcie_link,
        "power_cap": _power_cap,
        "clock_cap": _clock_cap,
        "hung": _hung,
        "memory": _memory,
        "storage": _storage,
        "cpu": _cpu,
        "network": _network,
        "numa": _numa,
        "communication": _communication,
        "compute": _compute,
        "unattributed": _unattributed,
    }
)
"""The classes in the order of their ranks, but for the last, idle, which needs no reason."""


def _unseen(name: str, case: Case) -> str:
    if name != "unattributed" or case.work.worked_recently:
        return ""
    if held_idle(case.gpu):
        return "hung, if it was busy before: that was not seen"
    share = case.gpu.busy_share
    if share is not None and share < thresholds.WORKING_SHARE:
        return "whether it worked before, and waits now, was not seen"
    return ""
