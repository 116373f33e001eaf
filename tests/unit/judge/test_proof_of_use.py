"""A class needs proof that this job lacks this resource now: each proof on both sides of its threshold."""

from types import MappingProxyType
from typing import NamedTuple

import pytest
from tests.evidence import Key, Readings, steady

from gpu_triage.judge.bottleneck.classes import Bottleneck, Case, Work, bottleneck_of
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.remember import is_held
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.read.gpu import activity, device_memory, pcie, power
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.modes import GPU_MEMORY_OS_MANAGED
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.host import cpu, host_memory, infiniband, network_interfaces
from gpu_triage.read.host.pcie_uplinks import bytes_per_second
from gpu_triage.read.metrics.contract import known
from gpu_triage.read.processes import cgroup_limits, threads
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESS_MEMORY_BYTES, GPU_PROCESSES

GPU, PEER = ("0", "GPU-0"), ("1", "GPU-1")
WATTS = 400.0
ABOVE, BELOW = 1.001, 0.999
"""Just beyond a threshold and just short of it: counters are sums of floats."""
NONE: Readings = MappingProxyType({})


def limit(code: str, name: str) -> float:
    return LIMITS[code][name].value


def always(busy: float) -> Readings:
    """A GPU with a process."""
    return {
        (GPU_UP, GPU): 1.0,
        (GPU_PROCESSES, (*GPU, "compute")): 1.0,
        (activity.GPU_SM_UTILIZATION_RATIO, GPU): busy,
        (power.GPU_POWER_LIMIT_WATTS, GPU): WATTS,
        (power.GPU_POWER_WATTS, GPU): WATTS * 0.9,
    }


def judged(
    busy: float, more: Readings = NONE, *, worked: bool = True, current: str | None = None, seconds: int = 60
) -> Bottleneck:
    """What is said of a GPU with a process that has been like this for so long; of ten seconds, as of the last ones."""
    host, work = steady({**always(busy), **more}, seconds), Work()
    work.worked_recently = worked
    return bottleneck_of(Case(host.gpus[0], host, work, current, soon=seconds == thresholds.SOON_SECONDS))


def blocked(channel: str, count: float, running: float = 0.0) -> Readings:
    """Threads of the job that wait in the kernel, and those that run."""
    return {
        (threads.GPU_BLOCKED_THREAD_SECONDS_TOTAL, (*GPU, channel)): count,
        (threads.GPU_RUNNING_THREAD_SECONDS_TOTAL, GPU): running,
    }


def stalled(resource: str, share: float) -> Readings:
    return {(cgroup_limits.GPU_CGROUP_PRESSURE_SECONDS_TOTAL, (*GPU, "/job", resource, "some")): share}


def thread(share: float) -> Readings:
    """The busiest thread of the job."""
    return {
        (threads.GPU_BUSIEST_THREAD_RATIO, (*GPU, "4242", "python3")): share,
        (threads.GPU_RUNNING_THREAD_SECONDS_TOTAL, GPU): 1.0,
    }


def throttled(share: float, cpus: float) -> Readings:
    """A CPU limit that stops the job in a share of the periods, and takes so many CPUs from it."""
    job = (*GPU, "/job")
    return {
        (cgroup_limits.GPU_CGROUP_CPU_LIMIT_CPUS, job): 4.0,
        (cgroup_limits.GPU_CGROUP_CPU_PERIODS_TOTAL, job): 10.0,
        (cgroup_limits.GPU_CGROUP_CPU_THROTTLED_PERIODS_TOTAL, job): 10.0 * share,
        (cgroup_limits.GPU_CGROUP_CPU_THROTTLED_SECONDS_TOTAL, job): cpus,
    }


def held_by(reason: str) -> Key:
    return GPU_THROTTLE_SECONDS_TOTAL, (*GPU, reason)


IN_IO: Key = (cpu.GPU_HOST_PRESSURE_SECONDS_TOTAL, ("io", "some"))
IN_MEMORY: Key = (cpu.GPU_HOST_PRESSURE_SECONDS_TOTAL, ("memory", "some"))
HOST_WAITS, HOST_SWAPS = {IN_IO: 0.9}, {IN_MEMORY: 0.9}
SHARE, FEW = limit("storage.starved", "blocked"), thresholds.BLOCKED_THREADS
IO, MEMORY = limit("storage.starved", "pressure"), limit("memory.starved", "pressure")
FULL, STOPPED = limit("cpu.starved", "busiest"), limit("cpu.limited", "share")


@pytest.mark.parametrize(
    ("stalls", "name"),
    [
        pytest.param(blocked("rpc_wait_bit_killable", FEW * ABOVE), "storage", id="a thread in D"),
        pytest.param(blocked("rpc_wait_bit_killable", FEW * BELOW), "unattributed", id="hardly ever in D"),
        pytest.param(blocked("nfs_wait", 10 * SHARE * ABOVE, 10 * (1 - SHARE)), "storage", id="many in D"),
        pytest.param(blocked("nfs_wait", 10 * SHARE * BELOW, 10 * (1 - SHARE)), "unattributed", id="few of many in D"),
        pytest.param(blocked("uvm_va_space_down_write", 4.0), "unattributed", id="in D for the driver"),
        pytest.param(stalled("io", IO * ABOVE), "storage", id="its cgroup waits for I/O"),
        pytest.param(stalled("io", IO * BELOW), "unattributed", id="its cgroup hardly waits for I/O"),
        pytest.param(stalled("memory", MEMORY * ABOVE), "memory", id="its cgroup waits for memory"),
        pytest.param(stalled("memory", MEMORY * BELOW), "unattributed", id="its cgroup hardly waits for memory"),
        pytest.param(stalled("cpu", 1.0), "unattributed", id="PSI of CPUs proves nothing"),
        pytest.param(HOST_WAITS, "unattributed", id="only the host waits"),
        pytest.param({**HOST_WAITS, **stalled("io", IO * ABOVE)}, "storage", id="host and job wait"),
    ],
)
def test_what_a_job_itself_stalls_for_needs_no_history(stalls: Readings, name: str) -> None:
    assert judged(0.0, stalls, worked=False).name == name


@pytest.mark.parametrize(
    ("stalls", "name"),
    [
        pytest.param(thread(FULL), "cpu", id="a thread fills a CPU"),
        pytest.param(thread(FULL - 0.001), "unattributed", id="no thread fills a CPU"),
        pytest.param(throttled(STOPPED, 1.0), "cpu", id="its CPU limit"),
        pytest.param(throttled(STOPPED * BELOW, 1.0), "unattributed", id="its CPU limit, seldom"),
        pytest.param(throttled(STOPPED, thresholds.THROTTLED_CPUS * BELOW), "unattributed", id="it costs hardly a CPU"),
    ],
)
def test_full_cpus_are_what_a_gpu_waits_for_if_it_works_at_all(stalls: Readings, name: str) -> None:
    assert judged(thresholds.WORKING_SHARE * ABOVE, stalls, worked=False).name == name
    assert judged(thresholds.WORKING_SHARE * BELOW, stalls, worked=False).name == "unattributed"


VIDEO: Readings = {(activity.GPU_ENCODER_UTILIZATION_RATIO, GPU): 0.65}
BORDER, STALLS = thresholds.WAITING_BELOW_SHARE, thresholds.OWN_STALL_SHARE

BUSY = [
    pytest.param(BORDER, NONE, "compute", id="busy"),
    pytest.param(BORDER * BELOW, NONE, "unattributed", id="not busy"),
    pytest.param(BORDER, HOST_WAITS, "compute", id="busy, and its host waits"),
    pytest.param(BORDER * BELOW, HOST_WAITS, "storage", id="not busy, and its host waits"),
    pytest.param(0.0, HOST_WAITS, "storage", id="at a standstill, and its host waits"),
    pytest.param(0.08, {**HOST_WAITS, **VIDEO}, "unattributed", id="it encodes at the speed of its streams"),
    pytest.param(BORDER * BELOW, {**HOST_WAITS, **stalled("io", 0.01)}, "unattributed", id="its host, not its job"),
    pytest.param(STALLS * BELOW, thread(1.0), "cpu", id="mostly busy behind a full thread"),
    pytest.param(STALLS, thread(1.0), "compute", id="busy in spite of a full thread"),
    pytest.param(STALLS * BELOW, stalled("io", 0.5), "storage", id="mostly busy, and its job waits"),
    pytest.param(STALLS, stalled("io", 0.5), "compute", id="busy although its job waits"),
    pytest.param(STALLS, throttled(STOPPED, 1.0), "compute", id="busy in spite of its CPU limit"),
    pytest.param(BORDER * BELOW, {**HOST_SWAPS, **stalled("memory", 0.01)}, "unattributed", id="others stall"),
]
"""There is one border, and above it only the job's own stalls count."""

STILL, STILL_STALLS = thresholds.STILL_WAITING_SHARE, thresholds.STILL_OWN_STALL_SHARE


@pytest.mark.parametrize(
    ("busy", "more", "current", "name"),
    [
        pytest.param(STILL * BELOW, HOST_WAITS, "storage", "storage", id="its host: still waiting"),
        pytest.param(STILL * BELOW, HOST_WAITS, "compute", "compute", id="its host: not waiting yet"),
        pytest.param(STILL, HOST_WAITS, "storage", "compute", id="its host: no longer waiting"),
        pytest.param(STILL_STALLS * BELOW, thread(1.0), "cpu", "cpu", id="its job: still waiting"),
        pytest.param(STILL_STALLS * BELOW, thread(1.0), "compute", "compute", id="its job: not waiting yet"),
        pytest.param(STILL_STALLS, thread(1.0), "cpu", "compute", id="its job: no longer waiting"),
    ],
)
def test_a_gpu_that_waits_has_to_work_more_before_it_no_longer_does(
    busy: float, more: Readings, current: str, name: str
) -> None:
    assert judged(busy, more, current=current).name == name


SOON = thresholds.SOON_WAITING_SHARE


@pytest.mark.parametrize(
    ("busy", "more", "name"),
    [
        pytest.param(SOON * BELOW, HOST_WAITS, "storage", id="waits, and its host does"),
        pytest.param(SOON, HOST_WAITS, "unattributed", id="waits a little, and its host does"),
        pytest.param(SOON, stalled("io", 0.5), "storage", id="waits a little, and its job does"),
        pytest.param(thresholds.RESUMED_SHARE, NONE, "compute", id="busy all the time"),
        pytest.param(thresholds.RESUMED_SHARE * BELOW, NONE, "unattributed", id="busy most of the time"),
    ],
)
def test_a_few_seconds_have_to_show_more(busy: float, more: Readings, name: str) -> None:
    assert judged(busy, more, seconds=10).name == name


HEAT, BRAKE = limit("thermal.hw", "share"), limit("power.brake", "share")
LOWERED: Readings = {(power.GPU_POWER_DEFAULT_LIMIT_WATTS, GPU): 2 * WATTS, (power.GPU_POWER_WATTS, GPU): WATTS}


@pytest.mark.parametrize(
    ("reason", "name", "share", "factor"),
    [
        ("hw_thermal", "thermal", HEAT, 3.0),
        ("hw_power_brake", "power_brake", BRAKE, 3.0),
        ("sw_power_cap", "power_cap", thresholds.POWER_CAP_CLASS_SHARE, 1.6),
    ],
)
def test_a_few_seconds_of_throttling_have_to_show_more(reason: str, name: str, share: float, factor: float) -> None:
    found = {
        (held, seconds)
        for held in (BELOW, ABOVE, factor * BELOW, factor * ABOVE)
        for seconds in (10, 60)
        if judged(1.0, {held_by(reason): share * held, **LOWERED}, seconds=seconds).name == name
    }
    assert found == {(ABOVE, 60), (factor * BELOW, 60), (factor * ABOVE, 60), (factor * ABOVE, 10)}


def spins(*more: Readings, memory: float | None = 0.0) -> Readings:
    """A kernel all the time at little power."""
    readings: dict[Key, float] = {(power.GPU_POWER_WATTS, GPU): WATTS * 0.3}
    if memory is not None:
        readings[activity.GPU_MEMORY_UTILIZATION_RATIO, GPU] = memory
    for each in more:
        readings |= each
    return readings


def process(gpu: tuple[str, str], user: str) -> Readings:
    facts = {"pid": f"42{gpu[0]}", "process": "python", "user": user}
    labels = (*gpu, *(facts.get(label, "") for label in GPU_PROCESS_INFO.labels[2:]))
    return {(GPU_UP, gpu): 1.0, (GPU_PROCESSES, (*gpu, "compute")): 1.0, (GPU_PROCESS_INFO, labels): 1.0}


def rdma(bytes_per_second_: float) -> Readings:
    return {(infiniband.GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL, ("mlx5_0", "1")): bytes_per_second_}


ADA = {**process(GPU, "ada"), **process(PEER, "ada")}
AND_BOB = {**process(GPU, "ada"), **process(PEER, "bob")}
BY_GPM: Key = (activity.GPU_DRAM_ACTIVE_RATIO, GPU)
QUIET, TALK = thresholds.SPINNING_MEMORY_SHARE, thresholds.TALKING_BYTES_PER_SECOND

TALKING = [
    pytest.param(1.0, spins(ADA), "communication", id="a peer of the same user"),
    pytest.param(1.0, spins(ADA, {(GPU_UP, PEER): 0.0}), "compute", id="a peer that is lost"),
    pytest.param(1.0, spins(ADA, {(GPU_PROCESSES, (*PEER, "compute")): 0.0}), "compute", id="a peer without a process"),
    pytest.param(1.0, spins(AND_BOB), "compute", id="a peer of another user"),
    pytest.param(1.0, spins(AND_BOB, rdma(TALK * ABOVE)), "compute", id="others talk to hosts"),
    pytest.param(1.0, spins(process(GPU, "ada")), "compute", id="nobody"),
    pytest.param(1.0, spins(process(GPU, "ada"), rdma(TALK * ABOVE)), "communication", id="other hosts"),
    pytest.param(1.0, spins(process(GPU, "ada"), rdma(TALK * BELOW)), "compute", id="hardly any traffic"),
    pytest.param(1.0, spins(ADA, memory=QUIET * BELOW), "communication", id="its memory is hardly used"),
    pytest.param(1.0, spins(ADA, memory=QUIET), "compute", id="its memory is used"),
    pytest.param(1.0, spins(ADA, memory=None), "compute", id="nobody knows about its memory"),
    pytest.param(1.0, spins(ADA, {BY_GPM: QUIET * BELOW}, memory=0.5), "communication", id="GPM is exacter"),
    pytest.param(1.0, spins(ADA, {BY_GPM: QUIET}), "compute", id="and tells what works"),
]
"""Communication is not working while there is somebody to talk to."""


def test_a_peer_that_leaves_does_not_end_the_wait_for_it() -> None:
    alone = spins(process(GPU, "ada"))
    names = [judged(1.0, alone, current=each).name for each in (None, "compute", "communication")]
    assert names == ["compute", "compute", "communication"]


def link(generation: int | None = 4, lanes: int | None = 16, **moved: float) -> Readings:
    """A link that should be PCIe 4 x16, and what the GPU moves: counted, or sampled by NVML."""
    at: dict[Key, float | None] = {
        (activity.GPU_PERFORMANCE_STATE, GPU): 0.0,
        (pcie.GPU_PCIE_LINK_GENERATION, GPU): generation,
        (pcie.GPU_PCIE_LINK_WIDTH, GPU): lanes,
        (pcie.GPU_PCIE_LINK_EXPECTED_GENERATION, GPU): 4.0,
        (pcie.GPU_PCIE_LINK_EXPECTED_WIDTH, GPU): 16.0,
        (pcie.GPU_PCIE_RECEIVE_BYTES_TOTAL, GPU): moved.get("received"),
        (pcie.GPU_PCIE_TRANSMIT_BYTES_TOTAL, GPU): moved.get("sent"),
    }
    for direction in ("receive", "transmit"):
        at[pcie.GPU_PCIE_THROUGHPUT_BYTES_PER_SECOND, (*GPU, direction)] = moved.get(direction)
    return {key: value for key, value in at.items() if value is not None}


X16, X4, GEN1 = (
    thresholds.FULL_LINK_SHARE * bytes_per_second(generation, lanes) for generation, lanes in ((4, 16), (4, 4), (1, 16))
)

LINKS = [
    pytest.param(1.0, link(received=X16 * ABOVE, sent=0.0), "pcie_link", id="full"),
    pytest.param(1.0, link(received=0.0, sent=X16 * ABOVE), "pcie_link", id="full the other way"),
    pytest.param(1.0, link(received=X16 * BELOW, sent=X16 * BELOW), "compute", id="not full in either direction"),
    pytest.param(1.0, link(receive=X16 * ABOVE), "pcie_link", id="full by samples"),
    pytest.param(1.0, link(transmit=X16 * BELOW), "compute", id="not full by samples"),
    pytest.param(1.0, link(lanes=4, received=X4 * ABOVE), "pcie_link", id="narrow and full"),
    pytest.param(1.0, link(lanes=4, received=X4 * BELOW), "compute", id="narrow and not full"),
    pytest.param(1.0, link(1, received=GEN1 * ABOVE), "pcie_link", id="slow and full"),
    pytest.param(1.0, link(1, received=GEN1 * BELOW), "compute", id="slow and not full"),
    pytest.param(1.0, link(None, received=X16 * ABOVE), "compute", id="its generation is not known"),
    pytest.param(1.0, link(4, None, received=X16 * ABOVE), "compute", id="its width is not known"),
    pytest.param(0.3, link(received=X16 * ABOVE), "pcie_link", id="full while the GPU waits"),
    pytest.param(1.0, link(lanes=4), "pcie_link", id="narrow, and nobody knows what it carries"),
    pytest.param(1.0, link(1), "pcie_link", id="slow, and nobody knows what it carries"),
    pytest.param(1.0, link(), "compute", id="as it should be, and nobody knows what it carries"),
    pytest.param(thresholds.LOADED_SHARE * BELOW, link(lanes=4), "unattributed", id="narrow and hardly used"),
    pytest.param(0.3, {**link(lanes=4), **HOST_WAITS}, "storage", id="narrow while the host waits"),
    pytest.param(0.3, {**link(lanes=4), **thread(1.0)}, "cpu", id="narrow while a thread fills a CPU"),
]
"""A link is the bottleneck by what it carries."""


def test_lanes_that_the_board_does_not_have_are_no_bottleneck() -> None:
    """Of a board that splits the lanes of a slot over two GPUs, as cloud instances with A10G do."""
    alike: Readings = {(spec, PEER): value for (spec, labels), value in link(lanes=8).items() if labels == GPU}
    board: Readings = {**link(lanes=8), **alike, **process(PEER, "bob")}
    assert judged(1.0, board).name == "compute"
    assert judged(1.0, {**board, (pcie.GPU_PCIE_LINK_WIDTH, PEER): 16.0}).name == "pcie_link"


def test_a_narrow_link_whose_traffic_was_counted_once_is_not_accused_and_an_unknown_one_says_so() -> None:
    names = [judged(1.0, link(lanes=4, received=X4 * BELOW), seconds=seconds).name for seconds in (0, 5)]
    assert names == ["compute", "compute"]
    assert judged(1.0, link(lanes=4), seconds=0).name == "pcie_link"
    assert judged(1.0, link(lanes=4)).because.endswith("how much it carries is not known")
    assert "not known" not in judged(1.0, link(lanes=4, received=X4 * ABOVE)).because


MOST = 2000e6


def clocks(sm: float, share: float, reason: str, **more: float) -> Readings:
    """SM clock as a share of its highest, and what holds it for a share of the time."""
    readings: dict[Key, float] = {
        (activity.GPU_PERFORMANCE_STATE, GPU): more.get("p_state", 0.0),
        (power.GPU_CLOCK_HERTZ, (*GPU, "sm")): sm * MOST,
        (power.GPU_CLOCK_MAX_HERTZ, (*GPU, "sm")): more.get("most", MOST),
        (GPU_THROTTLE_SECONDS_TOTAL, (*GPU, reason)): share,
    }
    if "target" in more:
        readings[power.GPU_CLOCK_TARGET_HERTZ, (*GPU, "sm")] = more["target"] * MOST
        readings[power.GPU_CLOCK_DEFAULT_HERTZ, (*GPU, "sm")] = 0.9 * MOST
    return readings


LOW, HALF = thresholds.SLOWED_CLOCK_RATIO * BELOW, thresholds.SET_CLOCK_SHARE

CLOCKS = [
    *(
        pytest.param(1.0, clocks(LOW, HALF * ABOVE, reason), "clock_cap", id=reason)
        for reason in ("applications_clocks", "board_limit", "reliability", "sync_boost", "display_clocks")
    ),
    pytest.param(1.0, clocks(LOW, HALF * BELOW, "applications_clocks"), "compute", id="held for less than half"),
    pytest.param(1.0, clocks(0.8, 1.0, "applications_clocks"), "compute", id="hardly lower"),
    pytest.param(1.0, clocks(LOW, 1.0, "idle"), "compute", id="idle holds nothing"),
    pytest.param(1.0, clocks(LOW, 1.0, "sw_power_cap"), "compute", id="power is a class of its own"),
    pytest.param(1.0, clocks(LOW, 1.0, "hw_thermal"), "thermal", id="heat is a class of its own"),
    pytest.param(1.0, clocks(LOW, 1.0, "board_limit", most=0.0), "compute", id="its highest clock is not known"),
    pytest.param(1.0, clocks(LOW, 1.0, "board_limit", p_state=8.0), "compute", id="not under load"),
    pytest.param(0.3, clocks(LOW, 1.0, "board_limit"), "unattributed", id="it waits"),
    pytest.param(1.0, clocks(0.95, 0.0, "board_limit", target=0.89), "clock_cap", id="set below its default"),
    pytest.param(1.0, clocks(0.95, 0.0, "board_limit", target=0.9), "compute", id="set to its default"),
]
"""A clock is limited by its setting or by what holds it for half of the time."""

LOST, FEWEST = thresholds.RETRANSMITTED_SHARE, thresholds.FEWEST_SEGMENTS


def tcp(sent: float | None, again: float | None) -> Readings:
    readings = {
        (network_interfaces.GPU_HOST_TCP_SEGMENTS_SENT_TOTAL, ()): sent,
        (network_interfaces.GPU_HOST_TCP_SEGMENTS_RETRANSMITTED_TOTAL, ()): again,
    }
    return {key: value for key, value in readings.items() if value is not None}


def dropped(packets: float) -> Readings:
    return {(network_interfaces.GPU_HOST_NETWORK_DROPS_TOTAL, ("eno1", "receive")): packets}


NETWORKS = [
    pytest.param(0.3, tcp(FEWEST * ABOVE, FEWEST * LOST * 2), "network", id="many of enough"),
    pytest.param(0.3, tcp(FEWEST * BELOW, FEWEST), "unattributed", id="of too few"),
    pytest.param(0.3, tcp(1e4, 1e4 * LOST * ABOVE), "network", id="just enough"),
    pytest.param(0.3, tcp(1e4, 1e4 * LOST * BELOW), "unattributed", id="not enough"),
    pytest.param(0.3, tcp(1e4, None), "unattributed", id="not counted"),
    pytest.param(0.3, tcp(None, 1e4), "unattributed", id="of an unknown number"),
    pytest.param(1.0, tcp(1e4, 1e4), "compute", id="nobody waits"),
    pytest.param(0.3, dropped(thresholds.DROPPED_PER_SECOND * ABOVE), "network", id="many dropped"),
    pytest.param(0.3, dropped(thresholds.DROPPED_PER_SECOND * BELOW), "unattributed", id="some dropped"),
]
"""GPUs wait for a network that loses segments or packets."""


@pytest.mark.parametrize(("busy", "readings", "name"), [*BUSY, *TALKING, *LINKS, *CLOCKS, *NETWORKS])
def test_a_gpu_has_the_class_that_is_proven(busy: float, readings: Readings, name: str) -> None:
    assert judged(busy, readings).name == name


class Row(NamedTuple):
    """A class, and a reading that is in it from a threshold on; beyond is how far, 1 at the threshold."""

    name: str
    reading: Key
    threshold: float
    falls: bool = False  # whether the class begins below the threshold
    busy: float = 1.0
    more: Readings = NONE

    def judged(self, beyond: float, current: str | None) -> str:
        value = self.threshold / beyond if self.falls else self.threshold * beyond
        return judged(self.busy, {**self.more, self.reading: value}, current=current).name


DRAW, UTILIZATION = (power.GPU_POWER_WATTS, GPU), (activity.GPU_SM_UTILIZATION_RATIO, GPU)
DRAM, SM_ACTIVE = (activity.GPU_MEMORY_UTILIZATION_RATIO, GPU), (activity.GPU_SM_ACTIVE_RATIO, GPU)
TALKS: Readings = {DRAM: 0.0, (GPU_UP, PEER): 1.0, (GPU_PROCESSES, (*PEER, "compute")): 1.0}
SPINNING: Readings = {**TALKS, DRAW: WATTS * 0.3}
AT_X16: Readings = {(pcie.GPU_PCIE_LINK_GENERATION, GPU): 4.0, (pcie.GPU_PCIE_LINK_WIDTH, GPU): 16.0}
IDLE_CPUS: Readings = {(cpu.GPU_HOST_CPUS, ("0",)): 8.0, (cpu.GPU_HOST_CPU_SECONDS_TOTAL, ("0", "idle")): 8.0}
FULL_CPU: Readings = {**IDLE_CPUS, (cpu.GPU_HOST_CPU_BUSIEST_RATIO, ("0",)): 0.1}
RECEIVED: Key = (network_interfaces.GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL, ("eno1",))
LINE_RATE: Readings = {(network_interfaces.GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND, ("eno1",)): 1e9}
SENT_AGAIN: Key = (network_interfaces.GPU_HOST_TCP_SEGMENTS_RETRANSMITTED_TOTAL, ())
BLOCKED: Key = (threads.GPU_BLOCKED_THREAD_SECONDS_TOTAL, (*GPU, "folio_wait_bit_common"))
RUNS: Readings = {**HOST_WAITS, (threads.GPU_RUNNING_THREAD_SECONDS_TOTAL, GPU): 4.0}
ROWS = (
    Row("thermal", held_by("hw_thermal"), HEAT),
    Row("power_brake", held_by("hw_power_brake"), BRAKE),
    Row("power_cap", held_by("sw_power_cap"), thresholds.POWER_CAP_CLASS_SHARE, more=LOWERED),
    Row("pcie_link", (pcie.GPU_PCIE_RECEIVE_BYTES_TOTAL, GPU), X16, more=AT_X16),
    Row("memory", (host_memory.GPU_HOST_SWAP_IN_BYTES_TOTAL, ()), limit("memory.starved", "rate"), busy=0.3),
    Row("memory", IN_MEMORY, MEMORY, busy=0.3),
    Row("storage", IN_IO, IO, busy=0.3),
    Row("storage", BLOCKED, FEW, busy=0.3, more=RUNS),
    Row("cpu", (cpu.GPU_HOST_CPU_BUSIEST_RATIO, ("0",)), FULL, busy=0.3, more=FULL_CPU),
    Row("cpu", (cpu.GPU_HOST_CPU_SHARED_BUSY_RATIO, ("0",)), limit("cpu.starved", "node"), busy=0.3, more=IDLE_CPUS),
    Row("network", RECEIVED, limit("network.starved", "line_rate") * 1e9, busy=0.3, more=LINE_RATE),
    Row("network", SENT_AGAIN, LOST * 1000, busy=0.3, more=tcp(1000.0, None)),
    *(
        Row(name, key, limit(f"{name}.starved", "pressure"), busy=busy)
        for name, resource in (("memory", "memory"), ("storage", "io"))
        for key in stalled(resource, 0.0)
        for busy in (0.3, 0.78)
    ),
    Row("communication", UTILIZATION, thresholds.SPINNING_BUSY_SHARE, more=SPINNING),
    Row("communication", DRAW, thresholds.SPINNING_POWER_SHARE * WATTS, falls=True, more=TALKS),
    Row("communication", DRAM, QUIET, falls=True, more=SPINNING),
    Row("communication", SM_ACTIVE, thresholds.SPINNING_SM_ACTIVITY, falls=True, more=SPINNING),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name}: {row.reading[0].name}")
def test_a_class_is_left_below_less_than_it_is_entered_at(row: Row) -> None:
    between = (1 + thresholds.EASE) / 2
    seen = {
        (beyond, current): row.judged(beyond, current) == row.name
        for beyond in (ABOVE, between, thresholds.EASE / ABOVE)
        for current in (None, "compute", row.name)
    }
    stays = {key for key, is_in in seen.items() if is_in}
    assert stays == {(ABOVE, None), (ABOVE, "compute"), (ABOVE, row.name), (between, row.name)}


@pytest.mark.parametrize(
    ("name", "os_managed", "proves"),
    [("GB200", 1.0, False), ("GB200", 0.0, True), ("GH200 480GB", None, False), ("H200", None, True)],
)
def test_used_memory_proves_nothing_where_the_page_cache_may_be_in_it(
    name: str, os_managed: float | None, *, proves: bool
) -> None:
    """NVIDIA/TensorRT-LLM #13955: on a GB200, files that were read count as used memory of a GPU."""
    used, free = ((spec, GPU) for spec in (device_memory.GPU_MEMORY_USED_BYTES, device_memory.GPU_MEMORY_FREE_BYTES))
    names = ("" if label != "name" else f"NVIDIA {name}" for label in GPU_INFO.labels[2:])
    facts = {(GPU_UP, GPU): 1.0, (GPU_INFO, (*GPU, *names)): 1.0, (GPU_MEMORY_OS_MANAGED, GPU): os_managed}
    unlisted = known({**facts, UTILIZATION: 0.0, used: 2e11, free: 2e9})
    (gpu,) = steady(unlisted).gpus
    assert (gpu.occupied, is_held(gpu), gpu.memory_share is not None) == (proves, proves, proves)
    assert steady({**unlisted, used: 0.0}).gpus[0].deserted is proves
    # What a listed process holds is proof everywhere.
    held = {(GPU_PROCESSES, (*GPU, "compute")): 1.0, (GPU_PROCESS_MEMORY_BYTES, (*GPU, "7", "python3")): 2e9}
    (gpu,) = steady({**unlisted, **held}).gpus
    assert (gpu.held_idle, gpu.held_bytes) == (True, 2e11 if proves else 2e9)
