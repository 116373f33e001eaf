"""Whose GPU it is, in the report: pods, Slurm jobs and users, given the GPU or at work on it."""

import dataclasses
import json

import pytest
from tests.evidence import evidence_of
from tests.one_shot import codes, finding, look_at

from gpu_triage.cli.measure import applies
from gpu_triage.judge.evidence.owners import GpuOwner, owners_of, owners_text
from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.judge.report.text import render_text
from gpu_triage.options.option_table import all_options
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO
from gpu_triage.read.registry import COLLECTOR_SWITCHES
from gpu_triage_simulator import Scenario, load_scenario
from gpu_triage_simulator.allocation import Allocation, Slurm

POD = GpuOwner(namespace="ml", pod="train-0")
JOB = GpuOwner(slurm_job_id="42", user="alice", account="physics")
BOB = GpuOwner(user="bob")


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (POD, "pod ml/train-0"),
        (JOB, "Slurm job 42 of alice"),
        (GpuOwner(slurm_job_id="42"), "Slurm job 42"),
        (GpuOwner(user="bob"), "user bob"),
    ],
)
def test_an_owner_is_called_as_in_the_alerts(owner: GpuOwner, words: str) -> None:
    assert owner.text == words


def test_of_many_owners_the_first_are_told_and_the_others_counted() -> None:
    assert owners_text(GpuOwner(user=f"u{n}") for n in range(5)) == "user u0, user u1, user u2 and 2 more"
    assert owners_text([]) == ""


def allocated(value: float = 1.0, **labels: str) -> Sample:
    return GPU_ALLOCATED.sample(value, "0", "GPU-0", *(labels.get(name, "") for name in GPU_ALLOCATED.labels[2:]))


def process(**labels: str) -> Sample:
    return GPU_PROCESS_INFO.sample(1, "0", "GPU-0", *(labels.get(name, "") for name in GPU_PROCESS_INFO.labels[2:]))


@pytest.mark.parametrize(
    ("samples", "owners"),
    [
        ((), ()),
        ((allocated(0.0),), ()),
        # One and the same, given it and at work on it.
        (
            (
                allocated(workload_namespace="ml", workload_pod="train-0", workload_container="a"),
                allocated(workload_namespace="ml", workload_pod="train-0", workload_container="b"),
                process(pid="1", user="root", workload_namespace="ml", workload_pod="train-0", pod_uid="u"),
            ),
            (POD,),
        ),
        # The prolog knows the account, and the name of a user that the process has as a number.
        (
            (
                allocated(slurm_job_id="42", user="alice", account="physics"),
                process(pid="1", user="1000", slurm_job_id="42"),
            ),
            (JOB,),
        ),
        ((process(pid="1", user="alice", slurm_job_id="42"),), (GpuOwner(slurm_job_id="42", user="alice"),)),
        # Somebody beside the job, whom no scheduler knows.
        ((allocated(slurm_job_id="42", user="alice", account="physics"), process(user="bob")), (JOB, BOB)),
        # A process in a pod without a name is one of the pods': root is no owner.
        ((allocated(workload_namespace="ml", workload_pod="train-0"), process(user="root", pod_uid="u")), (POD,)),
        ((process(user="root", pod_uid="u"),), (GpuOwner(user="root"),)),
        ((process(), process(pid="1")), ()),
    ],
)
def test_owners_are_those_who_were_given_the_gpu_and_those_who_use_it(
    samples: tuple[Sample, ...], owners: tuple[GpuOwner, ...]
) -> None:
    evidence = evidence_of((0.0, [GPU_UP.sample(1, "0", "GPU-0"), *samples]))
    assert owners_of(evidence.gpus[0]) == owners


def node(*given: Allocation) -> Scenario:
    """Two A10, both idle and without a process; Slurm gave some away."""
    scenario = load_scenario("dual-a10")
    gpus = tuple(dataclasses.replace(gpu, load=dataclasses.replace(gpu.load, utilization=0.0)) for gpu in scenario.gpus)
    return dataclasses.replace(scenario, gpus=gpus, processes=(), events=(), allocations=given)


def test_a_gpu_that_was_given_away_and_has_no_process_is_told_with_its_owner() -> None:
    report = look_at(node(Allocation(0, slurm=Slurm("42", "alice", "physics"))), 60)
    found = finding(report, "work.allocated_unused")
    assert found.measured == "allocated to Slurm job 42 of alice, no process on it"
    assert "work.allocated_unused" not in codes(report, "GPU 1")
    assert [gpu.owners for gpu in report.gpus] == [(JOB,), ()]
    text = render_text(report)
    assert "        held by   Slurm job 42 of alice\n" in text
    assert text.count("; held by Slurm job 42 of alice") == 1
    assert [gpu["held_by"] for gpu in json.loads(render_json(report))["gpus"]] == [
        [{"namespace": None, "pod": None, "slurm_job_id": "42", "user": "alice", "account": "physics"}],
        [],
    ]


def test_a_gpu_that_its_job_uses_is_no_finding() -> None:
    scenario = dataclasses.replace(
        load_scenario("dual-a10"), events=(), allocations=(Allocation(0, slurm=Slurm("42", "alice", "physics")),)
    )
    report = look_at(scenario, 60)
    assert "work.allocated_unused" not in codes(report, "GPU 0")
    assert JOB in report.gpus[0].owners


def test_a_look_at_a_host_can_ask_who_was_given_its_gpus() -> None:
    flags = {option.key for option in all_options(COLLECTOR_SWITCHES) if applies(option)}
    assert {key for key in flags if key.startswith(("kubernetes.", "slurm."))} == {
        "kubernetes.pod-resources-socket",
        "kubernetes.container-logs",
        "slurm.jobs-directory",
        "slurm.gpu-numbers",
    }
