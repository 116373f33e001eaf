"""Twenty hosts of ten kinds on which nothing is wrong, as scenarios that last for days.

What is random follows what others have measured, and none of our thresholds: work varies by orders of magnitude, and
idle GPUs are the rule. Jobs of the Philly traces are idle for 49 % of their minutes if they are shorter than six hours,
and for 25 % beyond a day, 65 % of it in their middle; GPUs of Alibaba's PAI are busy for 10.5 % on average and 1.5 % in
the median; jobs of Helios last for 206 s in the median and 6,652 s on average (arXiv:2109.01313); OPT-175B was
restarted 53 times in 56 days; checkpoints come every half hour to hour and take half a minute to save. The room, links
and ECC are ordinary too: few boards have corrected errors, and those have them in bursts.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpu_triage_simulator.allocation import Pod
from gpu_triage_simulator.effect_kinds import GPU_EFFECTS
from gpu_triage_simulator.effects import Ambient, EccErrors, Mig, MigInstance, PcieErrors
from gpu_triage_simulator.host_effects import Cpu, Disk, DriverVersion, Kill, Nfs, Pressure, Start
from gpu_triage_simulator.job import Episode, Job, Rank, Trouble
from gpu_triage_simulator.load import Load
from gpu_triage_simulator.model import load_model
from gpu_triage_simulator.observer_effects import ExporterDown, ExporterRestart, Reboot, ScrapeGap
from gpu_triage_simulator.replacement import identity
from gpu_triage_simulator.scenario import (
    DiskDevice,
    Driver,
    Event,
    Gpu,
    NfsMount,
    Nic,
    Node,
    Process,
    Scenario,
    ScenarioHost,
    Slot,
)
from gpu_triage_simulator.scenario_file import coupled

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
DISK, MOUNT, LAN = "nvme0n1", "/mnt/datasets", "eno1"
FIRST_PID: Final = 4000
_IDLE_AWAKE: Final = Load(utilization=0.0, memory_utilization=0.0)
_ON_GPUS: Final = frozenset(GPU_EFFECTS.values())


@dataclass(slots=True)
class Course:
    """What happens to one host, which has one GPU: every other one costs as much time again."""

    chance: random.Random
    ends: float  # seconds
    events: list[Event] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)

    def during(self, at: float, seconds: float, *effects: Any) -> float:
        """Let effects begin at a time and last so long; returns their end."""
        begins, until = int(at), max(int(at) + 1, int(at + seconds))
        for effect in effects:
            gpus = (0,) if type(effect) in _ON_GPUS else ()
            self.events.append(Event(begins, until, gpus, effect, len(self.events)))
        return float(until)

    def happens(self, at: float, effect: Any) -> None:
        self.events.append(Event(int(at), None, (), effect, len(self.events)))

    def spread(self, median: float, sigma: float, most: float = math.inf) -> float:
        """A duration of a log-normal distribution, in seconds."""
        return min(self.chance.lognormvariate(math.log(median), sigma), most)

    def likely(self, share: float) -> bool:
        """True in a share of all cases."""
        return self.chance.random() < share

    def each(self, mean: float) -> Iterator[float]:
        """Times of independent events, so far apart on average."""
        at = self.chance.expovariate(1 / mean)
        while at < self.ends:
            yield at
            at += self.chance.expovariate(1 / mean)

    def work(self, at: float, seconds: float, utilization: float, **more: Any) -> float:
        """Kernels of a job with running processes, and the CPUs that feed them."""
        load = Load(utilization, 0.5 * utilization, 0.75, jitter=0.02, pcie_receive_bytes_per_second=4e8 * utilization)
        return self.during(at, seconds, replace(load, **more), Cpu(user=0.2 * utilization + 0.02, system=0.02))

    def processes(self, at: float, seconds: float) -> float:
        return self.during(at, seconds, Start((FIRST_PID,)), _IDLE_AWAKE)


def _at_weekend(day: int) -> bool:
    return day % 7 in {5, 6}


def training(course: Course) -> None:
    at = course.spread(30 * MINUTE, 1.0)
    while at < course.ends:
        ends = course.processes(at, course.spread(5 * HOUR, 1.2, 2 * DAY))
        utilization, every = course.chance.betavariate(8, 1.5), course.chance.uniform(30, 60) * MINUTE
        burst = {"burst_period_seconds": course.chance.uniform(5, 40), "burst_duty": course.chance.uniform(0.7, 1.0)}
        at = course.during(at, course.spread(90, 0.8), Disk(DISK, 900, 3e8, 0.0004, busy=0.3))
        validates = at + course.spread(2 * HOUR, 0.5)
        while at < ends:
            at = course.work(at, min(every, ends - at), utilization, **burst)
            saves = Disk(DISK, writes_per_second=3000, write_bytes_per_second=2e9, write_seconds=0.005, busy=0.9)
            at = course.during(at, course.spread(30, 0.6), saves, Pressure("io", 0.4, 0.2))
            if at > validates:
                at = course.work(at, course.spread(4 * MINUTE, 0.6), 0.9 * utilization, intensity=0.5)
                validates = at + course.spread(2 * HOUR, 0.5)
        at = ends + course.spread(5 * MINUTE, 1.6, 12 * HOUR)


def serving(course: Course) -> None:
    course.processes(0, course.ends)
    peak, deploys = course.chance.uniform(0.3, 0.9), course.each(7 * DAY)
    for hour in range(int(course.ends / HOUR)):
        day = 0.5 - 0.5 * math.cos((hour - 4) / 24 * math.tau)
        asked = peak * (0.1 + 0.9 * day) * (0.6 if _at_weekend(hour // 24) else 1.0) * course.spread(1, 0.15)
        course.work(hour * HOUR, HOUR, min(asked, 0.97), jitter=0.15)
    for at in deploys:
        course.during(at, course.spread(90, 0.5), Kill((FIRST_PID,)), Load(utilization=0.0))


def notebook(course: Course) -> None:
    for day in range(math.ceil(course.ends / DAY)):
        if _at_weekend(day) and course.likely(0.8):
            continue
        at = day * DAY + 9 * HOUR + course.spread(30 * MINUTE, 0.6)
        leaves = at + course.chance.uniform(6, 10) * HOUR
        course.processes(at, course.chance.choice((leaves - at, day * DAY + 1.3 * DAY - at)))
        while at < leaves:
            at = course.work(at, course.spread(4 * MINUTE, 1.2, 2 * HOUR), course.chance.betavariate(2, 2))
            at += course.spread(12 * MINUTE, 1.3, 3 * HOUR)


def partitioned(course: Course) -> None:
    layout = ("3g.20gb", 1, 0.9), ("2g.10gb", 3, 0.6), ("1g.5gb", 9, 0.2)
    course.during(0, course.ends + DAY, Mig(tuple(MigInstance(name, gi, activity=most) for name, gi, most in layout)))
    serving(course)


def burn_in(course: Course) -> None:
    at = course.spread(HOUR, 0.5)
    while at < course.ends:
        ends = course.processes(at, course.chance.uniform(12, 72) * HOUR)
        course.work(at, ends - at, 1.0, intensity=1.0, jitter=0.0)
        at = course.during(ends + course.spread(HOUR, 1.0), course.spread(5 * MINUTE, 0.3), Reboot())
        at += course.spread(4 * HOUR, 1.0)


def sweep(course: Course) -> None:
    for day in range(math.ceil(course.ends / DAY)):
        at = day * DAY + course.chance.uniform(0, 18) * HOUR
        ends = at + course.chance.uniform(2, 6) * HOUR
        while at < ends:
            begins, until = at + course.spread(15, 0.5), course.processes(at, course.spread(206, 1.5, 3 * HOUR))
            if begins < until:
                course.work(begins, until - begins, course.chance.betavariate(3, 2))
            at = until + course.spread(30, 1.2)


def fine_tuning(course: Course) -> None:
    """Each start reads its data from NFS for 20 minutes; the results go there too."""
    at = course.spread(HOUR, 1.0)
    while at < course.ends:
        ends = course.processes(at, 20 * MINUTE + course.spread(3 * HOUR, 0.8))
        reads = Nfs(MOUNT, 1800, 1.1e9, 0.004), Cpu(user=0.08, system=0.04, iowait=0.06), Pressure("io", 0.3, 0.1)
        at = course.during(at, course.spread(20 * MINUTE, 0.15), *reads)
        at = course.work(at, max(ends - at, 60), 0.96)
        writes = Nfs(MOUNT, writes_per_second=900, write_bytes_per_second=8e8, write_seconds=0.01)
        at = course.during(at, course.spread(45, 0.5), writes) + course.spread(HOUR, 1.2)


def desk(course: Course) -> None:
    """A display by day; on some evenings its user trains something, or plays."""
    for day in range(math.ceil(course.ends / DAY)):
        at = day * DAY + course.spread(8.5 * HOUR, 0.1)
        while at < day * DAY + 18 * HOUR:
            at = course.during(at, course.spread(30 * MINUTE, 1.0), Load(course.chance.uniform(0.02, 0.4), 0.05, 0.3))
            at += course.spread(10 * MINUTE, 1.0)
        if day == 0 or course.likely(0.5):
            evening = course.processes(day * DAY + 19 * HOUR, course.spread(2 * HOUR, 0.5))
            course.work(day * DAY + 19 * HOUR, evening - day * DAY - 19 * HOUR, 0.95, burst_period_seconds=9.0)


def reserve(_: Course) -> None:
    """Nothing runs on it."""


def spanning(course: Course) -> None:
    """One job on two hosts, with the checkpoints, evaluations and restarts of `training`."""
    at, both = 0.0, frozenset((0, 1))
    evaluates = course.spread(3 * HOUR, 0.5)
    restarts = course.spread(DAY, 0.8)

    def episode(trouble: Trouble, at: float, seconds: float, ranks: frozenset[int] = both) -> float:
        course.episodes.append(Episode(trouble, int(at), int(at + seconds), ranks))
        return at + seconds

    while at < course.ends:
        at = episode(Trouble.PAUSED, at + course.chance.uniform(30, 60) * MINUTE, course.spread(30, 0.6))
        if at > evaluates:
            at = episode(Trouble.ALONE, at, course.spread(4 * MINUTE, 0.6), frozenset((0,)))
            evaluates = at + course.spread(3 * HOUR, 0.5)
        if at > restarts:
            at = episode(Trouble.EXITED, at, course.spread(5 * MINUTE, 1.0))
            at = episode(Trouble.LATE, at, course.spread(60, 0.5), frozenset((1,)))
            restarts = at + course.spread(DAY, 0.8)


def weather(course: Course) -> None:
    """The room, links, memory, neighbors, scrapes, and the work of operators."""
    for hour in range(0, int(course.ends / HOUR), 3):
        room = 24 + 2.5 * math.sin((hour - 9) / 24 * math.tau) + course.chance.gauss(0, 0.7)
        course.during(hour * HOUR, 3 * HOUR, Ambient(room))
    course.during(0, course.ends, PcieErrors(replays_per_hour=course.chance.expovariate(2)))
    if course.likely(0.2):
        for at in course.each(7 * DAY):
            course.during(at, course.spread(3 * HOUR, 0.7), EccErrors(corrected_per_hour=course.spread(1, 0.7)))
    for at in course.each(12 * HOUR):
        course.during(at, course.spread(2 * MINUTE, 0.6), Cpu(user=0.85, system=0.08), Pressure("cpu", 0.3))
    for at in course.each(DAY):
        course.during(at, course.spread(45, 0.7), ScrapeGap())
    for at in course.each(10 * DAY):
        course.during(at, course.spread(40, 0.5), ExporterDown())
    for week in range(math.ceil(course.ends / DAY / 7)):
        course.happens(week * 7 * DAY + 2 * DAY + course.chance.uniform(9, 16) * HOUR, ExporterRestart())
    patched = course.chance.uniform(0, max(course.ends, 30 * DAY))
    course.happens(course.during(patched, course.spread(5 * MINUTE, 0.4), Reboot()) - 30, DriverVersion("580.105.08"))


@dataclass(frozen=True, slots=True)
class Kind:
    """Hosts of a kind, one for each model of GPU, and the program that uses them."""

    models: tuple[str, ...]
    course: Callable[[Course], None]
    program: str = "python"
    thread: str = ""  # name of its second thread


KINDS: Final[Mapping[str, Kind]] = {
    "train": Kind(("l40s", "a10", "rtx-3090"), training),
    "serve": Kind(("l4", "t4", "a10g"), serving, "VLLM::EngineCor"),
    "notebook": Kind(("t4", "a10", "rtx-4090"), notebook, thread="ZMQbg/IO/0"),
    "mig": Kind(("a100-sxm4-40gb",), partitioned, "tritonserver"),
    "burn-in": Kind(("l40s", "a10"), burn_in, "gpu_burn"),
    "sweep": Kind(("a10", "rtx-3080"), sweep),
    "tune": Kind(("l40s", "a10"), fine_tuning),
    "desk": Kind(("rtx-4070-ti-super",), desk),
    "reserve": Kind(("a10",), reserve),
    "span": Kind(("l40s", "l40s"), spanning),
}


def fleet(days: float, seed: int) -> tuple[Scenario, ...]:
    """All hosts of all kinds; the same for the same arguments."""
    hosts = []
    for name, kind in KINDS.items():
        for number, model in enumerate(kind.models):
            # Hosts of one job have what happens to the job in common.
            chance = random.Random(f"{seed} {name} {number * (name != 'span')}")  # noqa: S311 - no secret
            course = Course(chance, days * DAY)
            kind.course(course)
            course.chance.seed(f"{seed} {name} {number}")
            weather(course)
            hosts.append(_host(f"{name}-{number}", model, kind, course, seed))
    return (*(each for each in hosts if not each.jobs), *coupled([each for each in hosts if each.jobs]))


def _host(name: str, model: str, uses: Kind, course: Course, seed: int) -> Scenario:
    board = load_model(model)
    slot = Slot("0000:41:00.0", 0, ("0000:40:01.0",), board.pcie.generation, board.pcie.width)
    known = identity(name, slot.bus_id)
    kind = name.rpartition("-")[0]
    working = Load(utilization=0.96, memory_utilization=0.5, intensity=0.8, jitter=0.01)
    gpu = Gpu(board, slot, working if course.episodes else Load(), uuid=known.uuid, serial=known.serial)
    pod = None if kind == "desk" else Pod(name if kind == "span" else f"{name}-0", "research", "main")
    gis = tuple(each.gi for event in course.events if isinstance(event.effect, Mig) for each in event.effect.instances)
    users = tuple(
        Process(
            0, FIRST_PID + place, uses.program, 4000, gi, sm=0.9, memory=0.4, cpus="0-15", pod=pod, thread=uses.thread
        )
        for place, gi in enumerate(gis or (None,))
    )
    display = (Process(0, 1200, "Xorg", 600, sm=0.05, type="graphics"),) if kind == "desk" else ()
    ranks = tuple(Rank(f"{kind}-{number}", 0, 0.85) for number in range(len(KINDS[kind].models)))
    return Scenario(
        name=name,
        description=f"A healthy host: {kind}.",
        driver=Driver("580.95.05", "13.0"),
        machine=_machine(),
        gpus=(gpu,),
        processes=() if kind == "reserve" else (*users, *display),
        events=tuple(course.events),
        expectations=(),
        seed=seed,
        jobs=(Job(ranks, 0.15, tuple(course.episodes)),) if course.episodes else (),
    )


def _machine() -> ScenarioHost:
    return ScenarioHost(
        node=(Node("0-15"),),
        memory_gib=251,
        memory_available_gib=190,
        cpu=Cpu(user=0.03, system=0.01, iowait=0.002),
        pressure=(Pressure("io", 0.005), Pressure("memory", 0.0), Pressure("cpu", 0.01)),
        nic=(Nic(LAN, Slot("0000:21:00.0", 0, ("0000:20:01.0",), 3, 8), 25_000, None),),
        disk=(DiskDevice(DISK, Slot("0000:23:00.0", 0, ("0000:20:03.0",), 4, 4), Disk(DISK, 50, 2e6, 0.0004)),),
        nfs=(NfsMount(MOUNT, "filer1.example.net:/datasets", Nfs(MOUNT, 40, 2e7, 0.0012)),),
    )
