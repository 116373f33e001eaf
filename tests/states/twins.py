"""Twins on both sides of what decides: the same numbers, with a little less and a little more of one of them."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from tests.states.numbers_of_gpus import (
    FULL_DISK,
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
from tests.states.play import FABRIC, LAN, State, Thread, on

from gpu_triage_simulator.effects import Link, PowerLimit
from gpu_triage_simulator.host_effects import Cpu, Kill, Network, Pressure
from gpu_triage_simulator.readings import Readings

_SENDS: Final = (Network(FABRIC, 2e10, 2e10),)


def communication() -> Iterator[State]:
    """Resident, not working, and with somebody to talk to."""
    for board, memory, wanted in (
        ("l40s", 0.06, "communication"),
        ("l40s", 0.15, "compute"),
        ("3090", 0.06, "communication"),
        ("3090", 0.15, "compute"),
    ):
        numbers = spins(board, memory_utilization=memory)
        yield State(f"a collective on two {board}, memory {memory:.0%}", wanted, (numbers,), board=board, gpus=2)
    for watts, wanted in ((145.0, "communication"), (190.0, "compute")):
        numbers = spins(power_watts=watts)
        yield State(f"a collective at {watts:.0f} of 350 W", wanted, (numbers,), gpus=2)
    for share, wanted in ((0.4, "communication"), (0.62, "compute")):
        numbers = spins("h100", sm_active=share, power_watts=260.0)
        yield State(f"a collective with SMs active {share:.0%}", wanted, (numbers,), board="h100", gpus=2)
    for sent, wanted in ((2e7, "communication"), (1e5, "compute")):
        spinning, always = (spins("h100"), Network(FABRIC, sent, sent)), _SENDS if wanted == "communication" else ()
        yield State(f"one card spins, RDMA sends {sent:,.0f} bytes/s", wanted, spinning, board="h100", always=always)


def own_stalls() -> Iterator[State]:
    """What the job itself waits for, seen at once."""
    for share, wanted in ((0.35, "storage"), (0.08, "unattributed")):
        stalls = f"not seen before, the job stalls for I/O {share:.0%}"
        yield starved(stalls, wanted, 0.4, cgroup(0, io_pressure=share), unseen_before=True)
    for share, wanted in ((0.25, "memory"), (0.03, "unattributed")):
        stalls = f"not seen before, the job stalls for memory {share:.0%}"
        yield starved(stalls, wanted, 0.4, cgroup(0, memory_pressure=share), unseen_before=True)
    one = (*WAITS_FOR_LOADERS, *blocked("ptlrpc_set_wait", 1), *([Thread("pt_data_worker", 0.5, "R")] * 11))
    name = "not seen before, one of twelve loaders waits for Lustre"
    yield starved(name, "unattributed", 0.4, threads=one, unseen_before=True)


def links() -> Iterator[State]:
    """Bytes a second against what the link can do now: 63.0 GB/s at PCIe 5 x16, 15.8 at 5 x4, 4.0 at 1 x16."""
    for received, wanted in ((4.5e10, "compute"), (5.0e10, "pcie_link")):
        numbers = busy(0.99, watts=330, sm_active=0.4, receive=received)
        yield State(f"an H100 receives {received / 1e9:.0f} GB/s", wanted, (numbers,), board="h100")
    for received, wanted in ((1.05e10, "compute"), (1.35e10, "pcie_link")):
        numbers = Readings(receive=received)
        yield State(f"x4 receives {received / 1e9:.1f} GB/s", wanted, (Link(width=4), numbers), board="h100")
    for received, wanted in ((2.2e9, "compute"), (3.4e9, "pcie_link")):
        old = (Link(generation=1), Readings(receive=received))
        yield State(f"generation 1 receives {received / 1e9:.1f} GB/s", wanted, old, board="h200")
    full, h100 = (waits(0.3, "h100"), Cpu(node=0, user=0.95, system=0.03)), partial(State, board="h100", gpus=2)
    narrow = (on(1, Link(width=4)),)
    yield h100("all wait for CPUs, and one for its narrow link too", "cpu", full, always=narrow, threads=loaders(0.6))


def band() -> Iterator[State]:
    """Around 70 % busy, where what the job waits for decides."""
    full = (Thread("python", 0.996, "R"), Thread("pt_data_pin", 0.1))
    for share, wanted in ((0.66, "cpu"), (0.8, "cpu"), (0.87, "compute")):
        yield starved(f"busy {share:.0%} behind a thread at 99.6%", wanted, share, threads=full)
    for busiest, wanted in ((0.99, "cpu"), (0.93, "unattributed")):
        threads = (Thread("python", busiest, "R"), Thread("pt_data_pin", 0.1))
        yield starved(f"busy 50% behind a thread at {busiest:.0%}", wanted, 0.5, threads=threads)
    workers = [Thread("pt_data_worker", 0.88, "R")] * 24
    yield starved("24 workers at 88%", "unattributed", 0.45, threads=(Thread("python", 0.1), *workers))
    yield State("24 workers at 88% and full pace", "compute", threads=(Thread("python", 0.1), *workers))
    yield State("busy 68%, nothing scarce, after 74%", "compute", (waits(0.68),), before=waits(0.74))
    for share, wanted in ((0.3, "storage"), (0.06, "unattributed")):
        numbers = (waits(0.6), cgroup(0, io_pressure=share))
        yield State(f"busy 60%, stalls for I/O {share:.0%}", wanted, numbers, threads=WAITS_FOR_LOADERS)


def clocks() -> Iterator[State]:
    """Below and above 0.8 of the maximum: 2,520 MHz of an L40S, 1,980 of an H100, 1,410 of an A100."""
    for board, low, high in (("l40s", 1900, 2100), ("h100", 1500, 1665), ("a100", 1065, 1200)):
        for clock, wanted in ((low, "clock_cap"), (high, "compute")):
            numbers = Readings(sm_mhz=clock, reasons=("applications_clocks",))
            yield State(f"{board} held at {clock} MHz", wanted, (numbers,), board=board)
    yield State("slow for no reason", "compute", (Readings(sm_mhz=1700, reasons=()),))
    yield State("slow and idle in between", "compute", (Readings(sm_mhz=1700, reasons=("idle",)),))
    held = waits(0.3, sm_mhz=1260, reasons=("applications_clocks",))
    yield State("held clocks while it waits", "cpu", (held,), threads=(Thread("python", 1.0, "R"),))
    for limit, watts, wanted in ((250.0, 248.0, "power_cap"), (348.0, 347.0, "compute")):
        numbers = Readings(power_watts=watts, sm_mhz=1900, reasons=("sw_power_cap",))
        yield State(f"at a limit of {limit:.0f} of 350 W", wanted, (PowerLimit(limit), numbers))


def networks() -> Iterator[State]:
    for lost, wanted in ((0.035, "network"), (0.012, "unattributed")):
        yield starved(f"TCP sends {lost:.1%} again", wanted, 0.4, tcp(lost))
    yield starved("TCP loses a third of hardly anything", "unattributed", 0.4, tcp(0.3, segments_per_second=40))
    for share, wanted in ((0.97, "network"), (0.75, "unattributed")):
        numbers = (waits(0.4), Network(LAN, 3.125e9 * share, 9e7))
        yield State(f"an Ethernet at {share:.0%} of line rate", wanted, numbers, threads=WAITS_FOR_LOADERS)


def ends() -> Iterator[State]:
    """A class ends with its job."""
    gone = idle(power_watts=32.0, sm_mhz=210, performance_state=8, reasons=("idle",))
    stalls = (waits(0.3), FULL_DISK, Pressure("io", 0.7, 0.3), cgroup(0, io_pressure=0.7))
    ended = (gone, Kill((4100,)), cgroup(0))
    yield State("the job ends that waited for a disk", "idle", ended, always=stalls, was="storage")
    both = Kill((4100, 4110))
    yield State("the job ends that spun", "idle", (gone, both), before=spins(), was="communication", gpus=2)
    wanted = {0: "idle", 1: "idle", 2: "compute", 3: "compute"}
    yield State("one of two jobs ends", wanted, (on(0, gone), on(1, gone), both), gpus=4, job_of=(0, 0, 1, 1))
    stays = partial(State, threads=(Thread("python", 0.0),), before=waits(0.3), was="unattributed")
    yield stays("its processes stay, and do nothing", "unattributed", (idle(),))
