"""Whom a GPU is given to: jobs by the files of Slurm's prolog, pods by the kubelet, and nobody."""

import dataclasses
import os
from pathlib import Path

import pynvml
import pytest
from tests.kubelet import Claim, Held, response
from tests.nvml_bench import BenchMaker

from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Moment, PodNames, SlurmJob, SlurmJobs, index_name, minor_name
from gpu_triage.options.config import INDEX, MINOR
from gpu_triage.read.metrics.contract import GpuLabels, GpuRound
from gpu_triage.read.processes import slurm_jobs
from gpu_triage.read.processes.allocation import AllocationReader, GpuAllocation, render
from gpu_triage.read.processes.pods import PodDirectory
from gpu_triage.read.processes.slurm_jobs import JobDirectory, JobFile, parse_file, parse_list
from gpu_triage_simulator import load_scenario

# As the prolog of deploy/slurm writes it.
TWO_GPUS = """\
SLURM_JOB_ID=4242
SLURM_JOB_USER=alice
SLURM_JOB_ACCOUNT=physics
SLURM_JOB_GPUS=0,1
CUDA_VISIBLE_DEVICES=0,1
"""
ALICE = SlurmJob("4242", "alice", "physics")
MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
OTHER_MIG = "MIG-5f1e6b2a-0d77-5a9c-8a4e-1f2d3c4b5a69"


def at(seconds: float) -> Moment:
    return Moment(monotonic=seconds, wall=0.0)


@pytest.mark.parametrize(
    ("text", "job", "devices"),
    [
        (TWO_GPUS, ALICE, {index_name(0), index_name(1)}),
        ("SLURM_JOB_ID=7\nSLURM_JOB_GPUS=3", SlurmJob("7", "", ""), {index_name(3)}),
        ("SLURM_JOB_ID=7\nSLURM_JOB_GPUS=0-2,7\n\n", SlurmJob("7", "", ""), {index_name(n) for n in (0, 1, 2, 7)}),
        ('SLURM_JOB_ID="7"\r\nSLURM_JOB_GPUS="3"\r\n', SlurmJob("7", "", ""), {index_name(3)}),
        (f"CUDA_VISIBLE_DEVICES={MIG},{OTHER_MIG}\n{TWO_GPUS}", ALICE, {MIG, OTHER_MIG}),
        (f"CUDA_VISIBLE_DEVICES={MIG},5\n{TWO_GPUS}", ALICE, {MIG, index_name(5)}),
        (f"CUDA_VISIBLE_DEVICES=NoDevFiles\n{TWO_GPUS}", ALICE, {index_name(0), index_name(1)}),
        (TWO_GPUS.replace("alice", "a" * 100), ALICE._replace(user="a" * 64), {index_name(0), index_name(1)}),
        # The first of each counts: what follows may be the end of an account's name.
        (f"{TWO_GPUS}{TWO_GPUS.replace('alice', 'bob').replace('4242', '7')}", ALICE, {index_name(0), index_name(1)}),
    ],
)
def test_a_job_and_its_gpus_are_read_as_the_prolog_has_them(text: str, job: SlurmJob, devices: set[str]) -> None:
    assert parse_file(text, index_name) == JobFile(job, frozenset(devices))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SLURM_JOB_ID=7\n",
        "SLURM_JOB_ID=7\nSLURM_JOB_GPUS=\n",
        "SLURM_JOB_GPUS=0\n",
        "SLURM_JOB_ID=seven\nSLURM_JOB_GPUS=0\n",
        "SLURM_JOB_ID=7\nSLURM_JOB_GPUS=a100:2\n",
        "SLURM_JOB_ID=7\nSLURM_JOB_GPUS=0-99999999\n",
        "\x00\x00\x00",
    ],
)
def test_a_file_that_names_no_job_or_no_gpu_is_malformed(text: str) -> None:
    with pytest.raises(ValueError, match="no"):
        parse_file(text, index_name)


def test_a_file_for_dcgm_exporter_lists_the_jobs_of_the_gpu_it_is_named_after() -> None:
    device = frozenset({index_name(3)})
    assert list(parse_list("3", "4242\n\n4243\n")) == [
        JobFile(SlurmJob("4242", "", ""), device),
        JobFile(SlurmJob("4243", "", ""), device),
    ]
    with pytest.raises(ValueError, match="is not a job number"):
        list(parse_list("3", "host-job-0\n"))


def test_jobs_are_found_by_what_slurm_calls_their_gpus(tmp_path: Path) -> None:
    (tmp_path / "4242.job").write_text(TWO_GPUS)
    (tmp_path / "1").write_text("77\n")
    (tmp_path / ".4243.tmp").write_text("SLURM_JOB_ID=4243\n")
    (tmp_path / "README").write_text("not a job")
    (tmp_path / "0.1").write_text("5\n")  # a MIG device in dcgm-exporter's numbers, which nothing here knows
    by_index, by_minor = (JobDirectory(tmp_path, numbers, 15.0) for numbers in (INDEX, MINOR))
    for jobs in (by_index, by_minor):
        assert jobs.refresh(at(0.0), None) == ()
    assert by_index.allocations({index_name(0), minor_name(5)}, at(0.0)) == {ALICE}
    assert by_index.allocations({index_name(1)}, at(0.0)) == {ALICE, SlurmJob("77", "", "")}
    assert by_minor.allocations({index_name(5), minor_name(0)}, at(0.0)) == {ALICE}
    assert by_index.allocations({minor_name(0)}, at(0.0)) == frozenset()


def test_a_job_ends_with_its_file_and_jobs_that_were_not_read_again_are_withdrawn(tmp_path: Path) -> None:
    file = tmp_path / "4242.job"
    file.write_text(TWO_GPUS)
    jobs = JobDirectory(tmp_path, INDEX, 15.0)
    assert not jobs.known(at(0.0))
    jobs.refresh(at(0.0), None)
    assert (jobs.allocations({index_name(0)}, at(15.0)), jobs.known(at(15.0))) == (frozenset({ALICE}), True)
    assert (jobs.allocations({index_name(0)}, at(15.1)), jobs.known(at(15.1))) == (frozenset(), False)
    file.unlink()
    jobs.refresh(at(20.0), None)
    assert (jobs.allocations({index_name(0)}, at(20.0)), jobs.known(at(20.0))) == (frozenset(), True)


def test_a_file_from_before_the_boot_is_of_a_job_that_the_reboot_ended(tmp_path: Path) -> None:
    file = tmp_path / "4242.job"
    file.write_text(TWO_GPUS)
    os.utime(file, (1000.0, 1000.0))
    jobs = JobDirectory(tmp_path, INDEX, 15.0)
    jobs.refresh(at(0.0), 999.0)
    assert jobs.allocations({index_name(0)}, at(0.0)) == {ALICE}
    jobs.refresh(at(0.0), 1001.0)
    assert jobs.allocations({index_name(0)}, at(0.0)) == frozenset()


def test_a_file_that_cannot_be_used_costs_its_own_job_only(tmp_path: Path) -> None:
    (tmp_path / "4242.job").write_text(TWO_GPUS)
    (tmp_path / "1.job").write_text("junk")
    (tmp_path / "2.job").write_text("#" * (slurm_jobs.MAX_BYTES + 1))
    (tmp_path / "3.job").mkdir()
    os.mkfifo(tmp_path / "4.job")
    (tmp_path / "5.job").symlink_to("/etc/passwd")
    jobs = JobDirectory(tmp_path, INDEX, 15.0)
    assert jobs.refresh(at(0.0), None) == ("malformed", "too_large", "malformed", "malformed", "io_error")
    assert jobs.allocations({index_name(0)}, at(0.0)) == {ALICE}


def test_a_folder_that_is_not_there_is_no_folder_without_jobs(tmp_path: Path) -> None:
    jobs = JobDirectory(tmp_path / "jobs", INDEX, 15.0)
    with pytest.raises(HostReadFailed, match="missing"):
        jobs.refresh(at(0.0), None)
    assert not jobs.known(at(0.0))


GPU = "GPU-7c963d6b-0fa3-bd71-22a1-4e40dbd03047"
"""GPU 0 of the simulated h100-8."""
TRAINER = Held("train-0", "research", "trainer", (GPU,))
LABELS = GpuLabels("0", GPU)


def kubelet(*held: Held) -> PodDirectory:
    return PodDirectory(lambda: response(*held), 15.0)


def asked(round_: GpuRound, pods: PodNames | None = None, slurm: SlurmJobs | None = None) -> GpuRound:
    """A round on a host of these schedulers, which have answered just now."""
    if pods is not None:
        pods.refresh(round_.at)
    if slurm is not None:
        slurm.refresh(round_.at, None)
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
    free = told == [("",) * 7]
    assert [(sample.labels[2:], sample.value) for sample in render(reading, LABELS)] == [
        (labels, float(not free)) for labels in told
    ]


def test_a_claim_is_found_by_the_minor_number_which_is_asked_for_once(bench: BenchMaker) -> None:
    scenario = load_scenario("h100-8")
    gpus = (dataclasses.replace(scenario.gpus[0], minor_number=5), *scenario.gpus[1:])
    claim = Held("dra", "n", "c", (), claims=(Claim("gpu.nvidia.com", "gpu-5", ""),))
    rounds = bench(dataclasses.replace(scenario, gpus=gpus))
    reader, pods = AllocationReader(), kubelet(claim)
    first, second = asked(rounds.at(1), pods), asked(rounds.at(6), pods)
    assert reader.read(first).allocations == reader.read(second).allocations == (GpuAllocation("", "dra", "n", "c"),)
    assert second.inquiry.answered < first.inquiry.answered


@pytest.mark.parametrize(("numbers", "gpu"), [(INDEX, 1), (MINOR, 3)])
def test_a_job_is_found_by_slurms_number_of_the_gpu(bench: BenchMaker, tmp_path: Path, numbers: str, gpu: int) -> None:
    (tmp_path / "42.job").write_text("SLURM_JOB_ID=42\nSLURM_JOB_USER=alice\nSLURM_JOB_GPUS=1\n")
    scenario = load_scenario("h100-8")
    swapped = {1: 3, 3: 1}
    gpus = tuple(dataclasses.replace(g, minor_number=swapped.get(i, i)) for i, g in enumerate(scenario.gpus))
    rounds = bench(dataclasses.replace(scenario, gpus=gpus))
    found = {
        index: AllocationReader()
        .read(asked(rounds.at(1, gpu=index), slurm=JobDirectory(tmp_path, numbers, 15.0)))
        .allocations
        for index in range(4)
    }
    assert found == {
        index: () if index != gpu else (GpuAllocation(slurm_job_id="42", user="alice"),) for index in range(4)
    }


def test_a_pod_on_a_mig_device_holds_that_device(bench: BenchMaker) -> None:
    rounds = bench("h100-mig")
    round_ = rounds.at(5)
    handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(round_.inquiry.device.handle, 0)
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    reading = AllocationReader().read(asked(round_, kubelet(Held("mig", "n", "c", (uuid,)))))
    assert reading.allocations == (GpuAllocation(uuid, "mig", "n", "c"),)


def test_who_does_not_answer_may_have_given_the_gpu_away(bench: BenchMaker, tmp_path: Path) -> None:
    """Kubernetes knows of nobody, and Slurm's folder cannot be read: that the GPU is free is not known."""
    missing = JobDirectory(tmp_path / "missing", INDEX, 15.0)
    rounds = bench("h100-8")
    with pytest.raises(HostReadFailed):
        missing.refresh(Moment(0.0, 0.0), None)
    for held, allocations in (((), None), ((TRAINER,), (GpuAllocation("", "train-0", "research", "trainer"),))):
        pods = kubelet(*held)
        pods.refresh(rounds.at(1).at)
        machine = dataclasses.replace(rounds.machine, pods=pods, slurm=missing)
        assert AllocationReader().read(dataclasses.replace(rounds.at(1), machine=machine)).allocations == allocations
