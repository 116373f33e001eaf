"""The limits of jobs, by the files of their cgroups, as kernels of both versions write them."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from tests.host_tree import HostTree

from gpu_triage.driver.kernel.cgroups import CgroupFolders, parse_membership
from gpu_triage.machine import real_machine
from gpu_triage.read.processes.cgroup_limits import (
    CgroupReading,
    CgroupsReader,
    hides_cgroups,
    parse_cpu_max,
    parse_flat,
)
from gpu_triage.read.processes.facts import Owner, ProcessFacts, job_level

PID = 4242
ID, OTHER_ID = "3f4e" * 16, "9a7d" * 16
QOS = "/kubepods.slice/kubepods-burstable.slice"
POD = f"{QOS}/kubepods-burstable-pod8d1e2f3a_4b5c_6d7e_8f90_a1b2c3d4e5f6.slice"
CONTAINER = f"{POD}/cri-containerd-{ID}.scope"
ROOT = "sys/fs/cgroup"
# The fields of cpu.stat on Linux 5.15 and later, with the controller enabled (Documentation/admin-guide/cgroup-v2.rst).
CPU_STAT = (
    "usage_usec 623932088\nuser_usec 421230248\nsystem_usec 202701840\nnr_periods {}\nnr_throttled {}\n"
    "throttled_usec {}\nnr_bursts 0\nburst_usec 0\n"
)
EVENTS = "low 0\nhigh {}\nmax {}\noom 1\noom_kill 1\noom_group_kill 0\n"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
UNLIMITED = {"cpu.max": "max 100000\n", "memory.max": "max\n", "memory.high": "max\n"}


@dataclass
class Watch:
    """A reader of one process's cgroups."""

    host: HostTree
    reader: CgroupsReader = field(default_factory=CgroupsReader)
    failures: list[str] = field(default_factory=list)

    def read(self, cgroup: str, now: float = 0.0) -> dict[str, CgroupReading]:
        facts = ProcessFacts("python3", "", None, Owner(), parse_membership(cgroup))
        machine = real_machine(self.host.sysfs, self.host.procfs, None)
        return {each.path: each for each in self.reader.read(machine, {PID: facts}, now, self.failures)}


def unified(host: HostTree, path: str, **files: str) -> None:
    """A cgroup of version 2, with the files of its enabled controllers."""
    named = {name.replace("_", ".", 1): text for name, text in files.items()}
    host.write({f"{ROOT}/cgroup.controllers": "cpuset cpu io memory pids\n"})
    host.write({f"{ROOT}{path}/{name}": text for name, text in {"cgroup.procs": f"{PID}\n", **named}.items()})


def test_a_throttled_container_of_kubernetes(host: HostTree) -> None:
    unified(host, QOS, cpu_max="max 100000\n")
    unified(host, POD, cpu_max="max 100000\n", memory_max="max\n", memory_high="max\n")
    unified(
        host,
        CONTAINER,
        cpu_max="400000 100000\n",
        cpu_stat=CPU_STAT.format(600, 540, 90_500_000),
        memory_max="68719476736\n",
        memory_events=EVENTS.format(0, 7),
        cpu_pressure=PRESSURE.format(2_000_000, 1_000_000),
        io_pressure=PRESSURE.format(3_000_000, 0),
        memory_pressure=PRESSURE.format(0, 0),
    )
    watch = Watch(host)
    assert watch.read(f"0::{CONTAINER}\n") == {
        CONTAINER: CgroupReading(
            CONTAINER,
            cpu_limit=4.0,
            periods=600,
            throttled_periods=540,
            throttled_seconds=90.5,
            memory_events={"high": 0, "max": 7, "oom": 1, "oom_kill": 1},
            cpu_pressure={"some": 2.0, "full": 1.0},
            io_pressure={"some": 3.0, "full": 0.0},
            memory_pressure={"some": 0.0, "full": 0.0},
        )
    }
    assert watch.failures == []


def test_a_limit_of_the_pod_is_read_beside_its_containers(host: HostTree) -> None:
    unified(host, POD, cpu_max="200000 100000\n", cpu_stat=CPU_STAT.format(10, 9, 5_000))
    unified(host, CONTAINER, cpu_max="max 100000\n", cpu_stat=CPU_STAT.format(0, 0, 0))
    read = Watch(host).read(f"0::{CONTAINER}\n")
    assert (read[POD].cpu_limit, read[POD].throttled_periods, read[POD].throttled_seconds) == (2.0, 9, 0.005)
    assert read[CONTAINER] == CgroupReading(CONTAINER)  # without a limit, its zeros say nothing


def test_version_1_counts_nanoseconds_and_failures(host: HostTree) -> None:
    """As Oracle Linux 8 (4.18) writes cpu.stat; there is no PSI of a cgroup."""
    path = f"/kubepods/burstable/pod8d1e2f3a-4b5c-6d7e-8f90-a1b2c3d4e5f6/{ID}"
    host.write(
        {
            f"{ROOT}/cpu,cpuacct{path}/cpu.cfs_quota_us": "150000\n",
            f"{ROOT}/cpu,cpuacct{path}/cpu.cfs_period_us": "100000\n",
            f"{ROOT}/cpu,cpuacct{path}/cpu.stat": "nr_periods 40\nnr_throttled 30\nthrottled_time 2500000000\n",
            f"{ROOT}/memory{path}/memory.limit_in_bytes": "1073741824\n",
            f"{ROOT}/memory{path}/memory.failcnt": "12\n",
            f"{ROOT}/memory{path}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            f"{ROOT}/memory/kubepods/memory.limit_in_bytes": "9223372036854771712\n",
            f"{ROOT}/cpu,cpuacct/kubepods/cpu.cfs_quota_us": "-1\n",
            f"{ROOT}/cpu,cpuacct/kubepods/cpu.cfs_period_us": "100000\n",
        }
    )
    watch = Watch(host)
    read = watch.read(f"11:memory:{path}\n4:cpu,cpuacct:{path}\n1:name=systemd:{path}\n")
    assert read == {path: CgroupReading(path, 1.5, 40, 30, 2.5, {"max": 12, "oom_kill": 2})}
    assert watch.failures == []


def test_where_both_versions_are_mounted_each_tells_what_it_has(host: HostTree) -> None:
    path = f"/docker/{ID}"
    host.write(
        {
            f"{ROOT}/unified/cgroup.controllers": "\n",
            f"{ROOT}/unified{path}/cpu.stat": "usage_usec 1\nuser_usec 1\nsystem_usec 0\n",
            f"{ROOT}/unified{path}/io.pressure": PRESSURE.format(1_000_000, 0),
            f"{ROOT}/cpu{path}/cpu.cfs_quota_us": "50000\n",
            f"{ROOT}/cpu{path}/cpu.cfs_period_us": "100000\n",
            f"{ROOT}/cpu{path}/cpu.stat": "nr_periods 4\nnr_throttled 3\nthrottled_time 1000000000\n",
        }
    )
    (only,) = Watch(host).read(f"4:cpu,cpuacct:{path}\n0::{path}\n").values()
    assert (only.cpu_limit, only.throttled_seconds, only.io_pressure) == (0.5, 1.0, {"some": 1.0, "full": 0.0})


ROOTLESS = "/user.slice/user-1000.slice/user@1000.service/user.slice"


@pytest.mark.parametrize(
    ("own", "below"),
    [
        (CONTAINER, "/init.scope"),
        (f"/docker/{ID}", ""),
        (f"/machine.slice/libpod-{ID}.scope", "/container"),
        (f"{ROOTLESS}/libpod-{ID}.scope", "/container"),
        ("/system.slice/slurmstepd.scope/job_42", "/step_batch/user/task_0"),
        ("/slurm/uid_1000/job_42", "/step_0"),
        ("/system.slice/triton.service", ""),
        ("/user.slice/user-1000.slice/session-3.scope", ""),
        ("/batch", ""),
    ],
)
def test_the_jobs_own_cgroup_holds_its_workers_too(own: str, below: str) -> None:
    assert job_level(own + below) == own


def test_a_neighbor_in_kubernetes_is_found_from_the_exporters_own_namespace(host: HostTree) -> None:
    """Paths as cgroup_namespaces(7) has them: from the exporter's container, process 1 of the host is five above."""
    own = f"{QOS}/kubepods-burstable-pod00000000_0000_0000_0000_000000000000.slice/cri-containerd-{OTHER_ID}.scope"
    unified(host, own, cgroup_procs="77\n")
    unified(host, CONTAINER, cpu_max="400000 100000\n", cpu_stat=CPU_STAT.format(6, 5, 9))
    host.write({"proc/1/cgroup": "0::/../../../../init.scope\n"})
    watch = Watch(host)
    relative = CONTAINER.removeprefix(QOS)
    assert watch.read(f"0::/../..{relative}\n")[CONTAINER].throttled_periods == 5
    # One without a start in common, and one of which the host has no such process.
    unified(host, "/system.slice/train.service", cpu_max="100000 100000\n", cpu_stat=CPU_STAT.format(6, 4, 9))
    assert watch.read("0::/../../../../system.slice/train.service\n")["/system.slice/train.service"].periods == 6
    unified(host, CONTAINER, cgroup_procs="78\n")
    assert Watch(host).read(f"0::/../..{relative}\n") == {}


def test_without_the_hosts_cgroups_the_reason_is_named(host: HostTree) -> None:
    host.mount()
    host.write({"proc/1/cgroup": "0::/../../../../init.scope\n"})
    assert hides_cgroups(host.procfs, host.sysfs) == "missing"
    host.write({f"{ROOT}/cgroup.controllers": "cpu memory\n", f"{ROOT}/cgroup.type": "domain\n"})
    assert hides_cgroups(host.procfs, host.sysfs) == "other_cgroup_namespace"
    (host.sysfs / "fs" / "cgroup" / "cgroup.type").unlink()
    assert hides_cgroups(host.procfs, host.sysfs) is None
    assert CgroupFolders(host.procfs, host.sysfs).root("memory") is None


def test_a_limit_that_is_set_later_is_seen_within_half_a_minute(host: HostTree) -> None:
    watch, path = Watch(host), "/batch"
    unified(host, path, **UNLIMITED, cpu_stat=CPU_STAT.format(0, 0, 0))
    assert watch.read(f"0::{path}\n")[path].cpu_limit is None
    unified(host, path, cpu_max="50000 100000\n")
    assert watch.read(f"0::{path}\n", now=30.0)[path].cpu_limit == 0.5


@pytest.mark.parametrize("path", ["/..", "/../../x", "/a/../b", "/../.."])
def test_a_path_that_leads_nowhere_is_no_cgroup(host: HostTree, path: str) -> None:
    unified(host, "/batch")
    host.write({"proc/1/cgroup": "0::/\n"})
    assert Watch(host).read(f"0::{path}\n") == {}


@pytest.mark.parametrize(
    ("parse", "text"),
    [*((parse_cpu_max, text) for text in ("", "max", "1 2 3", "-1 100000", "a 100000")), (parse_flat, "a 1 2\n")],
)
def test_a_limit_that_is_not_understood(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several parsers
        parse(text)


def test_what_a_job_writes_to_disks_is_counted_for_its_own_cgroup(host: HostTree) -> None:
    """The format of Documentation/admin-guide/cgroup-v2.rst; some kernels leave devices without values in a line."""
    line = "{} rbytes=1459200 wbytes={} rios=192 wios=353 dbytes=0 dios=0\n"
    unified(host, POD, io_stat=line.format("8:0", 7))
    unified(host, CONTAINER, io_stat=line.format("8:16", 314773504) + line.format("254:0 254:1", 4096))
    unified(host, f"{CONTAINER}/worker", io_stat=line.format("8:16", 7))
    watch = Watch(host)
    read = watch.read(f"0::{CONTAINER}/worker\n")
    assert {path: each.written_bytes for path, each in read.items()} == {CONTAINER: 314777600}
    assert watch.failures == []


def test_without_the_io_controller_nobody_knows_what_a_job_writes_to_disks(host: HostTree) -> None:
    unified(host, CONTAINER)
    assert Watch(host).read(f"0::{CONTAINER}\n")[CONTAINER].written_bytes is None
