"""The states: what a machine reports in each, and what somebody who diagnoses GPUs calls it.

What is at a threshold, and just short of it, is in tests/unit/judge.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tests.states import machines
from tests.states.hangs import late_readings, spinning, stops
from tests.states.numbers_of_gpus import (
    FULL_DISK,
    ON_DISK,
    ON_NFS,
    SLOW_NFS,
    WAITS_FOR_LOADERS,
    blocked,
    busy,
    cgroup,
    idle,
    loaders,
    spins,
    starved,
    tcp,
    waits,
)
from tests.states.play import BOARDS, DISK, FABRIC, LAN, MOUNT, State, Thread, on

from gpu_triage_simulator.effects import EccErrors, Link, Lost, PowerLimit, RecoveryAction, ResetRequired, Xid
from gpu_triage_simulator.host_effects import Cpu, Disk, Kill, Network, Nfs, Pressure, Swap
from gpu_triage_simulator.readings import Readings


def _memory_bound() -> Iterator[State]:
    numbers = {"a10": 92, "t4": 32, "3090": 150, "4090": 190, "l40s": 150}
    for board, watts in numbers.items():
        decode = busy(1.0, memory=0.72, watts=watts)
        yield State(f"memory-bound decoding on one {board}", "compute", (decode,), board=board)
        four = f"memory-bound decoding on four {board}, a server each"
        yield State(four, "compute", (decode,), board=board, gpus=4, jobs=True)
        yield State(f"a collective on two {board}", "communication", (spins(board),), board=board, gpus=2)
    small = (busy(1.0, memory=0.06, watts=105),)
    yield State("small kernels, nobody to talk to", "compute", small)
    yield State("small kernels on four cards, a job each", "compute", small, gpus=4, jobs=True)
    light = busy(1.0, memory=0.5, watts=240, sm_active=0.3, tensor_active=0.05, dram_active=0.7, fp32_active=0.05)
    yield State("memory-bound decoding with GPM", "compute", (light,), board="h100", gpus=2)
    yield State("a collective with GPM", "communication", (spins("h100"),), board="h100", gpus=4)
    yield State("a collective on an A100", "communication", (spins("a100"),), board="a100", gpus=4)
    three = tuple(on(n, spins("h100")) for n in (0, 1, 2))
    wanted = {0: "communication", 2: "communication", 3: "compute"}
    yield State("seven wait for GPU 3, which works", wanted, three, board="h100", gpus=4)
    over_fabric, always = (spins("h100"), Network(FABRIC, 2e9, 2e9)), (Network(FABRIC, 2e10, 2e10),)
    one = "one card of a job on many hosts waits for them"
    yield State(one, "communication", over_fabric, board="h100", always=always)


def _no_history() -> Iterator[State]:
    dead = (
        Nfs(MOUNT, reads_per_second=0.0, getattrs_per_second=0.0),
        Cpu(user=0.06, iowait=0.14),
        Pressure("io", 0.99, 0.4),
    )
    for board in ("l40s", "h100"):
        stalls = (idle(board), *dead, cgroup(0, io_pressure=0.99))
        yield _unseen(f"a dead NFS server, not seen before, {board}", "storage", stalls, threads=ON_NFS, board=board)
        yield State(f"a dead NFS server, {board}", "storage", stalls, threads=ON_NFS, board=board)
    full = (waits(0.3), FULL_DISK, Pressure("io", 0.8, 0.3), cgroup(0, io_pressure=0.8))
    yield _unseen("a full disk, not seen before", "storage", full, threads=ON_DISK)
    yield _unseen("Lustre, not seen before", "storage", (idle(),), threads=blocked("ptlrpc_set_wait", 8))
    swapping = (Swap(6e7, 4e7, 15.0), Pressure("memory", 0.9, 0.6), cgroup(0, memory_pressure=0.9))
    pages = blocked("swap_readpage", 2)
    yield _unseen("a host that swaps, not seen before", "memory", (idle(), *swapping), threads=pages)
    yield starved("a host that swaps", "memory", 0.2, *swapping, threads=pages)
    # The host is short of something, and not this job, which has been idle since before anybody looked.
    backup, still = (idle(), FULL_DISK, Pressure("io", 0.6, 0.2)), (Thread("python", 0.0),)
    yield _unseen("an idle notebook beside a backup, not seen before", "unattributed", backup, threads=still)
    yield _unseen("an idle notebook, not seen before", "unattributed", (idle(),), threads=still)
    yield _unseen("a job at work, not seen before", "compute")
    yield _unseen("a collective, not seen before", "communication", (spins("h100"),), board="h100", gpus=2)
    full_cpu = (Thread("python", 1.0, "R"),)
    yield _unseen("one thread fills a CPU, not seen before", "cpu", (waits(0.3),), threads=full_cpu)


_unseen = partial(State, unseen_before=True)


def _links() -> Iterator[State]:
    narrow = Link(width=4)
    yield State("a narrow link carries nothing", "compute", (narrow, Readings(receive=5e5)), board="h100")
    yield State("a narrow link, and nobody knows what it carries", "pcie_link", (narrow,), board="v100")
    for name, numbers in (
        ("", busy(0.99, watts=320, receive=5.5e10, transmit=1e9, sm_active=0.3)),
        (" the other way", busy(0.99, watts=320, receive=1e9, transmit=5.4e10, sm_active=0.3)),
        (" while the GPU waits", waits(0.55, "h100", receive=5.2e10)),
    ):
        yield State(f"a wide link that is full{name}", "pcie_link", (numbers,), board="h100")
    slow = Disk(DISK, busy=0.99, read_seconds=0.05, reads_per_second=900)
    four = (waits(0.25, "h100"), slow, Pressure("io", 0.8, 0.4), cgroup(0, 1, 2, 3, io_pressure=0.8))
    h100: Any = {"board": "h100", "gpus": 4, "always": (on(2, narrow),)}
    yield State("four wait for a disk, one on a narrow link", "storage", four, threads=ON_DISK, **h100)


def _band() -> Iterator[State]:
    full = (Thread("python", 0.998, "R"), Thread("pt_data_pin", 0.1))
    for share in (0.72, 0.74, 0.78):
        yield starved(f"busy {share:.0%} behind one full thread", "cpu", share, threads=full)
        yield State(f"busy {share:.0%}, nothing scarce", "compute", (waits(share),))
    slow = (FULL_DISK, cgroup(0, io_pressure=0.6), Pressure("io", 0.6, 0.2))
    yield starved("busy 76% behind a slow disk", "storage", 0.76, *slow, threads=ON_DISK)
    for share in (0.2, 0.4, 0.6):
        yield starved(f"falls to {share:.0%}, no cause", "unattributed", share)
    yield State(
        "always busy 60%, no cause", "unattributed", before=waits(0.6), was="unattributed", threads=WAITS_FOR_LOADERS
    )


def _clocks() -> Iterator[State]:
    for board, sm in (("l40s", 1260), ("h100", 990), ("a100", 705)):
        locked = Readings(sm_mhz=sm, reasons=("applications_clocks",), power_watts=BOARDS[board].idle_watts * 2)
        yield State(f"clocks locked at half, {board}", "clock_cap", (locked,), board=board)
        yield State(f"all clocks locked at half, {board}", "clock_cap", (locked,), board=board, gpus=4)
    for reason in ("board_limit", "reliability"):
        yield State(f"held at 0.7 by {reason}", "clock_cap", (Readings(sm_mhz=1700, reasons=(reason,)),))
        yield State(f"hardly held by {reason}", "compute", (Readings(sm_mhz=2400, reasons=(reason,)),))
    limit = (PowerLimit(300.0), Readings(power_watts=240, sm_mhz=2385))
    yield State("a lowered power limit that it does not reach", "compute", limit)


def _heat() -> Iterator[State]:
    slow, hot = ("hw_thermal", "hw_slowdown"), ("sw_thermal",)
    for name, wanted, numbers in (
        ("hardware slows it for heat", "thermal", Readings(sm_mhz=1100, reasons=slow, power_watts=170, celsius=92.0)),
        ("the driver slows it for heat", "thermal", Readings(sm_mhz=1500, reasons=hot, power_watts=210, celsius=92.0)),
        ("hot and at its pace", "compute", Readings(celsius=83.0)),
    ):
        yield State(name, wanted, (numbers,))
    for name, reasons in (
        ("a power brake", ("hw_power_brake", "hw_slowdown")),
        ("the board slows it, no reason given", ("hw_slowdown",)),
    ):
        yield State(name, "power_brake", (Readings(sm_mhz=900, reasons=reasons, power_watts=150),))


def _cpus() -> Iterator[State]:
    for share in (0.25, 0.5):
        node = Cpu(node=0, user=0.95, system=0.03)
        yield starved(f"node full at {share:.0%}", "cpu", share, node, threads=loaders(0.6))
    yield starved("the other node is full", "unattributed", 0.4, Cpu(node=1, user=0.95, system=0.03))
    limit = cgroup(0, cpus=4.0, throttled=0.8, cpu_pressure=0.7)
    yield starved("its own CPU limit", "cpu", 0.4, limit, threads=loaders(0.5, 6, main=0.4))
    yield starved("a CPU limit that it does not reach", "unattributed", 0.4, cgroup(0, cpus=16.0, throttled=0.0))
    limit = cgroup(0, memory_gib=32.0, memory_events_per_second=40.0, memory_pressure=0.4)
    yield starved("its own memory limit", "memory", 0.4, limit)


def _storage() -> Iterator[State]:
    full = (FULL_DISK, Pressure("io", 0.7, 0.3))
    yield starved("a full disk", "storage", 0.3, *full, cgroup(0, io_pressure=0.7), threads=ON_DISK)
    yield starved("somebody else's full disk", "unattributed", 0.3, *full, cgroup(0, io_pressure=0.01))
    yield State("somebody else's full disk while it computes", "compute", full)
    slow = (SLOW_NFS, cgroup(0, io_pressure=0.5), Pressure("io", 0.5, 0.2))
    yield starved("slow NFS", "storage", 0.35, *slow, threads=ON_NFS)
    yield starved("Lustre that waits", "storage", 0.2, threads=blocked("ptlrpc_set_wait", 8))
    yield starved("GPFS that waits", "storage", 0.2, threads=blocked("cxiWaitEventWait", 8))
    driver = (Thread("python", 0.1, "D", "uvm_va_space_down_write"), Thread("pt_data_pin", 0.0))
    yield starved("GPU waits, the job's threads wait for the driver", "unattributed", 0.3, threads=driver)


def _network() -> Iterator[State]:
    yield starved("InfiniBand at line rate", "network", 0.5, Network(FABRIC, 4.7e10, 4.7e10))
    yield starved("TCP retransmits", "network", 0.4, tcp(0.11))
    yield starved("an interface that drops", "network", 0.4, Network(LAN, 1.2e9, 9e7, drops_per_second=4000))
    yield State("TCP retransmits beside a job that computes", "compute", (tcp(0.11),))


def _sick() -> Iterator[State]:
    yield State("falls off the bus", "sick", (Lost(),))
    yield State("Xid 48", "sick", (Xid(48),))
    yield State("needs a reset", "sick", (ResetRequired(),))
    yield State("a recovery action", "sick", (RecoveryAction(1),))
    yield State("uncorrected memory errors", "sick", (EccErrors(uncorrected=3),), board="h100")
    yield State("an application's Xid", "compute", (Xid(31),))


def _ends() -> Iterator[State]:
    gone = idle(power_watts=32.0, sm_mhz=210, performance_state=8, reasons=("idle",))
    yield State("the job ends", "idle", (gone, Kill((4100,))))
    yield State("a starved job ends", "idle", (gone, Kill((4100,)), cgroup(0)), before=waits(0.3), was="unattributed")
    yield State(
        "the job of one GPU of four ends", {1: "idle", 0: "compute"}, (on(1, gone), Kill((4110,))), gpus=4, jobs=True
    )


def _pauses() -> Iterator[State]:
    disk = Disk(DISK, writes_per_second=800, write_bytes_per_second=9e8, write_seconds=0.001, busy=0.5)
    for watts in (85.0, 140.0):
        saves = (idle(power_watts=watts), disk)
        yield State(f"a checkpoint's pause at {watts:.0f} W", "compute", saves, threads=(Thread("python", 0.7, "R"),))
    yield State("a short evaluation at 60%", "compute", (waits(0.75),))


FAMILIES: Final[Mapping[str, tuple[Callable[[], Iterator[State]], ...]]] = {
    "communication or not": (_memory_bound,),
    "not seen before": (_no_history,),
    "PCIe": (_links,),
    "around 70 % busy": (_band,),
    "clocks and power": (_clocks,),
    "heat and brakes": (_heat,),
    "CPUs and memory": (_cpus,),
    "storage": (_storage,),
    "network": (_network,),
    "sick": (_sick,),
    "the end of a job": (_ends,),
    "pauses": (_pauses,),
    "other cards": (machines.cards, machines.mig, machines.virtual_machines),
    "other jobs": (machines.servers, machines.jobs),
    "hangs": (machines.hangs, stops, spinning),
    "late readings": (late_readings,),
}
STATES: Final = tuple(
    replace(state, kind=kind) for kind, families in FAMILIES.items() for family in families for state in family()
)
