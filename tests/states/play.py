"""States of a machine in raw numbers, as the driver and the kernel report them, played through a whole exporter.

The simulator's model of a GPU is left out: each GPU reports the numbers that are written down here, and a process's
threads are files with the ticks and states that are written down here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.bench.attribution import Watch
from tests.rig import Rig

from gpu_triage.options.config import Config
from gpu_triage_simulator import VirtualClock, simulated_machine
from gpu_triage_simulator.effect_kinds import GPU_EFFECTS
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
"""How long the job works before its state changes."""
LOOK_SECONDS: Final = 120
"""How long the state lasts that is looked at."""
TICKS: Final = 100
MIB, GIB = 1 << 20, 1 << 30
DISK, MOUNT, LAN, FABRIC = "nvme0n1", "/mnt/datasets", "eno1", "ib0"
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
    "a100": Board("a100-sxm4-80gb", _busy(330, 1365, 0.5), 85),
    "h100": Board(
        "h100-sxm5-80gb",
        _busy(560, 1755, 0.35, sm_active=0.82, tensor_active=0.42, dram_active=0.35, fp32_active=0.1, fp64_active=0.0),
        118,
        gpm=True,
    ),
}

Files = Callable[[float], Mapping[str, str]]
"""Files below the host's root by path (``proc/…``, ``sys/…``), by the second since the state began, negative before."""


@dataclass(frozen=True, slots=True)
class State:
    """What a host is in, and what it is called."""

    name: str
    wanted: str | Mapping[int, str]  # the class of each GPU, or of those that are named
    during: tuple[Any, ...] = ()  # what changes: effects, on all GPUs, or with the GPU in front
    always: tuple[Any, ...] = ()  # what was so before too
    threads: tuple[Thread, ...] = AT_WORK  # while it lasts
    files: Files | None = None
    board: str = "l40s"
    gpus: int = 1
    jobs: bool = False  # whether each GPU has a job of its own, instead of one job for all
    # whether the exporter starts in the middle of the state, and has seen nothing before
    unseen_before: bool = False
    before: Any = None  # numbers of the GPUs before it, if they did not work at full load
    promised: int | None = None  # seconds to the class, if not what is promised of all
    lasts: int = LOOK_SECONDS
    late: tuple[float, ...] = ()  # by how much each round of the exporter is late while it lasts, in turn
    limits: Config = field(default_factory=Config)


def on(gpu: int, effect: Any) -> tuple[int, Any]:
    return gpu, effect


def host_of(state: State, onset_at: int, ends_at: int | None) -> Scenario:
    """The scenario of a state: healthy work, and from its onset on what it changes."""
    board = BOARDS[state.board]
    gpus = tuple(_gpu(board, number) for number in range(state.gpus))
    processes = tuple(_process(state, number) for number in range(state.gpus))
    always = [*_cgroups(processes), board.numbers, *state.always, *([state.before] if state.before else [])]
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


def _gpu(board: Board, number: int) -> Gpu:
    node, bus = divmod(number, 4)
    address = f"0000:{0x41 + 0x40 * node + 8 * bus:02x}:00.0"
    root = f"0000:{0x40 + 0x40 * node + 8 * bus:02x}:01.0"
    model = load_model(board.model)
    slot = Slot(address, node, (root,), model.pcie.generation, model.pcie.width)
    known = identity("state", address)
    load = Load(utilization=0.98, memory_utilization=0.5, intensity=0.8, jitter=0.0)
    return Gpu(model, slot, load, uuid=known.uuid, serial=known.serial)


def _process(state: State, number: int) -> Process:
    cgroup = JOB.format(100 + (number if state.jobs else 0))
    cpus = f"{16 * (number // 4)}-{16 * (number // 4) + 15}"
    return Process(number, 4100 + 10 * number, "python", 9000, sm=0.98, memory=0.5, cpus=cpus, cgroup=cgroup)


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


class Seen(NamedTuple):
    """What an exporter made of a state."""

    settled: Mapping[int, float]  # by GPU: seconds from the onset until it had its class for good; infinite if never
    found: Mapping[int, tuple[str, ...]]  # by GPU: its classes from the onset on
    rig: Rig

    @property
    def seconds(self) -> float:
        return max(self.settled.values())


class Threads:
    """Writes the threads of a state's processes into the tree of a simulated host."""

    def __init__(self, root: Path, state: State, onset_at: float) -> None:
        self._root, self._state, self._onset_at = root, state, onset_at
        self._ticks: dict[tuple[int, int], float] = {}
        self._at: float | None = None

    def write(self, seconds: float) -> None:
        """Write what is there at a second of the scenario."""
        passed = 0.0 if self._at is None else seconds - self._at
        self._at = seconds
        since = seconds - self._onset_at
        for number in range(self._state.gpus):
            pid = 4100 + 10 * number
            if not (self._root / "proc" / str(pid)).is_dir():
                continue
            for place, thread in enumerate(self._of(number, since)):
                tid = pid + place
                ticks = self._ticks[pid, tid] = self._ticks.get((pid, tid), 1000.0) + thread.share * passed * TICKS
                self._write(f"proc/{pid}/task/{tid}", thread, tid, int(ticks))
        if self._state.files is not None:
            for path, text in self._state.files(since).items():
                self._put(path, text)

    def _of(self, number: int, since: float) -> list[Thread]:
        threads = self._state.threads if since >= 0 else AT_WORK
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


def play(state: State, onset_at: int = WORK_SECONDS, *, fast_seconds: float = 1.0) -> Seen:
    """Play a state, from work to its end."""
    scenario = host_of(state, onset_at, None)
    clock = VirtualClock()
    starts_at = onset_at + 60.0 if state.unseen_before else 0.0
    config = replace(state.limits, sample_fast_seconds=fast_seconds)
    with simulated_machine(scenario, clock=clock, starting_at=starts_at, when_looked_at=True) as simulated:
        threads = Threads(simulated.root, state, onset_at)
        threads.write(starts_at)
        clock.on_advance(lambda _moment: threads.write(simulated.host.seconds()))
        rig = Rig(simulated, clock, config)
        watch = Watch(rig)
        begins = 0.0 if state.unseen_before else onset_at - starts_at
        ends = begins + state.lasts
        watch.run_to(begins if state.late else ends)
        for late in cycle(state.late):
            if rig.elapsed >= ends:
                break
            watch.run_to(rig.elapsed + fast_seconds)
            clock.advance(late)
            rig.elapsed += late
    wanted = state.wanted if isinstance(state.wanted, Mapping) else dict.fromkeys(range(state.gpus), state.wanted)
    settled = {gpu: watch.settled(str(gpu), name, begins, ends).seconds for gpu, name in wanted.items()}
    found = {
        gpu: tuple(name for at, name in watch.changes[str(gpu)] if at > begins) or (watch.changes[str(gpu)][-1][1],)
        for gpu in range(state.gpus)
    }
    return Seen(settled, found, rig)
