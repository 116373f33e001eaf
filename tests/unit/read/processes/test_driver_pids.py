"""Whose PIDs the driver reports; boundaries from the tags of open-gpu-kernel-modules.

535.113.01: _gpuConvertPid in gpuGetProcWithObject (gpu_rmapi.c). 565.57.01: in gpuFindClientInfoWithPidIterator, too.
570.86.15: osFindNsPid in kern_perf_ctrl.c.
"""

from dataclasses import replace

import pytest
from tests.host_tree import HostTree
from tests.nvml_bench import Bench, BenchMaker
from tests.unit.read.processes.test_readers_processes import listing, utilization

from gpu_triage.read.processes.facts import DriverPids, driver_pids
from gpu_triage.read.processes.on_gpu import ProcessesReader, ProcessReading

RIGHT = DriverPids(procfs=True, memory=True, utilization=True)
NOTHING = DriverPids(procfs=False, memory=False, utilization=False)


def own_procfs(host: HostTree) -> None:
    host.write({"proc/self/status": "Name:\tgpu-triage\nNSpid:\t7\n"})
    host.link("proc/self/ns/pid", "pid:[4026532441]")


def host_procfs(host: HostTree) -> None:
    """As seen from a container: the host's procfs has this process with both of its PIDs."""
    host.write({"proc/self/status": "Name:\tgpu-triage\nNSpid:\t81200\t7\n"})
    host.link("proc/self/ns/pid", "pid:[4026532441]")


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
    own_procfs(host)
    assert driver_pids(host.procfs, driver) == beside_own
    (host.procfs / "self" / "ns" / "pid").unlink()
    host_procfs(host)
    assert driver_pids(host.procfs, driver) == beside_the_hosts


@pytest.mark.parametrize("driver", ["515.43.04", "550.54.14", "580.95.05", None])
def test_on_the_host_all_pids_are_the_hosts(host: HostTree, driver: str | None) -> None:
    host.write({"proc/self/status": "Name:\tgpu-triage\nNSpid:\t812\n"})
    host.link("proc/self/ns/pid", "pid:[4026531836]")
    assert driver_pids(host.procfs, driver) == RIGHT


def process_in_a_container(nvml: Bench, driver: str, nspid: str) -> ProcessReading:
    """The one process, PID 24819 of the scenario's procfs, as an exporter in a container reads it with a driver."""
    nvml.versions = replace(nvml.versions, driver=driver)
    own = nvml.machine.procfs / "self"
    (own / "ns").mkdir(parents=True, exist_ok=True)
    (own / "status").write_text(f"Name:\tgpu-triage\nNSpid:\t{nspid}\n")
    (own / "ns" / "pid").symlink_to("pid:[4026532281]")
    listing(nvml, compute=((24819, 500),))
    nvml.answer("nvmlDeviceGetProcessUtilization", utilization((24819, nvml.clock.now().wall, 72)))
    (process,) = ProcessesReader(32).read(nvml.round()).processes
    return process


def test_a_container_has_the_names_that_its_own_procfs_has(bench: BenchMaker) -> None:
    process = process_in_a_container(bench("dual-a10"), "580.95.05", "7")
    assert process.facts is not None
    assert (process.facts.name, process.memory_bytes, process.sm_utilization_ratio) == ("python", 500, 0.72)


def test_another_process_under_the_same_pid_of_the_host_is_not_looked_up(bench: BenchMaker) -> None:
    process = process_in_a_container(bench("dual-a10"), "580.95.05", "81200\t7")
    assert (process.facts, process.memory_bytes) == (None, 500)


def test_what_a_driver_counts_under_another_pid_is_absent_and_not_zero(bench: BenchMaker) -> None:
    process = process_in_a_container(bench("dual-a10"), "550.54.14", "7")
    assert process.facts is not None
    assert (process.memory_bytes, process.sm_utilization_ratio) == (None, None)
