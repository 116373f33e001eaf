"""States of a machine in raw numbers, as the driver and the kernel report them, played through a whole exporter.

The simulator's model of a GPU is left out: each GPU reports the numbers that are written down here, and a process's
threads are files with the ticks and states that are written down here.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.rig import Rig, pair

from gpu_triage.judge.report.report import Report
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK, JUDGE
from gpu_triage.sampler.outcomes import HOST
from gpu_triage_simulator import VirtualClock, simulated_machine
from gpu_triage_simulator.effect_kinds import GPU_EFFECTS
from gpu_triage_simulator.effects import Mig, MigInstance
from gpu_triage_simulator.host_effects import Cgroup, Cpu, Disk, Network, Nfs, Pressure
from gpu_triage_simulator.load import Load
from gpu_triage_simulator.model import load_model
from gpu_triage_simulator.readings import Readings
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

WORK_SECONDS: Final = 180
"""How long the job has worked when its state changes; the exporter starts in the first minute of it."""
PHASES_SECONDS: Final = 60
"""The longest tier: an exporter that starts so much later reads at the same moments again."""
LOOK_SECONDS: Final = 90
"""For how long a state is watched, if it says nothing else: by then, it has had its class for a while."""
BACK_SECONDS: Final = 120
"""For how long the work after a state is watched."""
UNSEEN_SECONDS: Final = 60
"""How long a state has lasted when an exporter starts that has not seen what was before."""
PROMISED_SECONDS: Final = 30
"""Within how many seconds a GPU has its class, where a state says nothing else."""
DISK, MOUNT, LAN, FABRIC = "nvme0n1", "/mnt/datasets", "eno1", "ib0"
FIRST_PID: Final = 4100
"""Of the process on GPU 0; that of the next GPU is ten more."""
JOB: Final = "/system.slice/slurmstepd.scope/job_{}/step_0/user/task_0"
_ON_GPUS: Final = frozenset(GPU_EFFECTS.values())


class Thread(NamedTuple):
    """A thread of the process on a GPU, or of one of its children."""

    name: str
    share: float = 0.1  # of one CPU
    state: str = "S"
    wait_channel: str = "0"
    gpu: int | None = None  # whose process it belongs to; each one's if None


AT_WORK: Final = (Thread("python", 0.6, "R"), Thread("pt_data_pin", 0.05), Thread("NCCL Progress", 1.0, "R"))
"""A process of PyTorch; NCCL's threads poll."""


@dataclass(frozen=True, slots=True)
class Board:
    """How a model works at full load, as its `nvidia-smi` reports."""

    model: str
    numbers: Readings
    idle_watts: float
    gpm: bool = False


def _busy(watts: float, sm_mhz: int, memory: float, **more: Any) -> Readings:
    base = Readings(
        utilization=0.98,
        memory_utilization=memory,
        power_watts=watts,
        celsius=61,
        sm_mhz=sm_mhz,
        performance_state=0,
        reasons=(),
        receive=4e8,
        transmit=5e7,
    )
    return replace(base, **more)


BOARDS: Final = {
    "a10": Board("a10", _busy(138, 1635, 0.55), 58),
    "v100": Board("v100-sxm2-16gb", _busy(250, 1380, 0.5), 55),
    "t4": Board("t4", _busy(64, 1440, 0.48), 27),
    "3090": Board("rtx-3090", _busy(310, 1875, 0.5, performance_state=2), 105),
    "4090": Board("rtx-4090", _busy(365, 2715, 0.45, performance_state=2), 60),
    "l40s": Board("l40s", _busy(285, 2385, 0.5), 85),
    "l4": Board("l4", _busy(70, 1590, 0.5), 28),
    "a10g": Board("a10g", _busy(262, 1590, 0.5), 62),
    "a100": Board("a100-sxm4-80gb", _busy(330, 1365, 0.5), 85),
    "h100": Board(
        "h100-sxm5-80gb",
        _busy(560, 1755, 0.35, sm_active=0.82, tensor_active=0.42, dram_active=0.35, fp32_active=0.1, fp64_active=0.0),
        118,
        gpm=True,
    ),
    "h200": Board(
        "h200-sxm5-141gb",
        _busy(590, 1785, 0.35, sm_active=0.81, tensor_active=0.41, dram_active=0.3, fp32_active=0.1, fp64_active=0.0),
        125,
        gpm=True,
    ),
    "b200": Board(
        "b200-sxm6-180gb",
        _busy(820, 1845, 0.3, sm_active=0.78, tensor_active=0.36, dram_active=0.3, fp32_active=0.1, fp64_active=0.0),
        190,
        gpm=True,
    ),
}


@dataclass(frozen=True, slots=True)
class State:
    """What a host is in, and what it is called."""

    name: str
    wanted: str | Mapping[int, str]  # the class of each GPU, or of those that are named
    during: tuple[Any, ...] = ()  # what changes: effects, on all GPUs, or with the GPU in front
    always: tuple[Any, ...] = ()  # what was so before too
    threads: tuple[Thread, ...] = AT_WORK  # while it lasts
    board: str = "l40s"
    gpus: int = 1
    jobs: bool = False  # whether each GPU has a job of its own, instead of one job for all
    job_of: tuple[int, ...] = ()  # the number of each GPU's job, if neither is so
    # whether the exporter starts in the middle of the state, and has seen nothing before
    unseen_before: bool = False
    before: Any = None  # numbers of the GPUs before it, if they did not work at full load
    was: str = "compute"  # the class of all GPUs before it
    promised: int = PROMISED_SECONDS  # seconds to the class
    lasts: int = LOOK_SECONDS
    late: tuple[float, ...] = ()  # by how much each round of the exporter is late while it lasts, in turn
    cpus: str = ""  # the CPUs of all processes, if not those of their GPUs' nodes
    mig: tuple[MigInstance, ...] = ()  # of each GPU, with a process on each
    virtual: bool = False  # whether it is a virtual machine, whose slots the kernel does not know
    kind: str = ""  # the family of states that it belongs to

    @property
    def classes(self) -> Mapping[int, str]:
        """The class wanted of each GPU that is looked at."""
        return self.wanted if isinstance(self.wanted, Mapping) else dict.fromkeys(range(self.gpus), self.wanted)

    @property
    def must_change(self) -> bool:
        """Whether a GPU has to leave its class, which the exporter has seen."""
        return not self.unseen_before and set(self.classes.values()) != {self.was}


def on(gpu: int, effect: Any) -> tuple[int, Any]:
    return gpu, effect


def host_of(state: State, onset_at: int, ends_at: int | None) -> Scenario:
    """The scenario of a state: healthy work, and from its onset on what it changes."""
    board = BOARDS[state.board]
    gpus = tuple(_gpu(board, number, virtual=state.virtual) for number in range(state.gpus))
    processes = tuple(process for number in range(state.gpus) for process in _processes(state, number))
    mig = [Mig(state.mig)] if state.mig else []
    before = [state.before] if state.before else []
    always = [*_cgroups(processes), *mig, board.numbers, *state.always, *before]
    events = [_event(0, None, effect, state.gpus) for effect in always]
    events += [_event(onset_at, ends_at, effect, state.gpus) for effect in state.during]
    return Scenario(
        name="state",
        description=state.name,
        driver=Driver("580.95.05", "13.0"),
        machine=_machine(),
        gpus=gpus,
        processes=processes,
        events=tuple(events),
        expectations=(),
        seed=7,
    )


def _gpu(board: Board, number: int, *, virtual: bool) -> Gpu:
    node, bus = divmod(number, 4)
    address = f"0000:{0x41 + 0x40 * node + 8 * bus:02x}:00.0"
    root = f"0000:{0x40 + 0x40 * node + 8 * bus:02x}:01.0"
    model = load_model(board.model)
    ports, known_node = ((), -1) if virtual else ((root,), node)
    slot = Slot(address, known_node, ports, model.pcie.generation, model.pcie.width)
    known = identity("state", address)
    load = Load(utilization=0.98, memory_utilization=0.5, intensity=0.8, jitter=0.0)
    return Gpu(model, slot, load, uuid=known.uuid, serial=known.serial)


def _processes(state: State, number: int) -> list[Process]:
    job = state.job_of[number] if state.job_of else number if state.jobs else 0
    cpus = state.cpus or f"{16 * (number // 4)}-{16 * (number // 4) + 15}"
    process = Process(
        number, FIRST_PID + 10 * number, "python", 9000, sm=0.98, memory=0.5, cpus=cpus, cgroup=JOB.format(100 + job)
    )
    if not state.mig:
        return [process]
    return [replace(process, pid=process.pid + place, gi=each.gi) for place, each in enumerate(state.mig)]


def _cgroups(processes: Iterable[Process]) -> list[Cgroup]:
    return [Cgroup(pids=(process.pid,)) for process in processes]


def _machine() -> ScenarioHost:
    return ScenarioHost(
        node=(Node("0-15"), Node("16-31")),
        memory_gib=251,
        memory_available_gib=190,
        swap_gib=16,
        cpu=Cpu(user=0.15, system=0.02, iowait=0.004),
        pressure=(Pressure("io", 0.005), Pressure("memory", 0.0), Pressure("cpu", 0.02)),
        nic=(
            Nic(LAN, Slot("0000:21:00.0", 0, ("0000:20:01.0",), 3, 8), 25_000, Network(LAN, 3e8, 9e7)),
            Nic(FABRIC, Slot("0000:22:00.0", 0, ("0000:20:02.0",), 5, 16), 400_000, Network(FABRIC, 0, 0), "mlx5_0"),
        ),
        disk=(
            DiskDevice(
                DISK,
                Slot("0000:23:00.0", 0, ("0000:20:03.0",), 4, 4),
                Disk(DISK, 300, 9e7, 0.0005, 20, 1e6, 0.0004, 0.08),
            ),
        ),
        nfs=(NfsMount(MOUNT, "filer1.example.net:/datasets", Nfs(MOUNT, 400, 3e8, 0.0012)),),
    )


def _event(at: int, until: int | None, effect: Any, gpus: int) -> Event:
    if isinstance(effect, tuple):
        number, effect = effect
        return Event(at, until, (number,), effect)
    return Event(at, until, tuple(range(gpus)) if type(effect) in _ON_GPUS else (), effect)


Changes = tuple[tuple[float, str], ...]
"""From which second on a GPU had a class, and the class, in order."""


class Watch:
    """Runs an exporter, and notes the class of every GPU as it is published."""

    def __init__(self, running: Rig) -> None:
        self._running = running
        # By GPU, the second from the exporter's start from which on it had a class, and the class; the first class
        # included.
        self.changes: dict[str, list[tuple[float, str]]] = defaultdict(list)

    def run_to(self, seconds: float) -> None:
        """Sample up to a second after the exporter's start."""
        running, interval, seen = self._running, self._running.config.sample_fast_seconds, None
        while running.elapsed < seconds:
            running.sampler.step()
            running.sampler.publish()
            outcome = running.sampler.store.get(JUDGE.name, HOST)
            new, seen = outcome is not seen, outcome
            for sample in outcome.samples if new and outcome else ():
                if sample.spec is GPU_BOTTLENECK:
                    changes, name = self.changes[sample.labels[0]], GPU_BOTTLENECK.states[int(sample.value)]
                    if not changes or changes[-1][1] != name:
                        changes.append((running.elapsed, name))
            running.clock.advance(interval)
            running.elapsed += interval


@dataclass(frozen=True)
class Seen:
    """What an exporter made of a state: the classes of each GPU, in seconds from the state's onset on.

    If the exporter started in the middle of the state, seconds count from its start.
    """

    state: State
    changes: Mapping[int, Changes]  # by GPU, those before the onset included
    ended_at: float = math.inf  # when the state ended, if that was watched
    report: Report | None = None  # at the end

    def at(self, gpu: int, seconds: float) -> str:
        """The class of a GPU at a second."""
        return next((name for at, name in reversed(self.changes[gpu]) if at <= seconds), "")

    @cached_property
    def before(self) -> set[str]:
        """The classes at the onset; none if the exporter started later."""
        return set() if self.state.unseen_before else {self.at(gpu, 0.0) for gpu in self.changes}

    @cached_property
    def found(self) -> Mapping[int, tuple[str, ...]]:
        """The classes of each GPU in the state, in order; the one before it too, if it was still there."""
        return {
            gpu: tuple(name for at, name in changes if 0 < at < self.ended_at) or (self.at(gpu, 0.0),)
            for gpu, changes in self.changes.items()
        }

    @cached_property
    def settled(self) -> Mapping[int, float]:
        """Seconds until a GPU had the class wanted of it for good; infinite if it never had."""
        return {gpu: _since(name, self._while(gpu)) for gpu, name in self.state.classes.items()}

    @property
    def seconds(self) -> float:
        """Seconds until all had their classes."""
        return max(self.settled.values())

    @property
    def flips(self) -> int:
        """How often a GPU left the class that was wanted of it, having had it in the state."""
        names = {gpu: [name for _, name in self._while(gpu)] for gpu in self.state.classes}
        return sum(names[gpu][:-1].count(wanted) for gpu, wanted in self.state.classes.items())

    @property
    def back_seconds(self) -> float:
        """Seconds from its end until all had the classes from before it for good."""
        after = [tuple((at - self.ended_at, name) for at, name in changes) for changes in self.changes.values()]
        return max(_since(self.state.was, changes) for changes in after)

    def _while(self, gpu: int) -> Changes:
        """The class that a GPU had at the onset, at second 0, and its changes in the state."""
        first = ((0.0, self.at(gpu, 0.0)),) if self.changes[gpu][0][0] <= 0 else ()
        return first + tuple((at, name) for at, name in self.changes[gpu] if 0 < at < self.ended_at)


def _since(wanted: str, changes: Changes) -> float:
    at, name = changes[-1]
    return max(0.0, at) if name == wanted else math.inf


class Threads:
    """Writes the threads of a state's processes into the tree of a simulated host."""

    def __init__(self, root: Path, state: State, ends_at: float) -> None:
        self._root, self._state, self._ends_at = root, state, ends_at
        self._ticks: dict[tuple[int, int], float] = {}
        self._at: float | None = None

    def write(self, seconds: float) -> None:
        """Write what is there at a second of the scenario."""
        passed = 0.0 if self._at is None else seconds - self._at
        self._at = seconds
        for number in range(self._state.gpus):
            pid = FIRST_PID + 10 * number
            if not (self._root / "proc" / str(pid)).is_dir():
                continue
            lasts = WORK_SECONDS <= seconds < self._ends_at
            for place, thread in enumerate(self._of(number, lasts=lasts)):
                tid = pid + place
                ticks = self._ticks[pid, tid] = self._ticks.get((pid, tid), 1000.0) + thread.share * passed * 100
                self._write(f"proc/{pid}/task/{tid}", thread, tid, int(ticks))

    def _of(self, number: int, *, lasts: bool) -> list[Thread]:
        threads = self._state.threads if lasts else AT_WORK
        return [thread for thread in threads if thread.gpu in (None, number)]

    def _write(self, folder: str, thread: Thread, tid: int, ticks: int) -> None:
        head = f"{tid} ({thread.name}) {thread.state} 1 1 1 0 -1 4194560 0 0 0 0"
        self._put(f"{folder}/stat", f"{head} {ticks} 0 0 0 20 0 3 0 100 0 0" + " 0" * 28 + "\n")
        self._put(f"{folder}/wchan", thread.wait_channel)
        switches = 0 if thread.state == "D" else ticks
        self._put(f"{folder}/status", f"voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t7\n")

    def _put(self, path: str, text: str) -> None:
        file = self._root / path
        if not file.parent.is_dir():
            file.parent.mkdir(parents=True)
        file.write_text(text)


def play(state: State, phase: float = 0.0, *, fast_seconds: float = 1.0, ends: bool = False) -> Seen:
    """Play a state, from work on.

    Args:
        state: what is played.
        phase: by how much the exporter starts later, 0 to `PHASES_SECONDS`: its onset then has another phase of all
            tiers, and of the second.
        fast_seconds: the exporter's fast interval.
        ends: whether it ends after it was watched, and the work that follows is watched too.
    """
    ends_at = WORK_SECONDS + state.lasts if ends else None
    starts_at = phase + (WORK_SECONDS + UNSEEN_SECONDS if state.unseen_before else 0)
    begins = 0.0 if state.unseen_before else WORK_SECONDS - phase
    clock = VirtualClock()
    with simulated_machine(
        host_of(state, WORK_SECONDS, ends_at), clock=clock, starting_at=starts_at, when_looked_at=True
    ) as simulated:
        threads = Threads(simulated.root, state, ends_at or math.inf)
        threads.write(starts_at)
        clock.on_advance(lambda _moment: threads.write(simulated.host.seconds()))
        rig = Rig(simulated, clock, Config(sample_fast_seconds=fast_seconds))
        watch = Watch(rig)
        watch.run_to(begins)
        late = cycle(state.late or (0.0,))
        while rig.elapsed < begins + state.lasts:
            watch.run_to(rig.elapsed + fast_seconds)
            seconds = next(late)
            clock.advance(seconds)
            rig.elapsed += seconds
        watch.run_to(begins + state.lasts + (BACK_SECONDS if ends else 0))
    changes = {int(gpu): tuple((at - begins, name) for at, name in each) for gpu, each in watch.changes.items()}
    report = rig.judge.latest.report if rig.judge.latest else None
    return Seen(state, changes, state.lasts if ends else math.inf, report)


def steady_day(name: str, fast_seconds: float, hours: float) -> Mapping[str, int]:
    """Changes of class by GPU, of the first GPUs of a shipped scenario in which nothing is wrong."""
    clock = VirtualClock()
    with simulated_machine(pair(name), clock=clock, when_looked_at=True) as simulated:
        watch = Watch(Rig(simulated, clock, Config(sample_fast_seconds=fast_seconds)))
        watch.run_to(hours * 3600)
    return {gpu: len(changes) - 1 for gpu, changes in watch.changes.items()}
