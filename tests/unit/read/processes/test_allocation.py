"""Whom a GPU is given to: pods by the kubelet, jobs by Slurm's prolog, and nobody."""

import dataclasses
from pathlib import Path

import pynvml
import pytest
from tests.gpu_rounds import rounds_of
from tests.kubelet import Claim, Held, response
from tests.rig import rig

from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Moment, PodNames, SlurmJobs
from gpu_triage.options.config import INDEX, MINOR
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.metrics.rounds import GpuRound
from gpu_triage.read.processes.allocation import MOST_ALLOCATIONS, AllocationReader, GpuAllocation, render
from gpu_triage.read.processes.pods import PodDirectory
from gpu_triage.read.processes.slurm_jobs import JobDirectory
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.allocation import Allocation, Slurm

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
def test_a_gpu_has_its_holders_or_is_free(pods: PodDirectory | None, gpu: int, told: list[tuple[str, ...]]) -> None:
    with rounds_of("h100-8") as rounds:
        reading = AllocationReader().read(asked(rounds.at(1, gpu=gpu), pods))
    free = told == [("",) * 7]
    assert [(sample.labels[2:], sample.value) for sample in render(reading, LABELS)] == [
        (labels, float(not free)) for labels in told
    ]


def test_a_claim_is_found_by_the_minor_number_which_is_asked_for_once() -> None:
    scenario = load_scenario("h100-8")
    gpus = (dataclasses.replace(scenario.gpus[0], minor_number=5), *scenario.gpus[1:])
    claim = Held("dra", "n", "c", (), claims=(Claim("gpu.nvidia.com", "gpu-5", ""),))
    with rounds_of(dataclasses.replace(scenario, gpus=gpus)) as rounds:
        reader, pods = AllocationReader(), kubelet(claim)
        first, second = asked(rounds.at(1), pods), asked(rounds.at(6), pods)
        assert (
            reader.read(first).allocations == reader.read(second).allocations == (GpuAllocation("", "dra", "n", "c"),)
        )
    assert second.inquiry.answered < first.inquiry.answered


@pytest.mark.parametrize(("numbers", "gpu"), [(INDEX, 1), (MINOR, 3)])
def test_a_job_is_found_by_the_number_that_slurm_has_for_the_gpu(tmp_path: Path, numbers: str, gpu: int) -> None:
    (tmp_path / "42.job").write_text("SLURM_JOB_ID=42\nSLURM_JOB_USER=alice\nSLURM_JOB_GPUS=1\n")
    scenario = load_scenario("h100-8")
    swapped = {1: 3, 3: 1}
    gpus = tuple(dataclasses.replace(g, minor_number=swapped.get(i, i)) for i, g in enumerate(scenario.gpus))
    with rounds_of(dataclasses.replace(scenario, gpus=gpus)) as rounds:
        found = {
            index: AllocationReader()
            .read(asked(rounds.at(1, gpu=index), slurm=JobDirectory(tmp_path, numbers, 15.0)))
            .allocations
            for index in range(4)
        }
    assert found == {
        index: () if index != gpu else (GpuAllocation(slurm_job_id="42", user="alice"),) for index in range(4)
    }


def test_a_pod_on_a_mig_device_holds_that_device() -> None:
    with rounds_of("h100-mig") as rounds:
        round_ = rounds.at(5)
        handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(round_.inquiry.device.handle, 0)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        reading = AllocationReader().read(asked(round_, kubelet(Held("mig", "n", "c", (uuid,)))))
    assert reading.allocations == (GpuAllocation(uuid, "mig", "n", "c"),)


def test_who_does_not_answer_may_have_given_the_gpu_away(tmp_path: Path) -> None:
    """Kubernetes knows of nobody, and Slurm's folder cannot be read: that the GPU is free is not known."""
    missing = JobDirectory(tmp_path / "missing", INDEX, 15.0)
    with rounds_of("h100-8") as rounds:
        with pytest.raises(HostReadFailed):
            missing.refresh(Moment(0.0, 0.0), None)
        for held, allocations in (((), None), ((TRAINER,), (GpuAllocation("", "train-0", "research", "trainer"),))):
            pods = kubelet(*held)
            pods.refresh(rounds.at(1).at)
            machine = dataclasses.replace(rounds.simulated.machine, pods=pods, slurm=missing)
            assert (
                AllocationReader().read(dataclasses.replace(rounds.at(1), machine=machine)).allocations == allocations
            )


def test_more_holders_than_can_be_are_left_out_and_said_once() -> None:
    held = [Held(f"pod-{number:03}", "n", "c", (f"{GPU}::{number}",)) for number in range(MOST_ALLOCATIONS + 1)]
    with rounds_of("h100-8") as rounds:
        reader, pods = AllocationReader(), kubelet(*held)
        first, second = asked(rounds.at(1), pods), asked(rounds.at(2), pods)
        counts = [len(reader.read(each).allocations or ()) for each in (first, second)]
    assert (counts, first.inquiry.failures, second.inquiry.failures) == (
        [MOST_ALLOCATIONS] * 2,
        ["too_many_holders"],
        [],
    )


def test_a_simulated_job_holds_its_gpu_while_it_lasts() -> None:
    given = Allocation(0, slurm=Slurm("4242", "alice", "physics"), at=10, until=30)
    with rig(dataclasses.replace(load_scenario("dual-a10"), allocations=(given,))) as running:
        running.run_to(6)
        assert running.value("gpu_allocated", gpu="0", slurm_job_id="") == 0
        running.run_to(16)
        assert running.value("gpu_allocated", gpu="0", slurm_job_id="4242", user="alice", account="physics") == 1
        assert running.value("gpu_allocated", gpu="1") == 0
        running.run_to(36)
        assert running.value("gpu_allocated", gpu="0") == 0
