"""Jobs that hang or save a checkpoint beside others that write, and GPUs that are read late."""

from collections.abc import Iterator
from typing import Any, Final

from tests.states.numbers_of_gpus import SLOW_NFS, idle
from tests.states.play import DISK, FABRIC, State, Thread, on

from gpu_triage_simulator.effects import CallError
from gpu_triage_simulator.host_effects import Cgroup, Disk, Network, Pressure, Writes
from gpu_triage_simulator.load import Load
from gpu_triage_simulator.readings import Readings

_PIDS: Final = (4100, 4110)
_STILL: Final = (Thread("python", 0.0), Thread("NCCL Progress", 1.0, "R"))
_ON_DISK: Final = Disk(DISK, writes_per_second=800, write_bytes_per_second=9e8, write_seconds=0.001, busy=0.5)
_OTHERS: Final = (_ON_DISK, Network(FABRIC, 2e10, 2e10))
"""What others on the host write and send."""
_QUIET: Final = Writes(_PIDS, 2e3)
_HUNG_SECONDS: Final = 290
_CHECKPOINT_SECONDS: Final = 420


def _cgroup(written: float) -> Cgroup:
    return Cgroup(pids=_PIDS, written_bytes_per_second=written)


def stops() -> Iterator[State]:
    hangs: dict[str, Any] = {"gpus": 2, "threads": _STILL, "lasts": _CHECKPOINT_SECONDS, "promised": _HUNG_SECONDS}
    stopped = (idle(), *_OTHERS)
    yield State("a hang", "hung", (idle(),), always=(_QUIET,), **hangs)
    yield State("a hang while others write", "hung", stopped, always=(_QUIET,), **hangs)
    yield State("a hang while others write, by its cgroup", "hung", stopped, always=(_cgroup(2e3),), **hangs)
    yield State("a hang while somebody writes", "hung", stopped, **hangs | {"lasts": 450, "promised": 320})
    saves: dict[str, Any] = {"gpus": 2, "threads": (Thread("python", 0.7, "R"),), "lasts": _CHECKPOINT_SECONDS}
    long = {"promised": _HUNG_SECONDS}  # so far, the class before it is kept
    saving = (idle(), _ON_DISK)
    rank = Writes((_PIDS[0],), 9e8)
    yield State("a long checkpoint", "unattributed", (*saving, rank), always=(_QUIET,), **saves | long)
    by_cgroup = "a long checkpoint, by its cgroup"
    yield State(by_cgroup, "unattributed", (*saving, _cgroup(9e8)), always=(_cgroup(0),), **saves | long)
    waits = (Thread("python", 0.02, "D", "rpc_wait_bit_killable"), Thread("pt_data_worker", 0.0))
    stalls = (idle(), SLOW_NFS, Cgroup(pids=_PIDS, io_pressure=0.9), Pressure("io", 0.9, 0.4))
    waiting = saves | {"threads": waits, "lasts": 120}
    yield State("a job that waits for a slow server", "storage", stalls, always=(_QUIET,), **waiting)
    yield State("a checkpoint of somebody", "compute", saving, **saves | {"lasts": 240})


def spinning() -> Iterator[State]:
    few: dict[str, Any] = {"sm_active": 0.13, "tensor_active": 0.0, "dram_active": 0.01, "fp32_active": 0.0}
    spins = Readings(utilization=1.0, memory_utilization=0.01, power_watts=190, receive=2e5, transmit=2e5, **few)
    silent = Load(utilization=1.0, memory_utilization=0.02, intensity=0.05, spinning=True, jitter=0.0)
    rdma = Network(FABRIC, 2e10, 2e10)
    hangs = (silent, spins, rdma)
    yield State("a collective hangs while others send", "communication", hangs, board="h100", gpus=2, lasts=340)
    small = (on(0, Readings(utilization=1.0, memory_utilization=0.06, power_watts=105)), rdma)
    yield State("small kernels while the next job sends", {0: "compute"}, small, gpus=2, jobs=True, always=(rdma,))


def late_readings() -> Iterator[State]:
    polled = CallError("nvmlDeviceGetSamples", "NOT_SUPPORTED")
    half = Readings(utilization=0.4, memory_utilization=0.2, power_watts=150)
    some = (0.0,) * 7 + (4.0,)
    most = (0.0, 4.0)
    yield State("at work, some readings late", "compute", always=(polled,), late=some)
    yield State("busy 40%, some readings late", "unattributed", (half,), always=(polled,), late=some)
    yield State("at work, most readings late", "unattributed", always=(polled,), late=most, promised=60)
    yield State("at work, all readings late, and the driver keeps samples", "compute", late=(5.0,))
    long: dict[str, Any] = {"lasts": 400, "promised": 60}
    yield State("idle, most readings late", "unattributed", (idle(),), always=(polled,), late=most, **long)
