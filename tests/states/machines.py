"""States of other machines and other jobs: cards without GPM or byte counters, MIG, virtual machines, inference."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from tests.states.numbers_of_gpus import ON_NFS, SLOW_NFS, WAITS_FOR_LOADERS, busy, cgroup, idle, loaders, spins, waits
from tests.states.play import AT_WORK, State, Thread, on

from gpu_triage_simulator.effects import Link, MigInstance, PowerLimit
from gpu_triage_simulator.host_effects import Cpu, Pressure
from gpu_triage_simulator.readings import Readings

_SERVES: Final = (Thread("VLLM::Worker", 1.0, "R"), Thread("ray::IDLE", 0.02), Thread("uvloop", 0.4))
"""A worker of vLLM, which polls for its next step."""
_ONE_FULL: Final = (Thread("python", 1.0, "R"), Thread("pt_data_pin", 0.1))
_MIG: Final = (MigInstance("3g.40gb", gi=1, activity=0.9), MigInstance("4g.40gb", gi=2, activity=0.95))


def cards() -> Iterator[State]:
    """The same troubles on cards that report less."""
    capped = ("sw_power_cap",)
    for board, watts, clock in (("t4", 69.0, 1005), ("l4", 71.0, 1140), ("a10", 149.0, 1230)):
        numbers = Readings(power_watts=watts, sm_mhz=clock, reasons=capped)
        yield State(f"a {board} at its own power limit", "compute", (numbers,), board=board)
    limit = (PowerLimit(50.0), Readings(power_watts=49.5, sm_mhz=780, reasons=capped))
    yield State("a T4 at a lowered limit", "power_cap", limit, board="t4")
    for board in ("t4", "v100", "a100"):
        yield State(f"a {board} waits for one thread", "cpu", (waits(0.4, board),), threads=_ONE_FULL, board=board)
        name, half = f"a {board} waits, nobody knows why", (waits(0.4, board),)
        yield State(name, "unattributed", half, threads=WAITS_FOR_LOADERS, board=board)
        hot = Readings(sm_mhz=500, celsius=89.0, reasons=("hw_thermal", "hw_slowdown"))
        yield State(f"a {board} too hot", "thermal", (hot,), board=board)
    slow = (waits(0.35, "a100"), SLOW_NFS, Pressure("io", 0.5, 0.2), cgroup(*range(8), io_pressure=0.5))
    yield State("eight A100 wait for NFS", "storage", slow, threads=ON_NFS, board="a100", gpus=8)
    held = on(5, Readings(sm_mhz=705, reasons=("applications_clocks",)))
    wanted = {5: "clock_cap", 0: "compute", 7: "compute"}
    yield State("eight A100, one held at half clock", wanted, (held,), board="a100", gpus=8)
    talks = busy(1.0, memory=0.01, watts=88.0, receive=1e5)
    yield State("two V100 in a collective", "communication", (talks,), board="v100", gpus=2)
    yield State("a collective on eight H200", "communication", (spins("h200"),), board="h200", gpus=8)
    yield State("two B200 at work", "compute", (Readings(power_watts=910.0, sm_mhz=1830),), board="b200", gpus=2)
    yield State("a B200 on half of its lanes, hardly used", "compute", (Link(width=8),), board="b200")


def virtual_machines() -> Iterator[State]:
    """The kernel of a guest knows no slot, no port and no NUMA node of its cards."""
    a10g, t4 = (partial(State, board=board, virtual=True) for board in ("a10g", "t4"))
    yield a10g("a guest's A10G at work", "compute", (Readings(power_watts=262.0),))
    yield a10g("a guest's four A10G on x8", "compute", always=(Link(width=8),), gpus=4)
    yield a10g("a guest's A10G waits for one thread", "cpu", (waits(0.4, "a10g"),), threads=_ONE_FULL)
    taken = (waits(0.4, "a10g"), Cpu(user=0.5, system=0.05, steal=0.44))
    yield a10g("a guest's CPUs are taken from it", "cpu", taken, threads=loaders(0.5))
    yield t4("a guest's four T4 in a collective", "communication", (spins("t4"),), gpus=4)
    yield t4("a guest's T4 too hot", "thermal", (Readings(sm_mhz=600, celsius=93.0, reasons=("sw_thermal",)),))


def mig() -> Iterator[State]:
    """Instances of one card: it has no utilization of its own, and on an A100 none at all."""
    yield State("two instances of an H100 at work", "compute", board="h100", mig=_MIG)
    none = "two instances of an A100, nothing is reported"
    yield State(none, "unattributed", board="a100", mig=_MIG, was="unattributed")
    braked = Readings(sm_mhz=900, reasons=("hw_power_brake", "hw_slowdown"))
    yield State("instances of an H100 braked", "power_brake", (braked,), board="h100", mig=_MIG)


def servers() -> Iterator[State]:
    """Inference: a worker that polls fills a CPU, whether or not anybody asks."""
    decodes = busy(0.97, memory=0.6, watts=310, sm_active=0.35, tensor_active=0.08, dram_active=0.66)
    yield State("a server that decodes", "compute", (decodes,), threads=_SERVES, board="h100")
    still, few = (Thread("VLLM::Worker", 0.02),), (Thread("VLLM::Worker", 0.2), Thread("uvloop", 0.05))
    yield State(
        "a server that nobody asks", "unattributed", (idle("h100"),), threads=still, board="h100", unseen_before=True
    )
    yield State("a server with few requests", "unattributed", (waits(0.25, "h100"),), threads=few, board="h100")
    one = (Thread("VLLM::Worker", 0.4), Thread("python", 0.995, "R"))
    yield State("a server whose tokenizer is one thread", "cpu", (waits(0.35, "h100"),), threads=one, board="h100")
    decodes = busy(0.99, memory=0.55, watts=330, sm_active=0.45, tensor_active=0.1, dram_active=0.6)
    yield State("tensor-parallel decoding on four H100", "compute", (decodes,), threads=_SERVES, board="h100", gpus=4)


def jobs() -> Iterator[State]:
    """Several jobs on one host: what one lacks is not what its neighbor lacks."""
    pairs = partial(State, gpus=4, job_of=(0, 0, 1, 1))
    lustre = (
        *(Thread("pt_data_worker", 0.0, "D", "ptlrpc_set_wait", gpu) for gpu in (0, 0, 0, 1, 1, 1)),
        *(Thread("python", 0.6, "R", gpu=gpu) for gpu in (2, 3)),
    )
    for name, wanted, numbers, threads in (
        ("waits for Lustre", "storage", waits(0.2), lustre),
        ("in a collective", "communication", spins(), AT_WORK),
    ):
        classes, both = {0: wanted, 1: wanted, 2: "compute", 3: "compute"}, (on(0, numbers), on(1, numbers))
        yield pairs(f"one of two jobs {name}", classes, both, threads=threads)
    one = (Thread("python", 1.0, "R", gpu=2), *(Thread("python", 0.5, "R", gpu=g) for g in (0, 1, 3)))
    classes = {2: "cpu", 0: "compute", 1: "compute", 3: "compute"}
    yield State("one of four jobs behind one thread", classes, (on(2, waits(0.4)),), gpus=4, jobs=True, threads=one)
    two = partial(State, gpus=2, jobs=True)
    small = on(0, busy(1.0, memory=0.05, watts=110))
    yield two("small kernels, and a neighbor that talks", {0: "compute", 1: "compute"}, (small,))
    stalls = (waits(0.4), cgroup(1, io_pressure=0.7), Pressure("io", 0.7, 0.1))
    classes = {0: "unattributed", 1: "storage"}
    yield two("a neighbor's job stalls for I/O", classes, stalls, threads=WAITS_FOR_LOADERS)
    yield State("a process on the other node", "numa", (waits(0.4),), threads=WAITS_FOR_LOADERS, cpus="16-31")
    yield State("a process on the other node at full pace", "compute", cpus="16-31")


def hangs() -> Iterator[State]:
    """No work for minutes, by threads that wait for each other."""
    waits_for_ever = (Thread("python", 0.0, "S", "futex_wait_queue"),)
    yield State("a deadlock", "hung", (idle(),), threads=waits_for_ever, promised=310, lasts=340)
