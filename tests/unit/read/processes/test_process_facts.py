import shutil
import subprocess
import time
from pathlib import Path

import pytest
from tests.host_tree import HostTree

from gpu_triage.driver.kernel.cgroups import Membership, Place
from gpu_triage.driver.kernel.files import Answer, Question, hooked
from gpu_triage.driver.kernel.procfs import read_process_stats
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.processes.facts import Owner, ProcessFacts, ProcessFactsReader, names_are_host_pids, parse_cgroup

ID = "3f4e8c1b9a7d6f5e4c3b2a190817263544536271809fabcdef0123456789abcd"
OUTER_ID = "0" * 64
UID = "8d1e2f3a-4b5c-6d7e-8f90-a1b2c3d4e5f6"
SYSTEMD_UID = UID.replace("-", "_")
ROOTLESS = "/user.slice/user-1000.slice/user@1000.service/user.slice"
POD_SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD_UID}.slice"

STAT_TAIL = "S 1 4242 4242 0 -1 4194560 5118 0 12 0 95 31 0 0 20 0 9 0 8812345 11796480 1203" + " 0" * 28 + "\n"
STATUS = """\
Name:\tpython3
Umask:\t0022
State:\tS (sleeping)
Pid:\t4242
Uid:\t1001\t1002\t1001\t1001
NSpid:\t4242\t7
Cpus_allowed:\tffffffff,00000000
Cpus_allowed_list:\t32-63
Mems_allowed_list:\t0-1
"""


def process(host: HostTree, pid: int = 4242, **files: str) -> None:
    whole = {
        "stat": f"{pid} (python3) {STAT_TAIL}",
        "status": STATUS,
        "cgroup": f"0::{POD_SLICE}/cri-containerd-{ID}.scope\n",
    } | files
    host.write({f"proc/{pid}/{name}": text for name, text in whole.items()})


def facts_of(procfs: Path, pid: int, reader: ProcessFactsReader | None = None, now: float = 0.0) -> ProcessFacts | None:
    return (reader or ProcessFactsReader()).read(procfs, read_process_stats(procfs, (pid,)), now).get(pid)


def known(facts: ProcessFacts | None) -> ProcessFacts:
    assert facts is not None
    return facts


def test_facts_of_a_process_in_a_pod(host: HostTree) -> None:
    process(host)
    assert facts_of(host.procfs, 4242) == ProcessFacts(
        name="python3",
        user="1001",  # a procfs that is not /proc is another's: its user names are not known here
        allowed_cpus=frozenset(range(32, 64)),
        owner=Owner(ID, UID),
        cgroups=Membership(unified=Place("", f"{POD_SLICE}/cri-containerd-{ID}.scope")),
    )


def test_a_process_with_files_that_procfs_hides_is_known_to_exist(host: HostTree) -> None:
    """As by hidepid=1."""

    def hide(_question: Question, path: str, answer: Answer) -> bytes | None:
        if answer() is not None:
            raise HostReadFailed("no_permission", path, "is hidden")
        return None

    process(host)
    with hooked({"proc": host.procfs}, hide):
        assert facts_of(host.procfs, 4242) == ProcessFacts("", "", None, Owner())
        assert facts_of(host.procfs, 4243) is None


def test_what_cannot_be_read_is_left_out_alone(host: HostTree) -> None:
    process(host, status="Uid:\tme\nCpus_allowed_list:\t0-99999999999\n", cgroup="")
    assert facts_of(host.procfs, 4242) == ProcessFacts("python3", "", None, Owner())
    host.spoil("proc/self/status")
    assert names_are_host_pids(host.procfs) is None


@pytest.mark.parametrize("stat", ["", "4242 (python3)", f"4242 (python3) {STAT_TAIL}".replace("8812345", "soon")])
def test_a_process_whose_start_is_not_told_may_be_any_and_has_no_facts(host: HostTree, stat: str) -> None:
    process(host, stat=stat)
    assert facts_of(host.procfs, 4242) is None


def test_a_name_made_to_look_like_something_else_does_not_shift_the_fields(host: HostTree) -> None:
    process(host, stat=f"4242 (a\x1b[31m) \nR 1) {STAT_TAIL}")
    facts = known(facts_of(host.procfs, 4242))
    assert (facts.name, facts.user) == ("a\x1b[31m) \nR 1", "1001")


def test_a_name_that_the_kernel_cut_after_a_blank_ends_before_that(host: HostTree) -> None:
    process(host, stat=f"4242 (train my model ) {STAT_TAIL}")
    assert known(facts_of(host.procfs, 4242)).name == "train my model"


BATCH, FOREGROUND = "S 4200 4242 4242 0 -1", "S 4200 4242 4200 34816 4242"
"""State, parent, process group, session, terminal, and the process group in the foreground of that."""


@pytest.mark.parametrize(
    ("name", "stat", "parent", "sibling", "thread", "waits_for"),
    [
        pytest.param("python3", BATCH, "slurmstepd", "", "", 0, id="a batch job"),
        pytest.param("python3", FOREGROUND, "bash", "", "", 1, id="by hand"),
        pytest.param("python3", FOREGROUND[:-2] + "00", "bash", "", "", 0, id="with nohup and &"),
        pytest.param("python3", BATCH.replace("S", "T"), "slurmstepd", "", "", 3, id="suspended"),
        pytest.param("python3", FOREGROUND.replace("S", "t"), "gdb", "", "", 3, id="in a debugger"),
        pytest.param("python3", FOREGROUND, "torchrun", "python3) S 4200 4242", "", 0, id="a rank by hand"),
        pytest.param("python3", FOREGROUND, "bash", "python3) S 4200 4250", "", 1, id="beside one in the background"),
        pytest.param("python3", FOREGROUND, "bash", "tee) S 4200 4242", "", 1, id="through a pipe"),
        pytest.param("python3", BATCH, "sh", "", "ZMQbg/IO/0", 2, id="a Jupyter kernel"),
        pytest.param("python3", BATCH, "dask-worker", "", "", 2, id="a worker of Dask"),
        pytest.param("VLLM::EngineCor", BATCH, "vllm", "", "pt_main_thread", 2, id="a server"),
        pytest.param("ray::RayTrainWo", BATCH, "raylet", "", "", 0, id="a training in Ray"),
    ],
)
def test_what_a_process_may_wait_for(  # noqa: PLR0917 - a table
    host: HostTree, name: str, stat: str, parent: str, sibling: str, thread: str, waits_for: int
) -> None:
    rest = STAT_TAIL.removeprefix("S 1 4242 4242 0 -1")
    process(host, stat=f"4242 ({name}) {stat}{rest}")
    process(host, 4200, stat=f"4200 ({parent}) S 1 4200 4200 0 -1{rest}")
    process(host, 4243, stat=f"4243 ({sibling} 4200 0 -1{rest}" if sibling else "")
    host.write({"proc/4200/task/4200/children": "4242 4243 "})
    host.write({"proc/4242/task/4244/stat": f"4244 ({thread}) {STAT_TAIL}"})
    assert known(facts_of(host.procfs, 4242)).waits_for == waits_for


def test_a_long_name_is_not_completed_from_the_command_line(tmp_path: Path) -> None:
    # Programs that set their title write their arguments there.
    program = tmp_path / "train-with-secr"
    program.symlink_to(shutil.which("sleep") or "")
    with subprocess.Popen(["train-with-secret=1", "60"], executable=program) as sleep:
        try:
            while not Path(f"/proc/{sleep.pid}/cmdline").read_bytes():
                time.sleep(0.001)  # the kernel sets it a moment after it has begun the program
            facts = facts_of(Path("/proc"), sleep.pid)
        finally:
            sleep.kill()
    assert known(facts).name == "train-with-secr"


@pytest.mark.parametrize(
    ("nspid", "namespace", "answer"),
    [
        ("812", "pid:[4026531836]", True),  # on the host
        ("812\t1", "pid:[4026532441]", True),  # in a container, with the host's procfs
        ("1", "pid:[4026532441]", False),  # in a container, with its own procfs
        ("", "pid:[4026531836]", True),  # a kernel before 4.1, on the host
        ("1", None, None),  # a kernel that shows no namespaces
    ],
)
def test_whose_pids_a_procfs_shows(host: HostTree, *, nspid: str, namespace: str | None, answer: bool | None) -> None:
    assert names_are_host_pids(host.procfs) is True  # without this process, it is the host's
    host.write({"proc/self/status": f"Name:\tgpu-triage\nNSpid:\t{nspid}\n" if nspid else "Name:\tgpu-triage\n"})
    if namespace is not None:
        host.link("proc/self/ns/pid", namespace)
    assert names_are_host_pids(host.procfs) is answer


def test_a_later_process_under_the_same_pid_is_never_taken_for_the_earlier(host: HostTree) -> None:
    reader = ProcessFactsReader()
    process(host)
    first = known(facts_of(host.procfs, 4242, reader, 0.0))
    later = f"4242 (python3) {STAT_TAIL}".replace("8812345", "8812346")
    other = STATUS.replace("1001", "1007").replace("32-63", "0-31")
    process(host, stat=later, status=other, cgroup="0::/slurm/uid_1007/job_77/step_0\n")
    second = known(facts_of(host.procfs, 4242, reader, 1.0))
    assert (first.user, first.owner) == ("1001", Owner(ID, UID))
    assert (second.user, second.owner) == ("1007", Owner("", "", "77"))
    assert second.allowed_cpus == frozenset(range(32))


def test_what_may_change_of_a_living_process_is_read_again_after_half_a_minute_and_a_name_at_once(
    host: HostTree,
) -> None:
    reader = ProcessFactsReader()
    process(host)
    before = facts_of(host.procfs, 4242, reader, 0.0)
    process(host, status=STATUS.replace("32-63", "0-3"), cgroup="0::/slurm/uid_1001/job_5/step_0\n")
    assert facts_of(host.procfs, 4242, reader, 29.0) == before
    facts = known(facts_of(host.procfs, 4242, reader, 30.0))
    assert (facts.allowed_cpus, facts.owner.slurm_job_id) == (frozenset(range(4)), "5")
    # It executes another program.
    process(host, stat=f"4242 (train) (S) {STAT_TAIL}")
    assert known(facts_of(host.procfs, 4242, reader, 31.0)).name == "train) (S"


def test_a_process_that_ended_has_no_facts_and_is_not_remembered(host: HostTree) -> None:
    reader = ProcessFactsReader()
    process(host)
    assert facts_of(host.procfs, 4242, reader, 0.0) is not None
    shutil.rmtree(host.procfs / "4242")
    assert facts_of(host.procfs, 4242, reader, 1.0) is None
    assert reader._kept == {}
    process(host)
    assert facts_of(host.procfs, 4242, reader, 2.0) is not None
    assert reader.read(host.procfs, {}, 3.0) == {}
    assert reader._kept == {}


JOB, IN_POD = Owner("", "", "4711"), Owner(ID, UID)
MIXED = f"/system.slice/containerd.service/kubepods-besteffort-pod{SYSTEMD_UID}.slice"
KIND = f"kubelet-kubepods-burstable-pod{SYSTEMD_UID}.slice"
OWNERS = {
    "docker, v2, systemd": (f"0::/system.slice/docker-{ID}.scope", Owner(ID)),
    "docker, v2, cgroupfs": (f"0::/docker/{ID}", Owner(ID)),
    "docker in docker: the inner one": (f"0::/docker/{OUTER_ID}/docker/{ID}", Owner(ID)),
    "seen from another cgroup namespace": (f"0::/../../docker-{ID}.scope", Owner(ID)),
    "podman, rootless": (f"0::{ROOTLESS}/libpod-{ID}.scope/container", Owner(ID)),
    "podman's monitor is outside": (f"0::/machine.slice/libpod-conmon-{ID}.scope", Owner()),
    "podman, cgroupfs": (f"9:memory:/libpod_parent/libpod-{ID}", Owner(ID)),
    "kubelet, containerd, v1, cgroupfs": (f"3:memory:/kubepods/burstable/pod{UID}/{ID}", Owner(ID, UID)),
    "kubelet, guaranteed pod, cgroupfs": (f"0::/kubepods/pod{UID}/{ID}", Owner(ID, UID)),
    "kubelet, cri-o, guaranteed": (f"0::/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/crio-{ID}.scope", IN_POD),
    "cri-o's monitor": (f"0::{POD_SLICE}/crio-conmon-{ID}.scope", Owner("", UID)),
    "kubelet on cgroupfs, containerd on systemd": (f"11:devices:{MIXED}:cri-containerd:{ID}", IN_POD),
    "kind": (f"0::/docker/{OUTER_ID}/kubelet.slice/{KIND}/cri-containerd-{ID}.scope", IN_POD),
    "Slurm, v2": ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", JOB),
    "Slurm, v2, several slurmd on a host": ("0::/system.slice/node7_slurmstepd.scope/job_4711/step_batch/user", JOB),
    "Slurm, v1": ("5:cpuset:/slurm/uid_1001/job_4711/step_0/task_0\n1:name=systemd:/system.slice/slurmd.service", JOB),
    "Slurm, v1, named node": ("5:cpuset:/slurm_node7/uid_1001/job_4711", JOB),
    "a login": ("0::/user.slice/user-1001.slice/session-2.scope", Owner()),
    "a service that is named like a job": ("0::/system.slice/job_4711.service", Owner()),
    "longer than a container's id": (f"0::/system.slice/backup-{ID}ff.scope", Owner()),
    "a cgroup namespace of its own": ("0::/\n", Owner()),
}


@pytest.mark.parametrize(("cgroup", "owner"), OWNERS.values(), ids=OWNERS)
def test_owners_named_in_cgroups(cgroup: str, owner: Owner) -> None:
    assert parse_cgroup(cgroup) == owner
