"""What a GPU waits for, by the threads and cgroups of its job: a CPU that one fills, storage, and its own limits."""

from collections.abc import Callable
from functools import partial

import pytest
from tests.evidence import Key, Readings, steady
from tests.unit.judge.test_proof_of_use import GPU, HOST_WAITS, blocked, judged, stalled, thread, throttled

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.limited_jobs import limited_job, waits_for_storage
from gpu_triage.judge.evidence.thresholds import BLOCKED_THREADS, EASE, THROTTLED_CPUS
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.read.gpu import topology
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.host import cpu, disk, network_interfaces, nfs
from gpu_triage.read.processes import cgroup_limits, on_gpu

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
