"""Who uses a GPU, from which side of the host, and whose PIDs the driver reports.

Boundaries of drivers are from the tags of open-gpu-kernel-modules. 535.113.01: _gpuConvertPid in gpuGetProcWithObject
(gpu_rmapi.c). 565.57.01: in gpuFindClientInfoWithPidIterator, too. 570.86.15: osFindNsPid in kern_perf_ctrl.c.
"""

import dataclasses
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pynvml
import pytest
from tests.host_tree import HostTree
from tests.nvml_bench import Bench, BenchMaker

from gpu_triage.machine import Moment
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.processes import on_gpu as processes
from gpu_triage.read.processes.facts import DriverPids, Owner, ProcessFacts, driver_pids
from gpu_triage.read.processes.locality import Placement
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_OWNER_INFO, ProcessesReader, ProcessesReading, ProcessReading
from gpu_triage.read.processes.pods import NO_WORKLOAD
from gpu_triage_simulator import VirtualClock

NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
LISTS = {
    "compute": "nvmlDeviceGetComputeRunningProcesses_v3",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses_v3",
}


def lists(*processes: tuple[int, int], instances: bool = False) -> Callable[..., int]:
    """A list of running processes: PID and bytes of each, each on a MIG instance of its own if there are instances."""

    def call(_device: Any, count: Any, out: Any) -> int:
        room, count._obj.value = count._obj.value, len(processes)
        if processes and (out is None or room < len(processes)):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for number, (entry, (pid, used)) in enumerate(zip(out or (), processes, strict=False)):
            entry.pid, entry.usedGpuMemory = pid, used
            entry.gpuInstanceId = entry.computeInstanceId = number if instances else 0xFFFFFFFF  # none
        return 0

    return call


def utilization(*samples: tuple[int, float, int]) -> Callable[..., int]:
    """nvmlDeviceGetProcessUtilization: PID, time of day in seconds and percent of each sample."""

    def call(_device: Any, out: Any, count: Any, since: Any) -> int:
        found = [sample for sample in samples if round(sample[1] * 1e6) > since.value]
        room, count._obj.value = count._obj.value, len(found)
        if not found:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        if out is None or room < len(found):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for entry, (pid, at, percent) in zip(out, found, strict=False):
            entry.pid, entry.timeStamp, entry.smUtil = pid, round(at * 1e6), percent
        return 0

    return call


def listing(nvml: Bench, **processes: tuple[tuple[int, int], ...]) -> Bench:
    """A bench whose GPUs list these processes by kind."""
    for kind, function in LISTS.items():
        nvml.answer(function, lists(*processes.get(kind, ())))
    return nvml


def placement_of(nvml: Bench, cpus: str) -> Placement:
    """Where PID 24819 of GPU 0 runs when it may run on these CPUs."""
    status = nvml.machine.procfs / "24819" / "status"
    status.write_text(re.sub(r"(?<=Cpus_allowed_list:\t).*", cpus, status.read_text()))
    process = next(p for p in ProcessesReader(32).read(nvml.round()).processes if p.pid == 24819)
    return Placement(process.numa_local, process.numa_distance, process.unpinned)


def test_the_largest_processes_are_kept_and_the_rest_counted(bench: BenchMaker) -> None:
    nvml = listing(bench(), compute=((1, 10), (2, 30), (3, 20), (4, 30), (5, NOT_AVAILABLE)))
    reading = ProcessesReader(3).read(nvml.round())
    assert [p.pid for p in reading.processes] == [2, 4, 3]
    assert (reading.truncated, reading.counts["compute"]) == (2, 5)


@pytest.mark.parametrize(("listed", "more"), [(949, 949 - 32), (950, 950 - 32 + 1)])
def test_a_list_that_the_driver_ends_may_be_longer(bench: BenchMaker, listed: int, more: int) -> None:
    # NV2080_CTRL_GPU_GET_PIDS_MAX_COUNT of open-gpu-kernel-modules: at 950 the driver stops, and succeeds.
    nvml = listing(bench(), compute=tuple((pid, 10) for pid in range(1, listed + 1)))
    reading = ProcessesReader(32).read(nvml.round())
    assert (reading.truncated, reading.counts["compute"]) == (more, listed)


NONE: dict[str, int] = dict.fromkeys(("graphics", "compute_graphics", "mps"), 0)
NO_MPS = {"compute": 1, "graphics": 0, "compute_graphics": 0}
MISSING = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
SEVERAL = {f"{kind}_v3": lists((24819, 5)) for kind in ("Compute", "MPSCompute")}
SEVERAL |= {"Graphics_v3": lists((24819, 5), (7, 1))}
OF_SEVERAL = {"compute": 0, "graphics": 1, "compute_graphics": 1, "mps": 1}
WITHOUT_MPS = {"Compute_v3": lists((9, 1)), "MPSCompute_v2": MISSING, "MPSCompute_v3": MISSING}
Listed = tuple[int, float | None, bool]
"""PID, bytes, and whether it computes."""


@pytest.mark.parametrize(
    ("answers", "processes", "counts", "failures"),
    [
        # In several lists, it is one process; on several MIG instances, it has the sum of their memory.
        (SEVERAL, [(24819, 5, True), (7, 1, False)], OF_SEVERAL, []),
        ({"Compute_v3": lists((9, 500), (9, 300), instances=True)}, [(9, 800, True)], {"compute": 1} | NONE, []),
        # It is listed for each of its clients, outside of the host's PID namespace: it holds its memory once.
        ({"Compute_v3": lists((9, 5), (9, 5), (11, 2))}, [(9, 5, True), (11, 2, True)], {"compute": 2} | NONE, []),
        ({"Compute_v3": lists((9, NOT_AVAILABLE))}, [(9, None, True)], {"compute": 1} | NONE, []),
        # No kernel gives out such a PID.
        ({"Compute_v3": lists((0xFFFFFFFF, 10), (9, 10))}, [(9, 10, True)], {"compute": 1} | NONE, ["implausible"]),
        ({"Compute_v3": MISSING, "Compute_v2": lists((9, 77))}, [(9, 77, True)], {"compute": 1} | NONE, []),
        (WITHOUT_MPS, [(9, 1, True)], NO_MPS, []),
    ],
)
def test_what_lists_tell(
    bench: BenchMaker, answers: dict[str, Any], processes: list[Listed], counts: dict[str, int], failures: list[str]
) -> None:
    nvml = listing(bench())
    for name, answer in answers.items():
        kind, version = name.split("_")
        nvml.answer(f"nvmlDeviceGet{kind}RunningProcesses_{version}", answer)
    round_ = nvml.round()
    reading = ProcessesReader(32).read(round_)
    assert [(p.pid, p.memory_bytes, p.is_compute) for p in reading.processes] == processes
    assert (reading.counts, round_.inquiry.failures) == (counts, failures)


@pytest.mark.parametrize(("compute", "counts"), [((), {}), (((9, 500),), {"compute": 1} | NONE)])
def test_an_empty_list_in_a_pid_namespace_of_its_own_says_nothing(
    bench: BenchMaker, compute: tuple[tuple[int, int], ...], counts: dict[str, int]
) -> None:
    nvml = listing(bench("idle-downshift"), compute=compute)
    HostTree(nvml.machine.procfs.parent).in_container()
    reading = ProcessesReader(32).read(nvml.round())
    assert (reading.counts, reading.locality_known) == (counts, False)


def test_a_process_without_a_new_sample_ran_nothing(bench: BenchMaker) -> None:
    nvml = listing(bench(), compute=((1, 10), (2, 5)))
    now = nvml.clock.now().wall
    nvml.answer("nvmlDeviceGetProcessUtilization", utilization((1, now - 1.0, 40), (1, now - 0.5, 60)))
    reader = ProcessesReader(32)
    for ratios in ([0.6, 0.0], [0.0, 0.0]):
        assert [p.sm_utilization_ratio for p in reader.read(nvml.round()).processes] == ratios


@pytest.mark.parametrize(
    ("answer", "failures"),
    [(pynvml.NVML_ERROR_NOT_SUPPORTED, []), (utilization((1, VirtualClock().now().wall, 0xFFFFFFFF)), ["implausible"])],
)
def test_unsupported_or_absurd_utilization_is_none(bench: BenchMaker, answer: Any, failures: list[str]) -> None:
    nvml = listing(bench(), compute=((1, 10),))
    nvml.answer("nvmlDeviceGetProcessUtilization", answer)
    round_ = nvml.round()
    assert [p.sm_utilization_ratio for p in ProcessesReader(32).read(round_).processes] == [None]
    assert round_.inquiry.failures == failures


def test_a_clock_that_is_set_back_does_not_make_processes_look_idle(bench: BenchMaker) -> None:
    nvml, reader = listing(bench(), compute=((1, 10),)), ProcessesReader(32)
    now = nvml.clock.now()
    nvml.answer("nvmlDeviceGetProcessUtilization", utilization((1, now.wall, 50)))
    reader.read(nvml.round(at=now))
    back = Moment(now.monotonic + 5, now.wall - 3600)
    nvml.answer("nvmlDeviceGetProcessUtilization", utilization((1, now.wall, 50), (1, back.wall, 70)))
    assert [p.sm_utilization_ratio for p in reader.read(nvml.round(at=back)).processes] == [0.7]


@pytest.mark.parametrize(
    ("cpus", "placement"),
    [
        ("0-31", Placement(1.0)),
        ("32-63", Placement(0.0, 32)),
        ("30-33", Placement()),
        ("0-63", Placement(unpinned=True)),
        ("0-255", Placement(unpinned=True)),
        ("64-127", Placement()),
        ("junk", Placement()),
    ],
)
def test_a_process_is_where_its_cpus_are(bench: BenchMaker, cpus: str, placement: Placement) -> None:
    assert placement_of(bench("dual-a10"), cpus) == placement


@pytest.mark.parametrize(
    ("distances", "placement"),
    [
        ("10 20", Placement(0.0, 20)),
        ("10 12", Placement()),  # two nodes of one socket: the host has no far side
    ],
)
def test_a_process_clearly_farther_is_remote(bench: BenchMaker, distances: str, placement: Placement) -> None:
    nvml = bench("dual-a10")
    (nvml.machine.sysfs / "devices/system/node/node0/distance").write_text(f"{distances}\n")
    assert placement_of(nvml, "32-63") == placement


NODES = "devices/system/node"


@pytest.mark.parametrize(
    "files",
    [
        {f"{NODES}/node0/cpulist": "0-63\n", f"{NODES}/node1/cpulist": "\n"},  # a host with one node
        {"bus/pci/devices/0000:65:00.0/numa_node": "-1\n"},  # a GPU whose node is not known
    ],
)
def test_without_a_far_side_there_is_no_locality(bench: BenchMaker, files: dict[str, str]) -> None:
    nvml = bench("dual-a10")
    for path, text in files.items():
        (nvml.machine.sysfs / path).write_text(text)
    assert placement_of(nvml, "0-31") == Placement()
    assert not ProcessesReader(32).read(nvml.round()).locality_known


def test_a_process_that_vanished_is_listed_without_facts(bench: BenchMaker) -> None:
    nvml = listing(bench("dual-a10"), compute=((4_000_000, 10),))
    reading = ProcessesReader(32).read(nvml.round())
    (process,) = reading.processes
    assert (process.facts, process.numa_local) == (None, None)
    assert not reading.locality_known


RIGHT = DriverPids(procfs=True, memory=True, utilization=True)
NOTHING = DriverPids(procfs=False, memory=False, utilization=False)


@pytest.mark.parametrize(
    ("driver", "beside_own", "beside_the_hosts"),
    [
        ("515.43.04", (False, True, True), (True, True, True)),
        ("535.104.05", (False, True, True), (True, True, True)),
        ("535.113.01", (True, False, False), (False, False, False)),
        ("565.57.01", (True, True, False), (False, True, False)),
        ("570.86.15", RIGHT, (False, True, True)),
        ("580.95.05", RIGHT, (False, True, True)),
        (None, NOTHING, NOTHING),
    ],
)
def test_pids_by_driver(
    host: HostTree, driver: str | None, beside_own: DriverPids, beside_the_hosts: DriverPids
) -> None:
    host.in_container()
    assert driver_pids(host.procfs, driver) == beside_own
    # The host's procfs has this process with both of its PIDs.
    host.in_container("81200\t7")
    assert driver_pids(host.procfs, driver) == beside_the_hosts


def test_on_the_host_all_pids_are_the_hosts(host: HostTree) -> None:
    host.write({"proc/self/status": "Name:\tgpu-triage\nNSpid:\t812\n"})
    host.link("proc/self/ns/pid", "pid:[4026531836]")
    assert driver_pids(host.procfs, None) == RIGHT


def process_in_a_container(nvml: Bench, driver: str, nspid: str) -> ProcessReading:
    """The one process, PID 24819 of the scenario's procfs, as an exporter in a container reads it with a driver."""
    nvml.versions = replace(nvml.versions, driver=driver)
    HostTree(nvml.machine.procfs.parent).in_container(nspid)
    listing(nvml, compute=((24819, 500),))
    nvml.answer("nvmlDeviceGetProcessUtilization", utilization((24819, nvml.clock.now().wall, 72)))
    (process,) = ProcessesReader(32).read(nvml.round()).processes
    return process


def test_a_container_has_the_names_of_its_own_procfs_and_what_the_driver_counts_under_its_pids(
    bench: BenchMaker,
) -> None:
    process = process_in_a_container(bench("dual-a10"), "580.95.05", "7")
    assert process.facts is not None
    assert (process.facts.name, process.memory_bytes, process.sm_utilization_ratio) == ("python", 500, 0.72)
    # Another process under the same PID of the host is not looked up.
    process = process_in_a_container(bench("dual-a10"), "580.95.05", "81200\t7")
    assert (process.facts, process.memory_bytes) == (None, 500)
    # What a driver counts under another PID is absent and not zero.
    process = process_in_a_container(bench("dual-a10"), "550.54.14", "7")
    assert process.facts is not None
    assert (process.memory_bytes, process.sm_utilization_ratio) == (None, None)


GPU = GpuLabels("0", "GPU-a")
REMOTE, UNPINNED = Placement(0.0), Placement(unpinned=True)


def process(pid: int, placement: Placement, *, is_compute: bool = True) -> ProcessReading:
    found = ProcessReading(pid, is_compute, None, None, None, NO_WORKLOAD)
    return dataclasses.replace(found, numa_local=placement.local, unpinned=placement.unpinned)


def test_an_owner_has_one_series_however_many_processes_and_containers_it_has_on_the_gpu() -> None:
    def owned(pid: int, user: str, owner: Owner) -> ProcessReading:
        return dataclasses.replace(process(pid, Placement()), facts=ProcessFacts("python", user, None, owner))

    job = Owner(slurm_job_id="42")
    listed = (
        owned(1, "alice", job),
        owned(2, "alice", job._replace(container_id="c" * 64)),
        owned(3, "alice", Owner(slurm_job_id="43")),
        owned(4, "bob", Owner()),
        owned(5, "alice", job),
    )
    reading = ProcessesReading({"compute": len(listed)}, listed, 0, locality_known=False)
    shown = [each for each in processes.render(reading, GPU) if each.spec is GPU_PROCESS_OWNER_INFO]
    owners = [(each.labels[2], each.labels[6], each.value) for each in shown]
    assert owners == [("alice", "42", 1.0), ("alice", "43", 1.0), ("bob", "", 1.0)]


@pytest.mark.parametrize(
    ("placements", "is_compute", "known", "misplaced"),
    [
        ((REMOTE, REMOTE, UNPINNED, Placement(), Placement(1.0)), True, True, [2.0, 1.0]),
        ((REMOTE, UNPINNED), False, True, [0.0, 0.0]),  # graphics
        ((Placement(),), True, False, []),
    ],
)
def test_remote_and_unpinned_compute_processes_are_counted(
    placements: tuple[Placement, ...], *, is_compute: bool, known: bool, misplaced: list[float]
) -> None:
    listed = tuple(process(pid, each, is_compute=is_compute) for pid, each in enumerate(placements))
    samples = list(processes.render(ProcessesReading({"compute": len(listed)}, listed, 0, locality_known=known), GPU))
    counts = (processes.GPU_NUMA_MISMATCHED_PROCESSES, processes.GPU_NUMA_UNPINNED_PROCESSES)
    assert [sample.value for spec in counts for sample in samples if sample.spec is spec] == misplaced
    # Only local and remote processes have a locality to show.
    shown_local = [sample.value for sample in samples if sample.spec is processes.GPU_PROCESS_NUMA_LOCAL]
    assert shown_local == [each.local for each in placements if each.local is not None]
