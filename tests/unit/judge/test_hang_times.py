"""How long GPUs of a job stop or spin before they hang, and what explains it meanwhile: each at its threshold.

A hang is judged before NCCL aborts the job; checkpoints, evaluations, loading data, and jobs that leave their GPU idle
are not hangs. What a GPU waits for is told by the threads and cgroups of its job."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
from tests.evidence import Key, Readings, evidence_of, steady
from tests.fed import Fed
from tests.states.play import State, play
from tests.states.states import STATES
from tests.unit.judge.test_proof_of_use import GPU, HOST_WAITS, blocked, judged, stalled, thread, throttled

from gpu_triage.judge.bottleneck.classes import Bottleneck
from gpu_triage.judge.conditions.work import judge_work
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.limited_jobs import limited_job, waits_for_storage
from gpu_triage.judge.evidence.thresholds import (
    BLOCKED_THREADS,
    EASE,
    HELD_BYTES,
    HOST_SAVES_SECONDS,
    SAVING_BYTES_PER_SECOND,
    SILENT_BYTES_PER_SECOND,
    STOPPED_SECONDS,
    STUCK_SECONDS,
    THROTTLED_CPUS,
    UNEXPLAINED_SECONDS,
    UPLOADING_RATIO,
    WAITED_FOR_SECONDS,
)
from gpu_triage.judge.findings import finding
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.read.gpu import activity, device_memory, nvlink, pcie, presence, topology
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.host import cpu, disk, infiniband, network_interfaces, nfs
from gpu_triage.read.metrics.metric import MetricSpec, Sample
from gpu_triage.read.processes import cgroup_limits, on_gpu, threads, vitals
from gpu_triage.read.processes.threads import GPU_PROCESSES_WRITTEN_BYTES_TOTAL

EDGE = 1e-3
HANG, HUNG = "work.collective_hang", "work.hung"
WORKS = Bottleneck("compute", "busy")
_NO_LABELS = ("",) * (len(on_gpu.GPU_PROCESS_INFO.labels) - 3)
SAVES, ALMOST_SAVES = SAVING_BYTES_PER_SECOND, SAVING_BYTES_PER_SECOND * (1 - EDGE)


def stops(seconds: float) -> Bottleneck:
    return Bottleneck("unattributed", "idle", stopped_seconds=seconds)


def spins(seconds: float) -> Bottleneck:
    return Bottleneck("communication", "spins", spinning_seconds=seconds, spins_after_work=True)


def hangs(
    *gpus: Bottleneck,
    written: float = 0.0,
    sent: float = 0.0,
    received: float = 0.0,
    moved: float = 0.0,
    counters: Iterable[MetricSpec] = (pcie.GPU_PCIE_TRANSMIT_BYTES_TOTAL,),
    links: int = 1,
    own: Sequence[float] = (),
    cgroup: float | None = None,
    stalled: float = 0.0,
    rdma: float = 0.0,
    chip_links: int = 0,
) -> dict[str, str]:
    """What is found of GPUs, on a host that writes, sends and receives so many bytes a second; each GPU moves some.

    Args:
        own: what the processes on each GPU write; empty if that cannot be read.
        cgroup: what their common cgroup writes to disks; None without the io controller.
        stalled: share of the time in which its tasks wait for I/O.
        chip_links: NVLink-C2C links of each GPU.
    """

    def samples(at: float) -> Iterator[Sample]:
        yield disk.GPU_HOST_DISK_WRITTEN_BYTES_TOTAL.sample(written * at, "nvme0n1")
        yield network_interfaces.GPU_HOST_NETWORK_TRANSMIT_BYTES_TOTAL.sample(sent * at, "eth0")
        yield network_interfaces.GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL.sample(received * at, "eth0")
        yield infiniband.GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL.sample(rdma * at, "mlx5_0", "1")
        for index, bottleneck in enumerate(gpus):
            gpu = (str(index), f"GPU-{index}")
            yield presence.GPU_UP.sample(1, *gpu)
            yield on_gpu.GPU_PROCESSES.sample(1, *gpu, "compute")
            yield device_memory.GPU_MEMORY_USED_BYTES.sample(HELD_BYTES, *gpu)
            yield activity.GPU_SM_UTILIZATION_RATIO.sample(0.0 if bottleneck.stopped_seconds else 1.0, *gpu)
            yield nvlink.GPU_NVLINK_LINKS_UP.sample(links, *gpu)
            yield nvlink.GPU_C2C_LINKS_UP.sample(chip_links, *gpu)
            yield on_gpu.GPU_PROCESS_INFO.sample(1, *gpu, str(7000 + index), *_NO_LABELS)
            for written_by_it in own[index : index + 1]:
                yield GPU_PROCESSES_WRITTEN_BYTES_TOTAL.sample(0.0, *gpu, "storage")
                yield GPU_PROCESSES_WRITTEN_BYTES_TOTAL.sample(written_by_it * at, *gpu, "calls")
            yield cgroup_limits.GPU_CGROUP_PRESSURE_SECONDS_TOTAL.sample(stalled * at, *gpu, "/job", "io", "some")
            if cgroup is not None:
                yield cgroup_limits.GPU_CGROUP_WRITTEN_BYTES_TOTAL.sample(cgroup * at, *gpu, "/job")
            yield from (counter.sample(moved * at, *gpu) for counter in counters)

    host = evidence_of((0.0, samples(0.0)), (60.0, samples(60.0)))
    found = judge_work(host, dict(zip(host.gpus, gpus, strict=True)))
    return {each.check.code: each.measured for each in found if each.check.code in {HANG, HUNG}}


@pytest.mark.parametrize(
    ("gpus", "found"),
    [
        pytest.param([stops(STOPPED_SECONDS)] * 2, {HANG, HUNG}, id="both stop"),
        pytest.param([stops(STOPPED_SECONDS - EDGE)] * 2, set(), id="for less"),
        pytest.param([stops(STOPPED_SECONDS), stops(STOPPED_SECONDS - EDGE)], {HUNG}, id="one for less"),
        pytest.param([spins(STUCK_SECONDS)] * 2, {HANG}, id="both spin"),
        pytest.param([spins(STUCK_SECONDS - EDGE)] * 2, set(), id="both spin for less"),
        pytest.param([stops(WAITED_FOR_SECONDS), spins(WAITED_FOR_SECONDS)], {HANG}, id="one waits for the other"),
        pytest.param([stops(WAITED_FOR_SECONDS), spins(WAITED_FOR_SECONDS - EDGE)], set(), id="waits for less"),
        pytest.param([spins(STUCK_SECONDS)], set(), id="one waits for other hosts"),
        pytest.param([spins(STUCK_SECONDS), spins(STUCK_SECONDS), WORKS], set(), id="a rank works"),
        pytest.param([spins(UNEXPLAINED_SECONDS)] * 2 + [WORKS], {HANG}, id="no rank works for so long"),
        pytest.param([spins(UNEXPLAINED_SECONDS - EDGE), spins(UNEXPLAINED_SECONDS), WORKS], set(), id="it may"),
    ],
)
def test_gpus_hang_when_they_have_stopped_or_spun_for_so_long(gpus: list[Bottleneck], found: set[str]) -> None:
    assert hangs(*gpus).keys() == found


def test_the_gpu_that_stopped_is_named() -> None:
    said = hangs(stops(WAITED_FOR_SECONDS), spins(WAITED_FOR_SECONDS))[HANG]
    assert said.startswith("GPU 0 stopped; GPU 1: busy at low power, and no data moves")


PCIE, NVLINK = pcie.GPU_PCIE_TRANSMIT_BYTES_TOTAL, nvlink.GPU_NVLINK_TRANSMIT_BYTES_TOTAL
STOP, STUCK = [stops(STOPPED_SECONDS)] * 2, [spins(STUCK_SECONDS)] * 2
SOME, MORE = SILENT_BYTES_PER_SECOND, SILENT_BYTES_PER_SECOND * (1 + EDGE)
UPLOAD = {"sent": SAVES, "received": SAVES / UPLOADING_RATIO * (1 - EDGE)}
ALMOST_UNEXPLAINED, UNEXPLAINED = [stops(UNEXPLAINED_SECONDS - EDGE)] * 2, [stops(UNEXPLAINED_SECONDS)] * 2
ON_ITS_WAY = {"own": (0.0, 0.0), "stalled": 0.2}


@pytest.mark.parametrize(
    ("gpus", "facts", "found"),
    [
        # Traffic: GPUs are stuck only if it is counted and does not grow.
        pytest.param(STUCK, {"moved": SOME, "counters": (PCIE, NVLINK)}, {HANG}, id="silent"),
        pytest.param(STUCK, {"moved": MORE, "counters": (PCIE, NVLINK)}, set(), id="data moves"),
        pytest.param(STUCK, {"counters": (NVLINK,)}, {HANG}, id="NVLink alone is counted"),
        pytest.param(STUCK, {"counters": (NVLINK,), "links": 0}, set(), id="links that are not up carry nothing"),
        pytest.param(STUCK, {"counters": ()}, set(), id="nobody counts"),
        # RDMA traffic of the host explains that they spin only if it may be theirs.
        pytest.param(STUCK, {"rdma": 1e9}, {HANG}, id="of others: their own links are silent"),
        pytest.param(STUCK, {"rdma": 1e9, "chip_links": 10}, set(), id="perhaps theirs, over NVLink-C2C"),
        pytest.param(STUCK, {"rdma": SOME, "chip_links": 10}, {HANG}, id="no RDMA traffic"),
        # A host that writes explains a stop if nobody knows what its job writes.
        pytest.param(STOP, {"written": SAVES}, set(), id="to a disk"),
        pytest.param(STOP, {"written": ALMOST_SAVES}, {HANG, HUNG}, id="to a disk, too little"),
        pytest.param(STOP, UPLOAD, set(), id="to a store"),
        pytest.param(STOP, {**UPLOAD, "received": SAVES / UPLOADING_RATIO}, {HANG, HUNG}, id="ranks exchange data"),
        pytest.param([stops(HOST_SAVES_SECONDS - EDGE)] * 2, {"written": SAVES}, set(), id="almost for too long"),
        pytest.param([stops(HOST_SAVES_SECONDS)] * 2, {"written": SAVES}, {HANG, HUNG}, id="for too long"),
        # A job that saves a checkpoint explains its stop,
        pytest.param(STOP, {"own": (SAVES, 0.0)}, set(), id="one rank writes for all"),
        pytest.param(STOP, {"own": (SAVES / 2, SAVES / 2)}, set(), id="each writes its part"),
        pytest.param(STOP, {"own": (ALMOST_SAVES, 0.0), "written": 1e9}, {HANG, HUNG}, id="others write"),
        pytest.param(ALMOST_UNEXPLAINED, {"own": (SAVES, 0.0)}, set(), id="a job, almost for too long"),
        pytest.param(UNEXPLAINED, {"own": (SAVES, 0.0)}, {HANG, HUNG}, id="a job, for too long"),
        pytest.param(ALMOST_UNEXPLAINED, {"cgroup": SAVES}, set(), id="its cgroup writes"),
        pytest.param(ALMOST_UNEXPLAINED, {"own": (0.0, 0.0), "cgroup": SAVES}, set(), id="its cgroup writes back"),
        pytest.param(STOP, {"cgroup": ALMOST_SAVES, "written": 1e9}, {HANG, HUNG}, id="others write to the disks"),
        # and so does one whose writing is on its way.
        pytest.param(STOP, {**ON_ITS_WAY, "written": SAVES}, set(), id="they wait for what they wrote"),
        pytest.param(STOP, {**ON_ITS_WAY, "stalled": 0.2 - EDGE, "written": SAVES}, {HANG, HUNG}, id="they hardly do"),
        pytest.param(STOP, {**ON_ITS_WAY, "written": ALMOST_SAVES}, {HANG, HUNG}, id="nobody writes it back"),
    ],
)
def test_gpus_hang_unless_something_explains_it(gpus: list[Bottleneck], facts: dict[str, Any], found: set[str]) -> None:
    assert hangs(*gpus, **facts).keys() == found


HANGS = [state for state in STATES if state.kind == "hangs" and state.gpus == 2]


@pytest.mark.slow
@pytest.mark.parametrize("state", HANGS, ids=lambda state: str(state.name))
def test_a_hang_is_confirmed_before_nccl_aborts_and_a_checkpoint_never(state: State) -> None:
    assert state.lasts < 600  # the timeout of PyTorch's NCCL process groups
    seen = play(state)
    assert seen.report is not None
    confirmed = {each.check.code for each in seen.report.findings if each.state is finding.State.CONFIRMED}
    assert (HANG in confirmed, seen.seconds <= state.promised) == ("hang" in state.name, True)
    assert ("hung" in {each for of_gpu in seen.found.values() for each in of_gpu}) == (state.wanted == "hung")


CPUS: Readings = {
    (topology.GPU_NUMA_NODE, GPU): 0.0,
    (cpu.GPU_HOST_CPUS, ("0",)): 8.0,
    (cpu.GPU_HOST_CPU_BUSIEST_RATIO, ("0",)): 1.0,
    (cpu.GPU_HOST_CPU_SECONDS_TOTAL, ("0", "user")): 2.0,
    (cpu.GPU_HOST_CPU_SECONDS_TOTAL, ("0", "idle")): 6.0,
}
"""Eight CPUs on the GPU's node, one of them full all the time."""


def polled(shared: float) -> Readings:
    """CPUs that are full of polling, and of others are busy for this share of the time."""
    seconds = {"user": 7.5, "idle": 0.5}
    return {
        **{(cpu.GPU_HOST_CPU_SECONDS_TOTAL, ("0", mode)): each for mode, each in seconds.items()},
        (cpu.GPU_HOST_CPU_SHARED_BUSY_RATIO, ("0",)): shared,
    }


def waits(*more: Readings) -> tuple[str, str]:
    """Class of a GPU whose job keeps it busy for a third of the time, and why."""
    readings: dict[Key, float] = dict(CPUS)
    for each in more:
        readings |= each
    said = judged(0.3, readings)
    return said.name, said.because


HARDLY = stalled("io", 0.01)
MISPLACED: Readings = {(on_gpu.GPU_NUMA_MISMATCHED_PROCESSES, GPU): 1.0}
FULL_NETWORK: Readings = {
    (network_interfaces.GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND, ("eth0",)): 1e9,
    (network_interfaces.GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL, ("eth0",)): 0.95e9,
}
SLOW_LOOKUPS: Readings = {
    (nfs.GPU_HOST_NFS_OPERATIONS_TOTAL, ("/home", "LOOKUP")): 50.0,
    (nfs.GPU_HOST_NFS_OPERATION_SECONDS_TOTAL, ("/home", "LOOKUP")): 50 * 0.08,
}
SLOW_LUSTRE: Readings = {
    (disk.GPU_HOST_LUSTRE_OPERATIONS_TOTAL, ("scratch", "read")): 40.0,
    (disk.GPU_HOST_LUSTRE_OPERATION_SECONDS_TOTAL, ("scratch", "read")): 40 * 0.2,
}
STUCK_GDS: Readings = {
    (disk.GPU_HOST_GDS_OPERATIONS_IN_FLIGHT, ("read",)): 16.0,
    (disk.GPU_HOST_GDS_OPERATIONS_TOTAL, ("read",)): 0.0,
}


@pytest.mark.parametrize(
    ("more", "name"),
    [
        pytest.param((thread(0.4), FULL_NETWORK), "network", id="a CPU that it does not fill hides no network"),
        pytest.param((thread(0.4), MISPLACED), "numa", id="nor its placement"),
        pytest.param((thread(0.4),), "unattributed", id="a CPU that it does not fill"),
        pytest.param((FULL_NETWORK,), "cpu", id="its threads are unknown: any CPU may be theirs"),
        pytest.param((thread(0.2), blocked("ptlrpc_set_wait", 1.0, 4.0)), "unattributed", id="most of them work"),
        pytest.param((thread(0.2), blocked("ptlrpc_set_wait", 0.3, 0.1)), "unattributed", id="one waits now and then"),
        pytest.param((thread(0.2), blocked("nv_ioctl", 6.0, 0.5)), "unattributed", id="no storage"),
        pytest.param((HARDLY, blocked("folio_wait_bit_common", 3.0, 0.5)), "unattributed", id="PSI counts that"),
        pytest.param((HARDLY, blocked("ptlrpc_set_wait", 3.0, 0.5)), "storage", id="PSI does not see that"),
        # On a kernel that counts stalls of the host, and not of cgroups.
        pytest.param((HOST_WAITS,), "storage", id="the host waits, and its threads are unknown"),
        pytest.param((thread(0.2), HOST_WAITS), "unattributed", id="the host waits, and none of them does"),
        pytest.param((HOST_WAITS, blocked("folio_wait_bit_common", 0.49, 1.0)), "unattributed", id="hardly one does"),
        pytest.param((HOST_WAITS, blocked("folio_wait_bit_common", 0.5, 1.0)), "storage", id="one does"),
        pytest.param((HARDLY, blocked("nv_ioctl", 0.1, 1.0), SLOW_LOOKUPS), "unattributed", id="somebody's slow NFS"),
        pytest.param((thread(0.4), polled(0.7)), "unattributed", id="CPUs that poll do not fill a node"),
    ],
)
def test_a_job_waits_for_what_its_threads_do_not_rule_out(more: tuple[Readings, ...], name: str) -> None:
    assert waits(*more)[0] == name


@pytest.mark.parametrize("known", [(), (thread(0.2),), (HARDLY,), (HARDLY, blocked("", 1.0, 1.0))])
def test_slow_nfs_counts_where_the_jobs_own_waits_are_not_known(known: tuple[Readings, ...]) -> None:
    """PSI does not count lookups, and without CAP_SYS_PTRACE the kernel does not tell what threads wait for."""
    name, because = waits(*known, SLOW_LOOKUPS)
    assert (name, "NFS /home takes 80 ms a lookup" in because) == ("storage", True)


ACTIVE, LOCAL_DISKS = "75% of the job's active threads wait for", "local disks or the page cache"


@pytest.mark.parametrize(
    ("more", "name", "because"),
    [
        ((thread(0.99), MISPLACED), "cpu", "thread python3 of process 4242 fills one CPU"),
        ((blocked("ptlrpc_set_wait", 3.0, 1.0),), "storage", f"{ACTIVE} Lustre (ptlrpc_set_wait)"),
        ((blocked("cl_sync_io_wait", 3.0, 1.0),), "storage", f"{ACTIVE} Lustre (cl_sync_io_wait)"),
        ((blocked("cxiWaitEventWait", 3.0, 1.0),), "storage", f"{ACTIVE} GPFS (cxiWaitEventWait)"),
        ((blocked("ceph_mdsc_wait_request", 3.0, 1.0),), "storage", f"{ACTIVE} CephFS (ceph_mdsc_wait_request)"),
        ((blocked("request_wait_answer", 3.0, 1.0),), "storage", f"{ACTIVE} FUSE (request_wait_answer)"),
        ((blocked("rpc_wait_bit_killable", 3.0, 1.0),), "storage", f"{ACTIVE} NFS (rpc_wait_bit_killable)"),
        ((blocked("wait_on_page_bit", 3.0, 1.0),), "storage", f"{ACTIVE} {LOCAL_DISKS} (wait_on_page_bit)"),
        ((blocked("", 3.0, 1.0),), "storage", f"{ACTIVE} storage or a driver"),
        ((thread(0.2), SLOW_LUSTRE), "storage", "Lustre scratch takes 200 ms a read"),
        ((thread(0.2), STUCK_GDS), "storage", "16 reads of GPUDirect Storage do not end"),
        ((thread(0.4), polled(0.95)), "cpu", "CPUs of NUMA node 0 busy 95% of the time"),
    ],
)
def test_what_it_waits_for_is_named(more: tuple[Readings, ...], name: str, because: str) -> None:
    assert waits(*more) == (name, because)


SHARE, PRESSURE = LIMITS["cpu.limited"]["share"].value, LIMITS["memory.limited"]["pressure"].value
BARELY, ALMOST, EASED = 1.001, 0.999, (1 + EASE) / 2


def at_its_memory_limit(share: float, events_per_minute: float) -> Readings:
    events = (cgroup_limits.GPU_CGROUP_MEMORY_EVENTS_TOTAL, (*GPU, "/job", "max"))
    return {**stalled("memory", share), events: events_per_minute / 60.0}


def waiting(share: float, count: float) -> Readings:
    """Threads that wait for storage: so many, and they are this share of all."""
    return blocked("ptlrpc_set_wait", count, count * (1 / min(1.0, share) - 1))


@pytest.mark.parametrize(
    ("found", "readings", "first", "second"),
    [
        (partial(limited_job, "cpu"), throttled, SHARE, THROTTLED_CPUS),
        (partial(limited_job, "memory"), at_its_memory_limit, PRESSURE, 1.0),
        (waits_for_storage, waiting, LIMITS["storage.starved"]["blocked"].value, BLOCKED_THREADS),
    ],
)
def test_both_conditions_count_at_their_thresholds(
    found: Callable[[GpuEvidence, float], object],
    readings: Callable[[float, float], Readings],
    first: float,
    second: float,
) -> None:
    def slows_down(one: float, other: float, ease: float = 1.0) -> bool:
        host = steady({(GPU_UP, GPU): 1.0, **readings(first * one, second * other)})
        return found(host.gpus[0], ease) is not None

    assert slows_down(BARELY, BARELY)
    assert not slows_down(ALMOST, 2.0)
    assert not slows_down(2.0, ALMOST)
    assert slows_down(EASED, BARELY, EASE), "a job that was slowed down stays so for less"
    assert not slows_down(EASED, BARELY)


MINUTE = 60.0
IDLE, STARVED = "work.held_idle", "storage.starved"
INPUT, REQUESTS, CONTINUATION = 1, 2, 3


class Life(NamedTuple):
    """What there is of a GPU's job when its GPU stops."""

    waits: Mapping[str, int | None] = {"7000": 0}  # by PID, a state of gpu_process_waits_for; None if unknown
    read: float = 0.0  # bytes a second
    thread: float = 0.0  # share of a CPU that its busiest thread uses
    began: float | None = None  # when its processes did, if known


def samples(at: float, busy: float, lives: Sequence[Life], stalled: float = 0.0, read: float = 0.0) -> Iterator[Sample]:
    """One job, with a GPU for each life; the host reads so many bytes a second."""
    yield disk.GPU_HOST_DISK_READ_BYTES_TOTAL.sample(read * at, "nvme0n1")
    for index, life in enumerate(lives):
        gpu = (str(index), f"GPU-{index}")
        yield presence.GPU_UP.sample(1, *gpu)
        yield on_gpu.GPU_PROCESSES.sample(len(life.waits), *gpu, "compute")
        yield device_memory.GPU_MEMORY_USED_BYTES.sample(thresholds.HELD_BYTES, *gpu)
        yield activity.GPU_SM_UTILIZATION_RATIO.sample(busy, *gpu)
        yield activity.GPU_BUSY_SECONDS_TOTAL.sample(busy * at, *gpu)
        yield cgroup_limits.GPU_CGROUP_PRESSURE_SECONDS_TOTAL.sample(stalled * at, *gpu, "/job", "io", "some")
        yield threads.GPU_MAIN_THREAD_CPU_SECONDS_TOTAL.sample(0.0, *gpu)
        yield threads.GPU_BUSIEST_THREAD_RATIO.sample(life.thread, *gpu, "7000", "python")
        if life.read:
            yield threads.GPU_PROCESSES_READ_BYTES_TOTAL.sample(life.read * at, *gpu, "calls")
        for pid, state in life.waits.items():
            yield on_gpu.GPU_PROCESS_INFO.sample(1, *gpu, pid, "python", *("",) * 6, "42")
            if life.began is not None:
                yield vitals.GPU_PROCESS_START_TIMESTAMP_SECONDS.sample(life.began, *gpu, pid, "python")
            if state is not None:
                yield on_gpu.GPU_PROCESS_WAITS_FOR.sample(state, *gpu, pid, "python")


RANK = Life({"7001": 0})
LOADS, ALMOST_LOADS = thresholds.LOADING_BYTES_PER_SECOND, thresholds.LOADING_BYTES_PER_SECOND * ALMOST


@pytest.mark.parametrize(
    ("lives", "found"),
    [
        pytest.param([Life()], {HUNG}, id="a batch job"),
        pytest.param([Life({"7000": None})], {HUNG}, id="a process of which nothing is known"),
        pytest.param([Life({"7000": INPUT})], {IDLE}, id="in the foreground of a terminal"),
        pytest.param([Life({"7000": REQUESTS})], {IDLE}, id="a notebook"),
        pytest.param([Life({"7000": CONTINUATION})], {IDLE}, id="suspended"),
        pytest.param([Life({"7000": REQUESTS, "7009": 0})], {HUNG}, id="a batch job beside a notebook"),
        pytest.param([Life({"7000": REQUESTS})] * 2, {IDLE}, id="a notebook with two GPUs"),
        pytest.param([Life({"7000": REQUESTS}), Life({"7001": REQUESTS})], {IDLE}, id="a server of two ranks"),
        pytest.param([Life(), RANK], {HUNG, HANG}, id="two ranks"),
        pytest.param([Life({"7000": CONTINUATION}), Life({"7001": CONTINUATION})], {IDLE}, id="both ranks suspended"),
        pytest.param([Life({"7000": CONTINUATION}), RANK], {IDLE, HUNG, HANG}, id="one of two ranks suspended"),
        pytest.param([Life(read=LOADS)], {IDLE}, id="it reads"),
        pytest.param([Life(read=ALMOST_LOADS)], {HUNG}, id="it hardly reads"),
        pytest.param([Life(read=LOADS), RANK], {IDLE}, id="one rank reads for all"),
        pytest.param([Life(thread=thresholds.WORKING_CPU_SHARE)], {IDLE}, id="it computes on a CPU"),
        pytest.param([Life(thread=thresholds.WORKING_CPU_SHARE * ALMOST)], {HUNG}, id="it hardly uses a CPU"),
        pytest.param([Life(thread=1.0), RANK._replace(thread=1.0)], {HUNG, HANG}, id="ranks that spin on CPUs"),
    ],
)
def test_a_job_that_stops_is_hung_unless_something_explains_it(lives: list[Life], found: set[str]) -> None:
    fed = Fed(5.0)
    fed.run(3 * MINUTE, lambda at: samples(at, 1.0, lives))
    stopped = fed.seconds
    fed.run(thresholds.HUNG_SECONDS + MINUTE, lambda at: samples(at, 0.0 if at > stopped else 1.0, lives))
    assert fed.codes() & {HANG, HUNG, IDLE} == found
    said = [each.measured for each in fed.report.findings if each.check.code == IDLE]
    assert bool(said) == (IDLE in found)
    assert all("CPUs" in each for each in said)


FIRST, NEXT = Life({"7000": 0}), Life({"7001": 0})


@pytest.mark.parametrize(
    ("life", "busy", "read", "stalled", "found"),
    [
        pytest.param(NEXT, 0.0, LOADS, 0.9, set(), id="it loads"),
        pytest.param(NEXT, 0.0, ALMOST_LOADS, 0.9, {STARVED}, id="it makes no progress"),
        pytest.param(NEXT, thresholds.WORKING_SHARE * ALMOST, LOADS, 0.9, set(), id="it does not work yet"),
        pytest.param(NEXT, thresholds.WORKING_SHARE / ALMOST, LOADS, 0.9, {STARVED}, id="it works slowly"),
        pytest.param(NEXT._replace(read=ALMOST_LOADS), 0.0, LOADS, 0.9, {STARVED}, id="others read"),
        pytest.param(NEXT._replace(read=LOADS), 0.0, 0.0, 0.9, set(), id="it reads from elsewhere"),
        pytest.param(FIRST, 0.0, LOADS, 0.9, {STARVED}, id="it has worked before"),
        pytest.param(NEXT, 0.0, 0.0, 0.0, set(), id="it begins, which is not seen"),
        pytest.param(FIRST._replace(began=2.0), 0.0, LOADS, 0.9, set(), id="it loads, under the PID of the last one"),
        pytest.param(FIRST._replace(began=1.0), 0.0, LOADS, 0.9, {STARVED}, id="it has worked since then"),
        pytest.param(FIRST, 0.0, 0.0, 0.0, {HUNG}, id="it has worked before, and stops"),
    ],
)
def test_a_start_that_makes_progress_is_neither_starved_nor_hung(
    life: Life, busy: float, read: float, stalled: float, found: set[str]
) -> None:
    fed = Fed(5.0)
    fed.run(3 * MINUTE, lambda at: samples(at, 1.0, [FIRST._replace(began=life.began and 1.0)], read=read))
    fed.run(5 * MINUTE + thresholds.RECENT_SECONDS, lambda at: samples(at, busy, [life], stalled=stalled, read=read))
    assert fed.codes() & {STARVED, HUNG} == found
