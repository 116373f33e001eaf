"""What a GPU waits for, by the threads of its job: a CPU that one fills, and storage that they wait for."""

from collections.abc import Callable, Iterator

import pytest
from tests.fed import GPU, Fed, loaded

from gpu_triage.read.gpu.topology import GPU_NUMA_NODE
from gpu_triage.read.host.cpu import (
    GPU_HOST_CPU_BUSIEST_RATIO,
    GPU_HOST_CPU_SECONDS_TOTAL,
    GPU_HOST_CPU_SHARED_BUSY_RATIO,
    GPU_HOST_CPUS,
)
from gpu_triage.read.host.disk import (
    GPU_HOST_GDS_OPERATIONS_IN_FLIGHT,
    GPU_HOST_GDS_OPERATIONS_TOTAL,
    GPU_HOST_LUSTRE_OPERATION_SECONDS_TOTAL,
    GPU_HOST_LUSTRE_OPERATIONS_TOTAL,
)
from gpu_triage.read.host.network_interfaces import (
    GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL,
    GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND,
)
from gpu_triage.read.host.nfs import GPU_HOST_NFS_OPERATION_SECONDS_TOTAL, GPU_HOST_NFS_OPERATIONS_TOTAL
from gpu_triage.read.host.pressure import GPU_HOST_PRESSURE_SECONDS_TOTAL
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes.cgroup_limits import GPU_CGROUP_PRESSURE_SECONDS_TOTAL
from gpu_triage.read.processes.on_gpu import GPU_NUMA_MISMATCHED_PROCESSES, GPU_PROCESSES
from gpu_triage.read.processes.threads import (
    GPU_BLOCKED_THREAD_SECONDS_TOTAL,
    GPU_BUSIEST_THREAD_RATIO,
    GPU_RUNNING_THREAD_SECONDS_TOTAL,
)

Series = Callable[[float], Iterator["Sample"]]


def waiting(at: float) -> Iterator[Sample]:
    """A GPU whose job keeps it busy for a third of the time, on a node with one CPU that is full all the time."""
    yield from loaded(at, 0.3)
    yield GPU_PROCESSES.sample(1, *GPU, "compute")
    yield GPU_NUMA_NODE.sample(0, *GPU)
    yield GPU_HOST_CPUS.sample(8, "0")
    yield GPU_HOST_CPU_BUSIEST_RATIO.sample(1.0, "0")


def calm(at: float) -> Iterator[Sample]:
    yield GPU_HOST_CPU_SECONDS_TOTAL.sample(at * 2, "0", "user")
    yield GPU_HOST_CPU_SECONDS_TOTAL.sample(at * 6, "0", "idle")


def threads(busiest: float, running: float = 1.0, **blocked: float) -> Series:
    """Threads of the job: the busiest, how many run, and how many wait in which function."""

    def samples(at: float) -> Iterator[Sample]:
        yield GPU_BUSIEST_THREAD_RATIO.sample(busiest, *GPU, "4242", "python3")
        yield GPU_RUNNING_THREAD_SECONDS_TOTAL.sample(at * running, *GPU)
        for channel, count in blocked.items():
            yield GPU_BLOCKED_THREAD_SECONDS_TOTAL.sample(at * count, *GPU, "" if channel == "untold" else channel)

    return samples


def judged(*more: Series, cpus: Series = calm) -> tuple[str, str]:
    """Class of the GPU after some minutes, and why."""
    fed = Fed(5.0)
    fed.run(200, lambda at: [*waiting(at), *(sample for each in (cpus, *more) for sample in each(at))])
    assert fed.latest is not None
    return fed.latest.report.gpus[0].bottleneck.name, fed.latest.report.gpus[0].bottleneck.because


def hardly(at: float) -> Iterator[Sample]:
    """Tasks of the job that hardly wait for I/O, by their own cgroup."""
    yield GPU_CGROUP_PRESSURE_SECONDS_TOTAL.sample(at * 0.01, *GPU, "/job", "io", "some")


def mismatched(_at: float) -> Iterator[Sample]:
    yield GPU_NUMA_MISMATCHED_PROCESSES.sample(1, *GPU)


def full_network(at: float) -> Iterator[Sample]:
    yield GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND.sample(1e9, "eth0")
    yield GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL.sample(0.95e9 * at, "eth0")


def test_a_cpu_that_the_job_does_not_fill_hides_nothing() -> None:
    assert judged(threads(0.4), full_network)[0] == "network"
    assert judged(threads(0.4), mismatched)[0] == "numa"
    assert judged(threads(0.4))[0] == "unattributed"


def test_a_cpu_that_a_thread_of_the_job_fills_is_the_cause() -> None:
    assert judged(threads(0.99), mismatched) == ("cpu", "thread python3 of process 4242 fills one CPU")


def test_where_the_jobs_threads_are_unknown_any_cpu_may_be_theirs() -> None:
    assert judged(full_network)[0] == "cpu"


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        ("ptlrpc_set_wait", "Lustre"),
        ("cl_sync_io_wait", "Lustre"),
        ("cxiWaitEventWait", "GPFS"),
        ("ceph_mdsc_wait_request", "CephFS"),
        ("request_wait_answer", "FUSE"),
        ("rpc_wait_bit_killable", "NFS"),
        ("folio_wait_bit_common", "local disks or the page cache"),
        ("wait_on_page_bit", "local disks or the page cache"),
    ],
)
def test_storage_that_no_counter_shows_is_named_by_the_function_that_threads_wait_in(channel: str, name: str) -> None:
    found = judged(threads(0.2, running=1.0, **{channel: 3.0}))
    assert found == ("storage", f"75% of the job's active threads wait for {name} ({channel})")


def test_waits_that_the_kernel_hides_are_told_as_such() -> None:
    assert judged(threads(0.2, untold=3.0)) == (
        "storage",
        "75% of the job's active threads wait for storage or a driver",
    )


@pytest.mark.parametrize(
    "some",
    [
        threads(0.2, running=4.0, ptlrpc_set_wait=1.0),  # most of them work
        threads(0.2, running=0.1, ptlrpc_set_wait=0.3),  # one waits now and then
        threads(0.2, running=0.5, nv_ioctl=6.0),  # no storage
    ],
)
def test_few_waits_and_waits_for_drivers_are_not_the_cause(some: Series) -> None:
    assert judged(some)[0] == "unattributed"


def test_what_psi_counts_is_left_to_psi_and_what_it_does_not_see_is_added() -> None:
    assert judged(hardly, threads(0.2, running=0.5, folio_wait_bit_common=3.0))[0] == "unattributed"
    assert judged(hardly, threads(0.2, running=0.5, ptlrpc_set_wait=3.0))[0] == "storage"


def full_disk(at: float) -> Iterator[Sample]:
    """A disk that makes somebody on the host wait."""
    yield GPU_HOST_PRESSURE_SECONDS_TOTAL.sample(at * 0.7, "io", "some")


@pytest.mark.parametrize(
    ("known", "name"),
    [
        pytest.param((), "storage", id="its threads are unknown"),
        pytest.param((threads(0.2),), "unattributed", id="none of them waits"),
        pytest.param((threads(0.2, folio_wait_bit_common=0.49),), "unattributed", id="hardly one waits"),
        pytest.param((threads(0.2, folio_wait_bit_common=0.5),), "storage", id="one waits"),
    ],
)
def test_a_disk_that_makes_others_wait_is_not_what_a_job_waits_for(known: tuple[Series, ...], name: str) -> None:
    """On a kernel that counts stalls of the host, and not of cgroups."""
    assert judged(*known, full_disk)[0] == name


def slow_lookups(at: float) -> Iterator[Sample]:
    """A mount of which somebody on the host looks files up, at 80 ms each."""
    yield GPU_HOST_NFS_OPERATIONS_TOTAL.sample(at * 50, "/home", "LOOKUP")
    yield GPU_HOST_NFS_OPERATION_SECONDS_TOTAL.sample(at * 50 * 0.08, "/home", "LOOKUP")


def test_slow_nfs_is_somebody_elses_if_the_jobs_own_tasks_and_threads_hardly_wait() -> None:
    assert judged(hardly, threads(0.2, nv_ioctl=0.1), slow_lookups)[0] == "unattributed"


@pytest.mark.parametrize("known", [(), (threads(0.2),), (hardly,), (hardly, threads(0.2, untold=1.0))])
def test_slow_nfs_counts_where_the_jobs_own_waits_are_not_known(known: tuple[Series, ...]) -> None:
    """PSI does not count lookups, and without CAP_SYS_PTRACE the kernel does not tell what threads wait for."""
    name, because = judged(*known, slow_lookups, cpus=calm)
    assert (name, "NFS /home takes 80 ms a lookup" in because) == ("storage", True)


def test_slow_reads_of_lustre_and_reads_of_gpudirect_storage_that_do_not_end() -> None:
    def slow(at: float) -> Iterator[Sample]:
        yield GPU_HOST_LUSTRE_OPERATIONS_TOTAL.sample(at * 40, "scratch", "read")
        yield GPU_HOST_LUSTRE_OPERATION_SECONDS_TOTAL.sample(at * 40 * 0.2, "scratch", "read")

    def stuck(_at: float) -> Iterator[Sample]:
        yield GPU_HOST_GDS_OPERATIONS_IN_FLIGHT.sample(16, "read")
        yield GPU_HOST_GDS_OPERATIONS_TOTAL.sample(880, "read")

    assert judged(threads(0.2), slow) == ("storage", "Lustre scratch takes 200 ms a read")
    assert judged(threads(0.2), stuck) == ("storage", "16 reads of GPUDirect Storage do not end")


def test_cpus_that_poll_neither_fill_a_node_nor_hide_that_it_is_full() -> None:
    def polled(busy: float) -> Series:
        def samples(at: float) -> Iterator[Sample]:
            yield GPU_HOST_CPU_SECONDS_TOTAL.sample(at * 7.5, "0", "user")
            yield GPU_HOST_CPU_SECONDS_TOTAL.sample(at * 0.5, "0", "idle")
            yield GPU_HOST_CPU_SHARED_BUSY_RATIO.sample(busy, "0")

        return samples

    assert judged(threads(0.4), cpus=polled(0.7))[0] == "unattributed"
    assert judged(threads(0.4), cpus=polled(0.95)) == ("cpu", "CPUs of NUMA node 0 busy 95% of the time")
