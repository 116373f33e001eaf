"""A GPU's work, and its bottleneck: the first class that matches, in the playbook's order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import AT_THAT_MOMENT, GpuEvidence, Slowdown
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.limited_jobs import LimitedJob, full_thread, limited_job, stalls, waits_for_storage
from gpu_triage.judge.evidence.owners import idle_for_a_reason, is_explained, owners_of, ranks_of, saves
from gpu_triage.judge.evidence.pcie_paths import Shortage, full_link, traffic_known
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.read.exporter.judgment import GPU_COMPUTE_BOUND
from gpu_triage.read.gpu import activity
from gpu_triage.read.gpu.ecc import GPU_MEMORY_UNREPAIRABLE, GPU_ROW_REMAP_FAILURE
from gpu_triage.read.gpu.mig import GPU_MIG_SM_ACTIVE_RATIO
from gpu_triage.read.gpu.modes import DRAIN_AND_RESET
from gpu_triage.read.host.infiniband import GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL
from gpu_triage.read.metrics.contract import known
from gpu_triage.read.processes.on_gpu import GPU_NUMA_MISMATCHED_PROCESSES, GPU_PROCESS_INFO
from gpu_triage.read.processes.vitals import GPU_PROCESS_START_TIMESTAMP_SECONDS


class Work:
    def __init__(self) -> None:
        self.worked_recently = False  # its present processes did, within the last hour
        self.starting_seconds = 0.0  # how long its processes are known not to have worked since they began; else 0
        self.others_began = False  # whether other processes began since the last call
        self.pace = 0.0  # busy share of the minute before it became idle; 0 if it never worked
        self.stopped_seconds = 0.0  # how long it has been idle directly after working; 0 if it is not
        self.recovering = False  # whether it resumed at its pace after a pause that is still in the window
        self._worked_at: float | None = None
        # When each of the last job's began, by PID, None if unknown; empty before the first, None if that is unknown.
        self._processes: Mapping[str, float | None] | None = None
        self._began_at: float | None = None  # when its processes began, if they have not worked since
        self._rests_since: float | None = None
        self._resumed_at: float | None = None
        self._worked_seconds = 0.0
        self._read: tuple[float, float] | None = None  # observed seconds (or time), and the counter

    @property
    def paused(self) -> bool:
        """Whether it is idle directly after working, no longer than a job that saves a checkpoint."""
        return 0.0 < self.stopped_seconds < thresholds.HUNG_SECONDS

    def note(self, gpu: GpuEvidence, now: float) -> None:
        """Add what was read since the last call."""
        window_share = gpu.busy_share or 0.0
        self._note_start(gpu, now)
        if self._began_at is None and window_share >= thresholds.WORKING_SHARE:
            self._worked_at = now
        if (news := self._news(gpu)) is not None:
            self._take(*news)
        self.recovering = self._recovers(now)
        if self._rests_since is None and not self.recovering and not gpu.unobserved:
            self.pace = window_share
        self.worked_recently = self._worked_at is not None and now - self._worked_at <= thresholds.WORKED_SECONDS
        worked = self._began_at is None and self.pace >= thresholds.WORKED_SHARE
        self.stopped_seconds = now - self._rests_since if worked and self._rests_since is not None else 0.0

    def _note_start(self, gpu: GpuEvidence, now: float) -> None:
        """Note when other processes begin, and when they work: they may load for long, whatever the last ones did."""
        starts = {each.labels["pid"]: each.last for each in gpu.series(GPU_PROCESS_START_TIMESTAMP_SECONDS)}
        processes = {labels["pid"]: starts.get(labels["pid"]) for labels in gpu.labels_of(GPU_PROCESS_INFO)}
        self.others_began = self._processes is not None and bool(processes) and not self._goes_on(processes)
        if self.others_began:
            self._began_at, self._worked_at = now, None
        if processes or (self._processes is None and gpu.deserted):
            self._processes = processes
        seconds = 0.0 if self._began_at is None else now - self._began_at
        if seconds >= thresholds.RECENT_SECONDS and (gpu.recent.busy_share or 0.0) >= thresholds.WORKING_SHARE:
            self._began_at, seconds = None, 0.0
        self.starting_seconds = seconds

    def _goes_on(self, processes: Mapping[str, float | None]) -> bool:
        """Whether one of them was there before: a PID is used again, by another process that began at another time."""
        before = self._processes or {}
        both = [(before[pid], began) for pid, began in processes.items() if pid in before]
        return any(None in pair or pair[0] == pair[1] for pair in both)

    def _take(self, share: float, began_at: float, ended_at: float) -> None:
        if share < thresholds.WORKING_SHARE:
            if self._rests_since is None:
                self._rests_since = began_at
            return
        if self._rests_since is not None:
            paused_seconds, self._rests_since = began_at - self._rests_since, None
            if paused_seconds >= thresholds.PAUSE_SECONDS:
                # Pauses in quick succession do not count: something keeps the job waiting.
                alone = self._resumed_at is None or began_at - self._resumed_at > thresholds.PAUSES_APART_SECONDS
                self._resumed_at, self._worked_seconds = (began_at if alone else None), 0.0
        self._worked_seconds += share * (ended_at - began_at)

    def _recovers(self, now: float) -> bool:
        if self._resumed_at is None or self.pace < thresholds.WORKED_SHARE:
            return False
        seconds = now - self._resumed_at
        at_pace = self._worked_seconds >= thresholds.SAME_PACE * self.pace * seconds
        return seconds < thresholds.WINDOW_SECONDS and (at_pace or seconds < thresholds.RECENT_SECONDS)

    def _news(self, gpu: GpuEvidence) -> tuple[float, float, float] | None:
        """Return the share of time in which it worked, and from when to when, since the last reading that showed it.

        Time that was not observed is left out: the rest of it is what came last.
        """
        busy, observed = gpu.one(activity.GPU_BUSY_SECONDS_TOTAL), gpu.one(activity.GPU_OBSERVED_SECONDS_TOTAL)
        # Without a counter, as under MIG, use the busiest instance's activity for the time since then.
        instance = max(gpu.series(GPU_MIG_SM_ACTIVE_RATIO), key=lambda each: each.last, default=None)
        series, before = busy or instance, self._read
        if series is None:
            self._read = None
            return None
        at = series.last_at if busy is None or observed is None else observed.last
        if before is not None and at == before[0]:
            return None
        self._read = (at, series.last)
        if before is None or at < before[0]:
            return None
        video = (
            gpu.last(activity.GPU_ENCODER_UTILIZATION_RATIO) or 0.0,
            gpu.last(activity.GPU_DECODER_UTILIZATION_RATIO) or 0.0,
        )
        seconds = at - before[0]
        kernels = series.last if busy is None else (series.last - before[1]) / seconds
        return max(kernels, *video), series.last_at - seconds, series.last_at


_SHOWN_BY_SNAPSHOTS: Final = frozenset({"sick", "thermal", "power_brake", "pcie_link", "power_cap", "clock_cap"})
"""Classes based on states, or on the driver's own time counters at two points in time."""

NOT_IN_A_MOMENT: Final = frozenset({"work.low_power", "work.held_idle", "work.hung", "clock.straggler"})
"""Findings based on what a GPU did over some time, so snapshots cannot show them."""

USE_UNKNOWN: Final = "processes not in these files"
"""Shown as unseen if the files contain neither the GPU's processes nor its utilization."""

STARVED: Final = frozenset({"memory", "storage", "cpu", "network", "numa"})  # classes of GPUs waiting for their host
_STRONG: Final = {"thermal": 3.0, "power_brake": 3.0, "power_cap": 1.6}
"""Factors on the shares of time that these classes take over a window, to be sure within seconds."""
_NOT_BUSY: Final = STARVED | {"hung", "unattributed", "idle"}


_PIPES: Final = {
    "tensor cores": activity.GPU_TENSOR_ACTIVE_RATIO,
    "FP64 units": activity.GPU_FP64_ACTIVE_RATIO,
    "FP32 units": activity.GPU_FP32_ACTIVE_RATIO,
    "FP16 units": activity.GPU_FP16_ACTIVE_RATIO,
}
"""Where an SM does arithmetic. Only the tensor cores have to be reported."""

_BOUNDS: Final = {
    "neither": "neither compute- nor memory-bound",
    "compute": "compute-bound",
    "memory": "memory-bound",
    "both": "compute- and memory-bound",
}


class Bound(NamedTuple):
    """Averages over the window, 0-1, of the busiest pipe and of the memory bandwidth in use."""

    pipe: str
    pipe_ratio: float
    memory_ratio: float

    @property
    def name(self) -> str:
        """A state of gpu_compute_bound."""
        arithmetic = self.pipe_ratio >= thresholds.ARITHMETIC_BOUND_SHARE
        memory = self.memory_ratio >= thresholds.MEMORY_BOUND_SHARE
        return GPU_COMPUTE_BOUND.states[arithmetic + 2 * memory]

    @property
    def text(self) -> str:
        """The bound in words, with what was measured."""
        arithmetic = f"{self.pipe} {self.pipe_ratio:.0%} active"
        memory = f"{self.memory_ratio:.0%} of memory bandwidth"
        measured = (memory, arithmetic) if self.name == "memory" else (arithmetic, memory)
        return f"{_BOUNDS[self.name]}: {', '.join(measured)}"


class Bottleneck(NamedTuple):
    """The scarcest resource of a GPU: a state of gpu_bottleneck, and what was measured."""

    name: str
    because: str
    unseen: str = ""  # what was not observed for long enough and might change the class; usually ""
    limit: LimitedJob | None = None  # of its own job, if that makes it wait in class memory or cpu
    bound: Bound | None = None  # what bounds the kernels; only in class compute, and if the GPU reports it
    stopped_seconds: float = 0.0  # how long it has been idle directly after working; 0 if it is not
    starting_seconds: float = 0.0  # how long its processes are known not to have worked since they began; else 0
    spinning_seconds: float = 0.0  # how long it has been in class communication; 0 if it is not
    spins_after_work: bool = False  # whether it worked before that, within the last hour
    loss: float | None = None  # how far its busy share is below the usual one of its job; None if unknown, or a pause
    # share of `CLASS_SECONDS` in each class; empty until enough was observed
    lately: Mapping[str, float] = MappingProxyType({})


UNHINDERED: Final = ", and nothing holds it back"
"""End of a reason, to be left out beside a finding."""

Bottlenecks = Mapping[GpuEvidence, Bottleneck]


@dataclass(frozen=True)
class Case:
    """A GPU to be judged, and its class, or None; `soon` is by the last `SOON_SECONDS`, which have to be strong."""

    gpu: GpuEvidence
    host: HostEvidence
    work: Work
    current: str | None = None
    soon: bool = False

    def ease(self, name: str) -> float:
        """Return the factor on a class's thresholds: staying in a class takes less than entering it (hysteresis)."""
        if self.current == name:
            return thresholds.EASE
        return _STRONG.get(name, 1.0) if self.soon else 1.0

    @cached_property
    def pauses(self) -> bool:
        """Whether its job is idle directly after working, or has just resumed at its pace."""
        return (self.work.paused and self.gpu.occupied) or self.work.recovering

    @cached_property
    def waiting(self) -> bool:
        """Waiting as the playbook defines it; never true for a MIG parent, which has no busy share."""
        gpu, share = self.gpu, self.gpu.busy_share
        if share is None or gpu.partitioned or self.work.recovering:
            return False
        video = gpu.recent.video_share or 0.0
        if video >= thresholds.WORKING_SHARE and video > (gpu.recent.kernel_share or 0.0):
            return False  # it encodes or decodes at the speed of its streams
        if not gpu.occupied or (gpu.processes_known and gpu.owner_unseen):
            return False
        most = thresholds.STILL_OWN_STALL_SHARE if self.current in STARVED else thresholds.OWN_STALL_SHARE
        return self.host_counts or (share < most and bool(self.stalls))

    @cached_property
    def host_counts(self) -> bool:
        """Whether what its whole host lacks may be what it waits for; else only what its own job stalls for."""
        if self.gpu.held_idle and self.gpu.may_wait_for:
            return False
        starved = self.current in STARVED
        below = thresholds.SOON_WAITING_SHARE if self.soon else thresholds.WAITING_BELOW_SHARE
        below = thresholds.STILL_WAITING_SHARE if starved else below
        return (self.gpu.busy_share or 0.0) < below and (starved or self.work.worked_recently)

    @cached_property
    def stalls(self) -> Mapping[str, str]:
        """What its own job stalls for, by class; full CPUs count if it works at all, else it may not have begun."""
        gpu, ease = self.gpu.recent, self.ease
        began = self.work.worked_recently or (self.gpu.busy_share or 0.0) >= thresholds.WORKING_SHARE
        limited = {name: limit and limit.because for name, limit in self.limits.items()}
        found = {
            "memory": limited["memory"] or stalls(gpu, "memory", ease("memory")),
            "storage": waits_for_storage(gpu, ease("storage")) or stalls(gpu, "storage", ease("storage")),
            "cpu": (limited["cpu"] or full_thread(gpu, ease("cpu"))) if began else None,
        }
        return known(found)

    @cached_property
    def talks(self) -> bool:
        """Whether it has a peer to wait for, here or, by RDMA traffic if no other job has a GPU here, elsewhere."""
        others = any(other.occupied for other in self.host.answering if other.key != self.gpu.key)
        if others:
            return any(rank.key != self.gpu.key for rank in ranks_of(self.host, self.gpu))
        sent = self.host.rate(GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL) or 0.0
        return sent >= thresholds.TALKING_BYTES_PER_SECOND

    @cached_property
    def video(self) -> str:
        """How busy its video engines are, if one of them is what makes it busy; else ""."""
        if (self.gpu.video_share or 0.0) < thresholds.STILL_BUSY_SHARE:
            return ""
        return " and ".join(f"{name} {share:.0%} active" for name, share in self.gpu.video_shares.items() if share)

    @cached_property
    def bound(self) -> Bound | None:
        """What bounds the kernels, if they are its work; None during a pause, when the window has little of them."""
        return None if self.video or self.work.paused or self.work.recovering else bound_of(self.gpu)

    @cached_property
    def limits(self) -> Mapping[str, LimitedJob | None]:
        """Jobs on it that their own limits slow down, by the class that this is."""
        return {name: limited_job(name, self.gpu.recent, self.ease(name)) for name in ("memory", "cpu")}

    @cached_property
    def saves(self) -> bool:
        """Whether it pauses to save a checkpoint; if what its job writes is unknown, the host counts."""
        recent = self.host.recent
        own = saves(recent, self.gpu) if self.work.paused else False
        return recent.mostly_writes() if own is None else own

    @cached_property
    def storage(self) -> str | None:
        """Why storage is scarce; None also while a paused job saves a checkpoint."""
        return None if self.saves else self.host.recent.scarce_storage(self.ease("storage"), waiting=self.gpu.recent)


def bottleneck_of(case: Case) -> Bottleneck:
    """Return the first class that matches; one always does."""
    if case.host.released:
        return Bottleneck("idle", "released on request", "what it does: the exporter holds no GPU")
    name, because = next((name, because) for name, because in _classes(case) if because is not None)
    unseen = _unseen(case) if name == "unattributed" else ""
    limit = case.limits.get(name) if case.waiting else None
    return Bottleneck(name, because, unseen, limit, case.bound if name == "compute" else None)


def _classes(case: Case) -> Iterator[tuple[str, str | None]]:
    """Yield the classes in order of rank, each with the reason it matches; None if it does not."""
    gpu, host, ease = case.gpu, case.host.recent, case.ease
    yield "sick", _sickness(gpu)
    yield "idle", "no compute process" if gpu.deserted and gpu.was_read else None
    yield "unattributed", gpu.unobserved or None
    hw_heat, sw_heat, brake, slowdown, cap = gpu.slowdowns
    yield "thermal", _slowed(gpu, (hw_heat, sw_heat), ease("thermal"), "throttled for heat")
    yield "power_brake", _slowed(gpu, (brake, slowdown), ease("power_brake"), "braked")
    # Only under load throughout the same period: an idle GPU lowers its link speed.
    yield "pcie_link", _full_uplink(case) or full_link(gpu.recent, ease("pcie_link"))
    yield "power_cap", _power_cap_reason(gpu, cap, ease("power_cap"))
    # While a GPU waits or is idle, its clocks are not the bottleneck and must not hide the real one.
    limited = case.host.limited_clocks.get(gpu) if gpu.loaded and not case.waiting else None
    yield "clock_cap", limited and limited.text
    yield "hung", _hung(case)
    if case.waiting and not case.host_counts:
        yield from () if case.saves else case.stalls.items()
    elif case.waiting:
        limit = case.limits["memory"]
        yield "memory", limit.because if limit else host.scarce_memory(ease("memory"), waiting=gpu.recent)
        yield "storage", case.storage
        # Saving a checkpoint keeps one CPU busy and an adapter sending; it neither saturates a node nor receives.
        limit = case.limits["cpu"]
        full_cpus = host.scarce_cpu_of(gpu.recent, ease("cpu"), single=not case.work.paused)
        yield "cpu", limit.because if limit else full_cpus
        full = host.scarce_network(ease("network"), receiving=case.work.paused)
        yield "network", full or "; ".join(host.network_losses(ease("network"))) or None
        remote = gpu.last(GPU_NUMA_MISMATCHED_PROCESSES) or 0
        yield "numa", f"{remote:.0f} of its processes on the wrong NUMA node" if remote else None
    yield "pcie_link", _narrow(case)
    yield "communication", _communication(case)
    yield "compute", _compute(case)
    yield "unattributed", _unattributed(case)
    yield "idle", "no compute process" if gpu.processes_known else "no work seen; its processes are not known"


def _sickness(gpu: GpuEvidence) -> str | None:
    if not gpu.up:
        return gpu.no_answer
    if xids := gpu.recent_critical_xids:
        return f"Xid {', '.join(xids)} within {thresholds.XID_RECENT_SECONDS / 60:.0f} minutes"
    uncorrected = gpu.uncorrected_errors
    if uncorrected and not gpu.contained_error:
        return f"{uncorrected:.0f} uncorrected memory errors"
    if gpu.last(GPU_ROW_REMAP_FAILURE) or gpu.last(GPU_MEMORY_UNREPAIRABLE):
        return "bad memory could not be repaired"
    if gpu.recovery_action not in (0, DRAIN_AND_RESET):
        return "the driver asks for a recovery action"
    return gpu.fabric_trouble


def _full_uplink(case: Case) -> str | None:
    """Describe the uplink above a GPU that is full and slower than it could be, or None."""
    full = (each for each in case.host.short_uplinks if each.full and case.gpu in each.gpus)
    return next((f"uplink of switch {each.labels['bridge']} short of bandwidth: {each.full}" for each in full), None)


def _narrow(case: Case) -> str | None:
    """Describe what the link lacks under load, if its traffic is not reported; None if the board is built so."""
    if not case.gpu.recent.loaded or traffic_known(case.gpu):
        return None
    missing = case.host.missing_lanes.get(case.gpu)
    lacks = None if missing is None or missing.kind is Shortage.BUILT else missing.text
    slow = case.gpu.slow_link
    lacks = lacks or (slow and f"PCIe generation {slow}")
    return lacks and f"{lacks}; how much it carries is not known"


def _slowed(gpu: GpuEvidence, slowdowns: Sequence[Slowdown], ease: float, words: str) -> str | None:
    """Describe several slowdowns as one, by the limit of the first: a finding of the others may take more."""
    least = gpu.limit(slowdowns[0].code, "share") * ease
    shares = [each.share for each in slowdowns if each.observed and each.share > least]
    if shares:
        return f"{words} {max(shares):.0%} of the time"
    return next((f"{each.reason} {each.uncounted.lasted}" for each in slowdowns if each.uncounted), None)


def _power_cap_reason(gpu: GpuEvidence, cap: Slowdown, ease: float) -> str | None:
    if not gpu.capped:
        return None
    if cap.share >= thresholds.POWER_CAP_CLASS_SHARE * ease:
        return f"at a lowered power limit {cap.share:.0%} of the time"
    return None if cap.uncounted is None else f"at a lowered power limit {cap.uncounted.lasted}"


def _hung(case: Case) -> str | None:
    seconds = case.work.stopped_seconds
    if seconds < thresholds.HUNG_SECONDS or not case.gpu.held_idle:
        return None
    # If storage is slow, that is to blame, and not the job.
    if case.storage is not None or is_explained(case.host.recent, case.gpu, seconds):
        return None
    return f"no work for {seconds / 60:.0f} minutes, after it was busy {case.work.pace:.0%} of the time"


def _communication(case: Case) -> str | None:
    spins = _spins(case.gpu.recent, case.ease("communication"))
    if spins is None or (case.current != "communication" and not case.talks):
        return None
    return f"{spins}{_waited_for(case)}"


def _waited_for(case: Case) -> str:
    """Name the GPUs of its job, not just of its user, that do not spin, unless they are most of it; "" if none."""
    if not any(owner.pod or owner.slurm_job_id for owner in owners_of(case.gpu)):
        return ""
    job = ranks_of(case.host, case.gpu)
    others = [gpu for gpu in job if gpu.busy_share is not None and _spins(gpu.recent, thresholds.EASE) is None]
    known = others and len(others) <= len(job) / 2
    return f", waiting for GPU {ranges(gpu.gpu for gpu in others)} of its job" if known else ""


def _spins(gpu: GpuEvidence, ease: float) -> str | None:
    """Describe a GPU with kernels all the time that hardly do anything; None if it works or rests, or if unknown."""
    busy, drawn, sms = gpu.kernel_share, gpu.power_share, gpu.one(activity.GPU_SM_ACTIVE_RATIO)
    if gpu.partitioned or busy is None or drawn is None:
        return None
    if gpu.memory_activity is None or gpu.memory_activity >= thresholds.SPINNING_MEMORY_SHARE / ease:
        return None
    if busy < thresholds.SPINNING_BUSY_SHARE * ease or drawn >= thresholds.SPINNING_POWER_SHARE / ease:
        return None
    if sms is not None and sms.mean >= thresholds.SPINNING_SM_ACTIVITY / ease:
        return None
    return f"busy {busy:.0%} of the time at {drawn:.0%} of its power"


def _compute(case: Case) -> str | None:
    recent = case.gpu.recent.busy_share or 0.0
    stays, resumed = case.current == "compute", case.current in _NOT_BUSY and recent >= thresholds.RESUMED_SHARE
    share = recent if stays or resumed else case.gpu.busy_share or 0.0
    enough = thresholds.STILL_BUSY_SHARE if stays else thresholds.BUSY_SHARE
    if share < (thresholds.RESUMED_SHARE if case.soon else enough) and not resumed:
        return None
    lesser, clock = case.host.lesser_slots.get(case.gpu), case.gpu.held_clock
    slot = f"and its slot gives {lesser.gives.text}, less than others" if lesser else ""
    work = case.video or (case.bound.text if case.bound else "")
    said = [each for each in (_busy(case.gpu, share), work, clock, slot) if each]
    # Nothing is seen, and clocks were looked at.
    return ", ".join(said) + (UNHINDERED if len(said) == 1 and clock is not None else "")


def _busy(gpu: GpuEvidence, share: float) -> str:
    """Describe a busy share; of a GPU in MIG mode, only its instances' activity is known."""
    return f"{'SMs of its busiest MIG instance active' if gpu.partitioned else 'busy'} {share:.0%} of the time"


def _unattributed(case: Case) -> str | None:
    gpu = case.gpu
    if not gpu.was_read:
        return "not read yet"
    if not gpu.occupied:
        return None
    if gpu.busy_share is None:
        return "a compute process, busy share not known"
    owner = ", by a process that the driver does not list" if gpu.owner_unseen else ""
    saving = case.work.stopped_seconds and saves(case.host.recent, gpu)
    reason = idle_for_a_reason(case.host.recent, gpu) if gpu.held_idle else ""
    unknown = "whether they wait is not known" if gpu.partitioned else reason or "no cause seen"
    return f"{_busy(gpu, gpu.busy_share)}{owner}, {'its job writes' if saving else unknown}"


def _unseen(case: Case) -> str:
    if case.work.worked_recently or case.work.starting_seconds or case.gpu.may_wait_for:
        return ""
    if case.gpu.held_idle:
        return "hung, if it was busy before: not observed"
    share = case.gpu.busy_share
    if share is not None and share < thresholds.WORKING_SHARE:
        return "whether it worked before, and waits now, was not seen"
    return ""


def bound_of(gpu: GpuEvidence) -> Bound | None:
    """Determine the bound; None if the GPU does not report it, as before Hopper and in MIG mode."""
    means = {pipe: series.mean for pipe, spec in _PIPES.items() if (series := gpu.one(spec))}
    memory = gpu.one(activity.GPU_DRAM_ACTIVE_RATIO)
    if memory is None or "tensor cores" not in means:
        return None
    pipe = max(means, key=means.__getitem__)
    return Bound(pipe, means[pipe], memory.mean)


def in_a_moment(bottleneck: Bottleneck, gpu: GpuEvidence) -> Bottleneck:
    """Return the bottleneck if snapshots can show it, otherwise unattributed."""
    if bottleneck.name in _SHOWN_BY_SNAPSHOTS or (bottleneck.name == "idle" and gpu.processes_known):
        return bottleneck
    utilization = gpu.one(activity.GPU_SM_UTILIZATION_RATIO)
    if bottleneck.name in STARVED and utilization is not None and utilization.seconds > 0:
        return bottleneck  # dmon watched how it works, and other tools what its host lacks
    reasons, share = gpu.active_reasons, gpu.over(0.0).busy_share
    held = f"held by {', '.join(reasons)} {AT_THAT_MOMENT}" if reasons else ""
    busy = "" if share is None else f"{share:.0%} busy {AT_THAT_MOMENT}"
    said = ", ".join(part for part in (busy, held) if part)
    if bottleneck.name == "idle" or (share is None and not gpu.processes_known):
        nothing, unread = f"no throttle reason active {AT_THAT_MOMENT}", "throttle reasons not in these files"
        return Bottleneck("unattributed", said or (unread if reasons is None else nothing), USE_UNKNOWN)
    holds = "a compute process" if gpu.compute_processes else "no compute process"
    return Bottleneck("unattributed", said if busy else f"{holds}{held and ', '}{held}", "duration unknown")
