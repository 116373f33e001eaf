"""The limits of jobs, by the files of their cgroups, as kernels of both versions write them.

Whom a GPU is given to: jobs by the files of Slurm's prolog, pods by the kubelet, and nobody.
"""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pynvml
import pytest
from tests.gathered import every
from tests.host_tree import HostTree
from tests.kubelet import Claim, Held, response
from tests.nvml_bench import BenchMaker

from gpu_triage.driver.kernel.cgroups import CgroupFolders, parse_membership
from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Holder, HolderSource, Moment, index_name, minor_name, real_machine
from gpu_triage.options.config import INDEX, MINOR
from gpu_triage.read.metrics.contract import GpuLabels, GpuRound
from gpu_triage.read.processes import slurm_jobs
from gpu_triage.read.processes.allocation import AllocationReader, render
from gpu_triage.read.processes.cgroup_limits import (
    CgroupReading,
    CgroupsReader,
    hides_cgroups,
    parse_cpu_max,
    parse_flat,
)
from gpu_triage.read.processes.facts import Owner, ProcessFacts, job_level
from gpu_triage.read.processes.pods import PodDirectory
from gpu_triage.read.processes.slurm_jobs import JobDirectory, parse_file, parse_list
from gpu_triage_simulator import load_scenario

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
            pressure={("cpu", "some"): 2.0, ("cpu", "full"): 1.0, ("io", "some"): 3.0, ("io", "full"): 0.0}
            | {("memory", "some"): 0.0, ("memory", "full"): 0.0},
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
    assert (only.cpu_limit, only.throttled_seconds, only.pressure) == (
        0.5,
        1.0,
        {("io", "some"): 1.0, ("io", "full"): 0.0},
    )


ROOTLESS = "/user.slice/user-1000.slice/user@1000.service/user.slice"


@pytest.mark.parametrize(
    ("own", "below"),
    [
        (CONTAINER, "/init.scope"),
        (f"/docker/{ID}", ""),
        (f"{ROOTLESS}/libpod-{ID}.scope", "/container"),
        ("/system.slice/slurmstepd.scope/job_42", "/step_batch/user/task_0"),
        ("/slurm/uid_1000/job_42", "/step_0"),
        ("/system.slice/triton.service", ""),
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
    unified(host, CONTAINER)
    assert Watch(host).read(f"0::{CONTAINER}\n")[CONTAINER].written_bytes is None, "there is no io controller"
    line = "{} rbytes=1459200 wbytes={} rios=192 wios=353 dbytes=0 dios=0\n"
    unified(host, POD, io_stat=line.format("8:0", 7))
    unified(host, CONTAINER, io_stat=line.format("8:16", 314773504) + line.format("254:0 254:1", 4096))
    unified(host, f"{CONTAINER}/worker", io_stat=line.format("8:16", 7))
    watch = Watch(host)
    read = watch.read(f"0::{CONTAINER}/worker\n")
    assert {path: each.written_bytes for path, each in read.items()} == {CONTAINER: 314777600}
    assert watch.failures == []


# As the prolog of deploy/slurm writes it.
TWO_GPUS = """\
SLURM_JOB_ID=4242
SLURM_JOB_USER=alice
SLURM_JOB_ACCOUNT=physics
SLURM_JOB_GPUS=0,1
CUDA_VISIBLE_DEVICES=0,1
"""
ALICE = Holder(slurm_job_id="4242", user="alice", account="physics")
MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
OTHER_MIG = "MIG-5f1e6b2a-0d77-5a9c-8a4e-1f2d3c4b5a69"


def at(seconds: float) -> Moment:
    return Moment(monotonic=seconds, wall=0.0)


@pytest.mark.parametrize(
    ("text", "job", "devices"),
    [
        (TWO_GPUS, ALICE, {index_name(0), index_name(1)}),
        ("SLURM_JOB_ID=7\nSLURM_JOB_GPUS=3", Holder(slurm_job_id="7"), {index_name(3)}),
        ("SLURM_JOB_ID=7\nSLURM_JOB_GPUS=0-2,7\n\n", Holder(slurm_job_id="7"), {index_name(n) for n in (0, 1, 2, 7)}),
        ('SLURM_JOB_ID="7"\r\nSLURM_JOB_GPUS="3"\r\n', Holder(slurm_job_id="7"), {index_name(3)}),
        (f"CUDA_VISIBLE_DEVICES={MIG},{OTHER_MIG}\n{TWO_GPUS}", ALICE, {MIG, OTHER_MIG}),
        (f"CUDA_VISIBLE_DEVICES={MIG},5\n{TWO_GPUS}", ALICE, {MIG, index_name(5)}),
        (f"CUDA_VISIBLE_DEVICES=NoDevFiles\n{TWO_GPUS}", ALICE, {index_name(0), index_name(1)}),
        # The first of each counts: what follows may be the end of an account's name.
        (f"{TWO_GPUS}{TWO_GPUS.replace('alice', 'bob').replace('4242', '7')}", ALICE, {index_name(0), index_name(1)}),
    ],
)
def test_a_job_and_its_gpus_are_read_as_the_prolog_has_them(text: str, job: Holder, devices: set[str]) -> None:
    assert set(parse_file(text, index_name)) == {(device, job) for device in every(devices)}


@pytest.mark.parametrize(
    "text",
    [
        *("", "\x00\x00\x00", "SLURM_JOB_ID=7\n", "SLURM_JOB_GPUS=0\n", "SLURM_JOB_ID=seven\nSLURM_JOB_GPUS=0\n"),
        *(f"SLURM_JOB_ID=7\nSLURM_JOB_GPUS={gpus}\n" for gpus in ("", "a100:2", "0-99999999")),
    ],
)
def test_a_file_that_names_no_job_or_no_gpu_is_malformed(text: str) -> None:
    with pytest.raises(ValueError, match="no"):
        list(parse_file(text, index_name))


def test_a_file_for_dcgm_exporter_lists_the_jobs_of_the_gpu_it_is_named_after() -> None:
    jobs = [Holder(slurm_job_id=number) for number in ("4242", "4243")]
    assert list(parse_list("3", "4242\n\n4243\n")) == [(index_name(3), job) for job in jobs]
    with pytest.raises(ValueError, match="is not a job number"):
        list(parse_list("3", "host-job-0\n"))


def test_jobs_are_found_by_what_slurm_calls_their_gpus(tmp_path: Path) -> None:
    (tmp_path / "4242.job").write_text(TWO_GPUS)
    (tmp_path / "1").write_text("77\n")
    (tmp_path / ".4243.tmp").write_text("SLURM_JOB_ID=4243\n")
    (tmp_path / "README").write_text("not a job")
    (tmp_path / "0.1").write_text("5\n")  # a MIG device in dcgm-exporter's numbers, which nothing here knows
    by_index, by_minor = (JobDirectory(tmp_path, numbers, 15.0, tmp_path) for numbers in (INDEX, MINOR))
    for jobs in (by_index, by_minor):
        assert jobs.refresh(at(0.0)) == ()
    assert by_index.holders({index_name(0), minor_name(5)}, at(0.0)) == {ALICE}
    assert by_index.holders({index_name(1)}, at(0.0)) == {ALICE, Holder(slurm_job_id="77")}
    assert by_minor.holders({index_name(5), minor_name(0)}, at(0.0)) == {ALICE}
    assert by_index.holders({minor_name(0)}, at(0.0)) == frozenset()


def test_a_job_ends_with_its_file_and_jobs_that_were_not_read_again_are_withdrawn(tmp_path: Path) -> None:
    file = tmp_path / "4242.job"
    file.write_text(TWO_GPUS)
    jobs = JobDirectory(tmp_path, INDEX, 15.0, tmp_path)
    assert not jobs.known(at(0.0))
    jobs.refresh(at(0.0))
    assert (jobs.holders({index_name(0)}, at(15.0)), jobs.known(at(15.0))) == (frozenset({ALICE}), True)
    assert (jobs.holders({index_name(0)}, at(15.1)), jobs.known(at(15.1))) == (frozenset(), False)
    file.unlink()
    jobs.refresh(at(20.0))
    assert (jobs.holders({index_name(0)}, at(20.0)), jobs.known(at(20.0))) == (frozenset(), True)


def test_a_file_from_before_the_boot_is_of_a_job_that_the_reboot_ended(tmp_path: Path) -> None:
    file = tmp_path / "4242.job"
    file.write_text(TWO_GPUS)
    os.utime(file, (1000.0, 1000.0))
    jobs = JobDirectory(tmp_path, INDEX, 15.0, tmp_path)
    (tmp_path / "stat").write_text("btime 999\n")
    jobs.refresh(at(0.0))
    assert jobs.holders({index_name(0)}, at(0.0)) == {ALICE}
    (tmp_path / "stat").write_text("btime 1001\n")
    jobs.refresh(at(0.0))
    assert jobs.holders({index_name(0)}, at(0.0)) == frozenset()


def test_a_file_that_cannot_be_used_costs_its_own_job_only(tmp_path: Path) -> None:
    (tmp_path / "4242.job").write_text(TWO_GPUS)
    (tmp_path / "1.job").write_text("junk")
    (tmp_path / "2.job").write_text("#" * (slurm_jobs.MAX_BYTES + 1))
    (tmp_path / "3.job").mkdir()
    os.mkfifo(tmp_path / "4.job")
    (tmp_path / "5.job").symlink_to("/etc/passwd")
    jobs = JobDirectory(tmp_path, INDEX, 15.0, tmp_path)
    assert jobs.refresh(at(0.0)) == ("malformed", "too_large", "malformed", "malformed", "io_error")
    assert jobs.holders({index_name(0)}, at(0.0)) == {ALICE}


def test_a_folder_that_is_not_there_is_no_folder_without_jobs(tmp_path: Path) -> None:
    jobs = JobDirectory(tmp_path / "jobs", INDEX, 15.0, tmp_path)
    with pytest.raises(HostReadFailed, match="missing"):
        jobs.refresh(at(0.0))
    assert not jobs.known(at(0.0))


GPU = "GPU-7c963d6b-0fa3-bd71-22a1-4e40dbd03047"
"""GPU 0 of the simulated h100-8."""
TRAINER = Held("train-0", "research", "trainer", (GPU,))
LABELS = GpuLabels("0", GPU)


def kubelet(*held: Held) -> PodDirectory:
    return PodDirectory(lambda: response(*held), 15.0)


def asked(round_: GpuRound, pods: HolderSource | None = None, slurm: HolderSource | None = None) -> GpuRound:
    """A round on a host of these schedulers, which have answered just now."""
    for source in (pods, slurm):
        if source is not None:
            source.refresh(round_.at)
    return dataclasses.replace(round_, machine=dataclasses.replace(round_.machine, pods=pods, slurm=slurm))


SHARES = (Held("a", "n", "c", (f"{GPU}::0",)), Held("b", "n", "c", (f"{GPU}::1", f"{GPU}::2")))


@pytest.mark.parametrize(
    ("pods", "gpu", "told"),
    [
        (kubelet(*SHARES), 0, [("", "a", "n", "c", "", "", ""), ("", "b", "n", "c", "", "", "")]),
        (kubelet(TRAINER), 1, [("",) * 7]),  # given to nobody
        (None, 0, []),  # nobody is asked
    ],
)
def test_holders_of_a_gpu(bench: BenchMaker, pods: PodDirectory | None, gpu: int, told: list[tuple[str, ...]]) -> None:
    rounds = bench("h100-8")
    reading = AllocationReader().read(asked(rounds.at(1, gpu=gpu), pods))
    value = float(told != [("",) * 7])
    assert [(sample.labels[2:], sample.value) for sample in render(reading, LABELS)] == [(each, value) for each in told]


def test_a_claim_is_found_by_the_minor_number(bench: BenchMaker) -> None:
    scenario = load_scenario("h100-8")
    gpus = (dataclasses.replace(scenario.gpus[0], minor_number=5), *scenario.gpus[1:])
    claim = Held("dra", "n", "c", (), claims=(Claim("gpu.nvidia.com", "gpu-5"),))
    rounds, reader = bench(dataclasses.replace(scenario, gpus=gpus)), AllocationReader()
    held = [("", Holder("dra", "n", "c"))]
    assert reader.read(asked(rounds.at(1), kubelet(claim))) == held
    # A driver that fails once does not make the GPU free.
    rounds.answer("nvmlDeviceGetMinorNumber", pynvml.NVML_ERROR_UNKNOWN)
    assert reader.read(asked(rounds.at(5), kubelet(claim))) == held


@pytest.mark.parametrize(("numbers", "gpu"), [(INDEX, 1), (MINOR, 3)])
def test_a_job_is_found_by_slurms_number_of_the_gpu(bench: BenchMaker, tmp_path: Path, numbers: str, gpu: int) -> None:
    (tmp_path / "42.job").write_text("SLURM_JOB_ID=42\nSLURM_JOB_USER=alice\nSLURM_JOB_GPUS=1\n")
    scenario = load_scenario("h100-8")
    swapped = {1: 3, 3: 1}
    gpus = tuple(dataclasses.replace(g, minor_number=swapped.get(i, i)) for i, g in enumerate(scenario.gpus))
    rounds = bench(dataclasses.replace(scenario, gpus=gpus))
    for index in range(4):
        round_ = asked(rounds.at(1, gpu=index), slurm=JobDirectory(tmp_path, numbers, 15.0, tmp_path))
        held = [("", Holder(slurm_job_id="42", user="alice"))] if index == gpu else []
        assert AllocationReader().read(round_) == held


def test_a_pod_on_a_mig_device_holds_that_device(bench: BenchMaker) -> None:
    rounds = bench("h100-mig")
    round_ = rounds.at(5)
    handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(round_.inquiry.device.handle, 0)
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    reading = AllocationReader().read(asked(round_, kubelet(Held("mig", "n", "c", (uuid,)))))
    assert reading == [(uuid, Holder("mig", "n", "c"))]


def test_who_does_not_answer_may_have_given_the_gpu_away(bench: BenchMaker, tmp_path: Path) -> None:
    """Kubernetes knows of nobody, and Slurm's folder cannot be read: that the GPU is free is not known."""
    missing = JobDirectory(tmp_path / "missing", INDEX, 15.0, tmp_path)
    rounds = bench("h100-8")
    with pytest.raises(HostReadFailed):
        missing.refresh(Moment(0.0, 0.0))
    for held, allocations in (((), None), ((TRAINER,), [("", Holder("train-0", "research", "trainer"))])):
        pods = kubelet(*held)
        pods.refresh(rounds.at(1).at)
        machine = dataclasses.replace(rounds.machine, pods=pods, slurm=missing)
        assert AllocationReader().read(dataclasses.replace(rounds.at(1), machine=machine)) == allocations
