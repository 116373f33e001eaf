"""States of other machines and other jobs: cards without GPM or byte counters, MIG, virtual machines, inference."""

from collections.abc import Iterator
from typing import Final

from tests.states.numbers_of_gpus import WAITS_FOR_LOADERS, blocked, busy, cgroup, idle, spins, waits
from tests.states.play import MOUNT, State, Thread, on

from gpu_triage_simulator.effects import Link, MigInstance, PowerLimit
from gpu_triage_simulator.host_effects import Cpu, Nfs, Pressure
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
    yield State(
        "a T4 at a lowered limit",
        "power_cap",
        (PowerLimit(50.0), Readings(power_watts=49.5, sm_mhz=780, reasons=capped)),
        board="t4",
    )
    for board in ("t4", "v100", "a100"):
        yield State(f"a {board} waits for one thread", "cpu", (waits(0.4, board),), threads=_ONE_FULL, board=board)
        yield State(
            f"a {board} waits, nobody knows why",
            "unattributed",
            (waits(0.4, board),),
            board=board,
            threads=WAITS_FOR_LOADERS,
        )
        yield State(
            f"a {board} too hot",
            "thermal",
            (Readings(sm_mhz=500, celsius=89.0, reasons=("hw_thermal", "hw_slowdown")),),
            board=board,
        )
    slow = (Nfs(MOUNT, 90, 9e7, 0.11), Pressure("io", 0.5, 0.2))
    yield State(
        "eight A100 wait for NFS",
        "storage",
        (waits(0.35, "a100"), *slow, cgroup(*range(8), io_pressure=0.5)),
        threads=blocked("rpc_wait_bit_killable"),
        board="a100",
        gpus=8,
    )
    yield State(
        "eight A100, one held at half clock",
        {5: "clock_cap", 0: "compute", 7: "compute"},
        (on(5, Readings(sm_mhz=705, reasons=("applications_clocks",))),),
        board="a100",
        gpus=8,
    )
    yield State(
        "two V100 in a collective",
        "communication",
        (busy(1.0, memory=0.01, watts=88.0, receive=1e5),),
        board="v100",
        gpus=2,
    )
    yield State("a collective on eight H200", "communication", (spins("h200"),), board="h200", gpus=8)
    yield State("two B200 at work", "compute", (Readings(power_watts=910.0, sm_mhz=1830),), board="b200", gpus=2)
    yield State("a B200 on half of its lanes, hardly used", "compute", (Link(width=8),), board="b200")


def virtual_machines() -> Iterator[State]:
    """The kernel of a guest knows no slot, no port and no NUMA node of its cards."""
    yield State("a guest's A10G at work", "compute", (Readings(power_watts=262.0),), board="a10g", virtual=True)
    yield State("a guest's four A10G on x8", "compute", always=(Link(width=8),), board="a10g", gpus=4, virtual=True)
    yield State(
        "a guest's A10G waits for one thread",
        "cpu",
        (waits(0.4, "a10g"),),
        threads=_ONE_FULL,
        board="a10g",
        virtual=True,
    )
    yield State(
        "a guest's CPUs are taken from it",
        "cpu",
        (waits(0.4, "a10g"), Cpu(user=0.5, system=0.05, steal=0.44)),
        threads=(Thread("python", 0.3, "R"), *([Thread("pt_data_worker", 0.5, "R")] * 8)),
        board="a10g",
        virtual=True,
    )
    yield State("a guest's four T4 in a collective", "communication", (spins("t4"),), board="t4", gpus=4, virtual=True)
    yield State(
        "a guest's T4 too hot",
        "thermal",
        (Readings(sm_mhz=600, celsius=93.0, reasons=("sw_thermal",)),),
        board="t4",
        virtual=True,
    )


def mig() -> Iterator[State]:
    """Instances of one card: it has no utilization of its own, and on an A100 none at all."""
    yield State("two instances of an H100 at work", "compute", board="h100", mig=_MIG)
    yield State(
        "two instances of an A100, nothing is reported", "unattributed", board="a100", mig=_MIG, was="unattributed"
    )
    yield State(
        "instances of an H100 braked",
        "power_brake",
        (Readings(sm_mhz=900, reasons=("hw_power_brake", "hw_slowdown")),),
        board="h100",
        mig=_MIG,
    )


def servers() -> Iterator[State]:
    """Inference: a worker that polls fills a CPU, whether or not anybody asks."""
    yield State(
        "a server that decodes",
        "compute",
        (busy(0.97, memory=0.6, watts=310, sm_active=0.35, tensor_active=0.08, dram_active=0.66),),
        threads=_SERVES,
        board="h100",
    )
    yield State(
        "a server that nobody asks",
        "unattributed",
        (idle("h100"),),
        threads=(Thread("VLLM::Worker", 0.02),),
        board="h100",
        unseen_before=True,
    )
    yield State(
        "a server with few requests",
        "unattributed",
        (waits(0.25, "h100"),),
        threads=(Thread("VLLM::Worker", 0.2), Thread("uvloop", 0.05)),
        board="h100",
    )
    yield State(
        "a server whose tokenizer is one thread",
        "cpu",
        (waits(0.35, "h100"),),
        threads=(Thread("VLLM::Worker", 0.4), Thread("python", 0.995, "R")),
        board="h100",
    )
    yield State(
        "tensor-parallel decoding on four H100",
        "compute",
        (busy(0.99, memory=0.55, watts=330, sm_active=0.45, tensor_active=0.1, dram_active=0.6),),
        threads=_SERVES,
        board="h100",
        gpus=4,
    )


def jobs() -> Iterator[State]:
    """Several jobs on one host: what one lacks is not what its neighbor lacks."""
    yield State(
        "one of two jobs waits for Lustre",
        {0: "storage", 1: "storage", 2: "compute", 3: "compute"},
        (on(0, waits(0.2)), on(1, waits(0.2))),
        threads=(
            *(Thread("pt_data_worker", 0.0, "D", "ptlrpc_set_wait", gpu) for gpu in (0, 0, 0, 1, 1, 1)),
            *(Thread("python", 0.6, "R", gpu=gpu) for gpu in (2, 3)),
        ),
        gpus=4,
        job_of=(0, 0, 1, 1),
    )
    yield State(
        "one of two jobs in a collective",
        {0: "communication", 1: "communication", 2: "compute", 3: "compute"},
        (on(0, spins()), on(1, spins())),
        gpus=4,
        job_of=(0, 0, 1, 1),
    )
    yield State(
        "one of four jobs behind one thread",
        {2: "cpu", 0: "compute", 1: "compute", 3: "compute"},
        (on(2, waits(0.4)),),
        gpus=4,
        jobs=True,
        threads=(Thread("python", 1.0, "R", gpu=2), *(Thread("python", 0.5, "R", gpu=g) for g in (0, 1, 3))),
    )
    yield State(
        "small kernels, and a neighbor that talks",
        {0: "compute", 1: "compute"},
        (on(0, busy(1.0, memory=0.05, watts=110)),),
        gpus=2,
        jobs=True,
    )
    yield State(
        "a neighbor's job stalls for I/O",
        {0: "unattributed", 1: "storage"},
        (waits(0.4), cgroup(1, io_pressure=0.7), Pressure("io", 0.7, 0.1)),
        threads=WAITS_FOR_LOADERS,
        gpus=2,
        jobs=True,
    )
    yield State("a process on the other node", "numa", (waits(0.4),), threads=WAITS_FOR_LOADERS, cpus="16-31")
    yield State("a process on the other node at full pace", "compute", cpus="16-31")


def hangs() -> Iterator[State]:
    """No work for minutes, by threads that wait for each other."""
    waits_for_ever = (Thread("python", 0.0, "S", "futex_wait_queue"),)
    yield State("a deadlock", "hung", (idle(),), threads=waits_for_ever, promised=310, lasts=340)
