"""The states: what a machine reports in each, and what somebody who diagnoses GPUs calls it.

Beside each state stand healthy twins, with the same numbers on the other side of what makes the difference.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tests.states import machines, twins
from tests.states.hangs import late_readings, spinning, stops
from tests.states.numbers_of_gpus import WAITS_FOR_LOADERS, blocked, busy, cgroup, idle, spins, starved, tcp, waits
from tests.states.peers import peers
from tests.states.play import BOARDS, DISK, FABRIC, LAN, MOUNT, State, Thread, on

from gpu_triage_simulator.effects import EccErrors, Link, Lost, PowerLimit, RecoveryAction, ResetRequired, Xid
from gpu_triage_simulator.host_effects import Cpu, Disk, Kill, Network, Nfs, Pressure, Swap
from gpu_triage_simulator.readings import Readings


def _memory_bound() -> Iterator[State]:
    numbers = {"a10": 92, "t4": 32, "3090": 150, "4090": 190, "l40s": 150}
    for board, watts in numbers.items():
        decode = busy(1.0, memory=0.72, watts=watts)
        yield State(f"memory-bound decoding on one {board}", "compute", (decode,), board=board)
        yield State(
            f"memory-bound decoding on four {board}, a server each",
            "compute",
            (decode,),
            board=board,
            gpus=4,
            jobs=True,
        )
        yield State(f"a collective on two {board}", "communication", (spins(board),), board=board, gpus=2)
    yield State("small kernels, nobody to talk to", "compute", (busy(1.0, memory=0.06, watts=105),))
    yield State(
        "small kernels on four cards, a job each", "compute", (busy(1.0, memory=0.06, watts=105),), gpus=4, jobs=True
    )
    light = busy(1.0, memory=0.5, watts=240, sm_active=0.3, tensor_active=0.05, dram_active=0.7, fp32_active=0.05)
    yield State("memory-bound decoding with GPM", "compute", (light,), board="h100", gpus=2)
    yield State("a collective with GPM", "communication", (spins("h100"),), board="h100", gpus=4)
    yield State("a collective on an A100", "communication", (spins("a100"),), board="a100", gpus=4)
    yield State(
        "seven wait for GPU 3, which works",
        {0: "communication", 2: "communication", 3: "compute"},
        tuple(on(n, spins("h100")) for n in (0, 1, 2)),
        board="h100",
        gpus=4,
    )
    over_fabric = Network(FABRIC, 2e9, 2e9)
    yield State(
        "one card of a job on many hosts waits for them",
        "communication",
        (spins("h100"), over_fabric),
        board="h100",
        always=(Network(FABRIC, 2e10, 2e10),),
    )


def _no_history() -> Iterator[State]:
    dead = (
        Nfs(MOUNT, reads_per_second=0.0, getattrs_per_second=0.0),
        Cpu(user=0.06, iowait=0.14),
        Pressure("io", 0.99, 0.4),
    )
    for board in ("l40s", "h100"):
        yield State(
            f"a dead NFS server, not seen before, {board}",
            "storage",
            (idle(board), *dead, cgroup(0, io_pressure=0.99)),
            threads=blocked("rpc_wait_bit_killable"),
            board=board,
            unseen_before=True,
        )
        yield State(
            f"a dead NFS server, {board}",
            "storage",
            (idle(board), *dead, cgroup(0, io_pressure=0.99)),
            threads=blocked("rpc_wait_bit_killable"),
            board=board,
        )
    yield starved(
        "a full disk, not seen before",
        "storage",
        0.3,
        Disk(DISK, busy=0.99, read_seconds=0.04, reads_per_second=900),
        Pressure("io", 0.8, 0.3),
        cgroup(0, io_pressure=0.8),
        threads=blocked("folio_wait_bit_common"),
        unseen_before=True,
    )
    yield State(
        "Lustre, not seen before", "storage", (idle(),), threads=blocked("ptlrpc_set_wait", 8), unseen_before=True
    )
    swapping = (Swap(6e7, 4e7, 15.0), Pressure("memory", 0.9, 0.6))
    yield State(
        "a host that swaps, not seen before",
        "memory",
        (idle(), *swapping, cgroup(0, memory_pressure=0.9)),
        threads=blocked("swap_readpage", 2),
        unseen_before=True,
    )
    yield starved(
        "a host that swaps",
        "memory",
        0.2,
        *swapping,
        cgroup(0, memory_pressure=0.9),
        threads=blocked("swap_readpage", 2),
    )
    # The host is short of something, and not this job, which has been idle since before anybody looked.
    full = Disk(DISK, busy=0.99, read_seconds=0.04, reads_per_second=900)
    yield State(
        "an idle notebook beside a backup, not seen before",
        "unattributed",
        (idle(), full, Pressure("io", 0.6, 0.2)),
        threads=(Thread("python", 0.0),),
        unseen_before=True,
    )
    yield State(
        "an idle notebook, not seen before",
        "unattributed",
        (idle(),),
        threads=(Thread("python", 0.0),),
        unseen_before=True,
    )
    yield State("a job at work, not seen before", "compute", (), unseen_before=True)
    yield State(
        "a collective, not seen before", "communication", (spins("h100"),), board="h100", gpus=2, unseen_before=True
    )
    yield starved(
        "one thread fills a CPU, not seen before", "cpu", 0.3, threads=(Thread("python", 1.0, "R"),), unseen_before=True
    )


def _links() -> Iterator[State]:
    narrow = Link(width=4)
    yield State("a narrow link carries nothing", "compute", (narrow, Readings(receive=5e5)), board="h100")
    yield State("a narrow link, and nobody knows what it carries", "pcie_link", (narrow,), board="v100")
    yield State(
        "a wide link that is full",
        "pcie_link",
        (busy(0.99, watts=320, receive=5.5e10, transmit=1e9, sm_active=0.3),),
        board="h100",
    )
    yield State(
        "a wide link that is full the other way",
        "pcie_link",
        (busy(0.99, watts=320, receive=1e9, transmit=5.4e10, sm_active=0.3),),
        board="h100",
    )
    yield State(
        "a wide link that is full while the GPU waits",
        "pcie_link",
        (waits(0.55, "h100", receive=5.2e10),),
        board="h100",
    )
    starved = (Disk(DISK, busy=0.99, read_seconds=0.05, reads_per_second=900), Pressure("io", 0.8, 0.4))
    yield State(
        "four wait for a disk, one on a narrow link",
        "storage",
        (waits(0.25, "h100"), *starved, cgroup(0, 1, 2, 3, io_pressure=0.8)),
        threads=blocked("folio_wait_bit_common"),
        always=(on(2, narrow),),
        board="h100",
        gpus=4,
    )


def _band() -> Iterator[State]:
    for share in (0.72, 0.74, 0.78):
        yield starved(
            f"busy {share:.0%} behind one full thread",
            "cpu",
            share,
            threads=(Thread("python", 0.998, "R"), Thread("pt_data_pin", 0.1)),
        )
        yield State(f"busy {share:.0%}, nothing scarce", "compute", (waits(share),))
    yield starved(
        "busy 76% behind a slow disk",
        "storage",
        0.76,
        Disk(DISK, busy=0.99, read_seconds=0.04, reads_per_second=900),
        cgroup(0, io_pressure=0.6),
        Pressure("io", 0.6, 0.2),
        threads=blocked("folio_wait_bit_common"),
    )
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
    yield State(
        "a lowered power limit that it does not reach",
        "compute",
        (PowerLimit(300.0), Readings(power_watts=240, sm_mhz=2385)),
    )


def _heat() -> Iterator[State]:
    yield State(
        "hardware slows it for heat",
        "thermal",
        (Readings(sm_mhz=1100, reasons=("hw_thermal", "hw_slowdown"), power_watts=170, celsius=92.0),),
    )
    yield State(
        "the driver slows it for heat",
        "thermal",
        (Readings(sm_mhz=1500, reasons=("sw_thermal",), power_watts=210, celsius=92.0),),
    )
    yield State("hot and at its pace", "compute", (Readings(celsius=83.0),))
    yield State(
        "a power brake",
        "power_brake",
        (Readings(sm_mhz=900, reasons=("hw_power_brake", "hw_slowdown"), power_watts=150),),
    )
    yield State(
        "the board slows it, no reason given",
        "power_brake",
        (Readings(sm_mhz=900, reasons=("hw_slowdown",), power_watts=150),),
    )


def _cpus() -> Iterator[State]:
    for share in (0.25, 0.5):
        yield starved(
            f"node full at {share:.0%}",
            "cpu",
            share,
            Cpu(node=0, user=0.95, system=0.03),
            threads=(Thread("python", 0.3, "R"), *([Thread("pt_data_worker", 0.6, "R")] * 8)),
        )
    yield starved("the other node is full", "unattributed", 0.4, Cpu(node=1, user=0.95, system=0.03))
    yield starved(
        "its own CPU limit",
        "cpu",
        0.4,
        cgroup(0, cpus=4.0, throttled=0.8, cpu_pressure=0.7),
        threads=(Thread("python", 0.4, "R"), *([Thread("pt_data_worker", 0.5, "R")] * 6)),
    )
    yield starved("a CPU limit that it does not reach", "unattributed", 0.4, cgroup(0, cpus=16.0, throttled=0.0))
    yield starved(
        "its own memory limit",
        "memory",
        0.4,
        cgroup(0, memory_gib=32.0, memory_events_per_second=40.0, memory_pressure=0.4),
    )


def _storage() -> Iterator[State]:
    full = Disk(DISK, busy=0.99, read_seconds=0.04, reads_per_second=900)
    slow = Nfs(MOUNT, 90, 9e7, 0.11)
    yield starved(
        "a full disk",
        "storage",
        0.3,
        full,
        Pressure("io", 0.7, 0.3),
        cgroup(0, io_pressure=0.7),
        threads=blocked("folio_wait_bit_common"),
    )
    yield starved(
        "somebody else's full disk", "unattributed", 0.3, full, Pressure("io", 0.7, 0.3), cgroup(0, io_pressure=0.01)
    )
    yield State("somebody else's full disk while it computes", "compute", (full, Pressure("io", 0.7, 0.3)))
    yield starved(
        "slow NFS",
        "storage",
        0.35,
        slow,
        cgroup(0, io_pressure=0.5),
        Pressure("io", 0.5, 0.2),
        threads=blocked("rpc_wait_bit_killable"),
    )
    yield starved("Lustre that waits", "storage", 0.2, threads=blocked("ptlrpc_set_wait", 8))
    yield starved("GPFS that waits", "storage", 0.2, threads=blocked("cxiWaitEventWait", 8))
    yield starved(
        "GPU waits, the job's threads wait for the driver",
        "unattributed",
        0.3,
        threads=(Thread("python", 0.1, "D", "uvm_va_space_down_write"), Thread("pt_data_pin", 0.0)),
    )


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
    for watts in (85.0, 140.0):
        yield State(
            f"a checkpoint's pause at {watts:.0f} W",
            "compute",
            (
                idle(power_watts=watts),
                Disk(DISK, writes_per_second=800, write_bytes_per_second=9e8, write_seconds=0.001, busy=0.5),
            ),
            threads=(Thread("python", 0.7, "R"),),
        )
    yield State("a short evaluation at 60%", "compute", (waits(0.75),))


FAMILIES: Final[Mapping[str, tuple[Callable[[], Iterator[State]], ...]]] = {
    "communication or not": (_memory_bound, twins.communication),
    "not seen before": (_no_history, twins.own_stalls),
    "PCIe": (_links, twins.links),
    "around 70 % busy": (_band, twins.band),
    "clocks and power": (_clocks, twins.clocks, peers),
    "heat and brakes": (_heat,),
    "CPUs and memory": (_cpus,),
    "storage": (_storage,),
    "network": (_network, twins.networks),
    "sick": (_sick,),
    "the end of a job": (_ends, twins.ends),
    "pauses": (_pauses,),
    "other cards": (machines.cards, machines.mig, machines.virtual_machines),
    "other jobs": (machines.servers, machines.jobs),
    "hangs": (machines.hangs, stops, spinning),
    "late readings": (late_readings,),
}
STATES: Final = tuple(
    replace(state, kind=kind) for kind, families in FAMILIES.items() for family in families for state in family()
)
