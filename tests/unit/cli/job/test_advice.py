"""What is said first, and what to do first."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cli.job.conftest import END, START, JobMaker, series

from gpu_triage.cli.job.advice import OF_CLASS, Advice, advice_on, compare
from gpu_triage.cli.job.job_view import GOOD, Job
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES

HOT: dict[str, Any] = {"classes": {"thermal": 0.9, "compute": 0.1}, "clock": 1300}
WAITS: dict[str, Any] = {"classes": {"communication": 0.8, "compute": 0.2}}
STORAGE: dict[str, Any] = {"classes": {"storage": 0.4, "compute": 0.6}, "busy": 0.5}


def advice(job: Job) -> Advice:
    return advice_on(job, compare(job))


def with_steps(recent: float, best: float, moved: float = END, slow: float | None = None) -> JobMaker:
    """Two ranks on each of two hosts; the last one may be slower."""
    job = JobMaker("a", "b")
    for place, (host, _gpu) in enumerate(job.places):
        labels = {"job": "gpu-triage", "instance": f"{host}:9836", "owner": "4711", "rank": str(place)}
        last = place == len(job.places) - 1
        job.add("paces", series(slow if last and slow is not None else recent, **labels))
        job.add("recent", series(recent, **labels)).add("best", series(best, **labels))
        job.add("moved", series(moved, **labels))
    return job


def all_gpus(job: JobMaker, **readings: Any) -> JobMaker:
    for place in job.places:
        job.gpu(*place, **readings)
    return job


def test_every_class_that_loses_time_has_advice() -> None:
    assert {*OF_CLASS, *GOOD, "sick", "unattributed"} == {*BOTTLENECK_CLASSES}
    for name, code in OF_CLASS.items():
        assert BY_CODE[code].topic == name


def findings_on_a_whole_host() -> JobMaker:
    job = JobMaker("a", "b", "c")
    for gpu in range(2):
        job.gpu("b", gpu, classes={"clock_cap": 1.0}, clock=1400).finding("clock.policy", "warning", "b", gpu)
    return job


def one_that_does_not_wait() -> JobMaker:
    return JobMaker("a", "b").gpu("a", 0, **WAITS).gpu("a", 1, **WAITS).gpu("b", 0, **WAITS)


CASES = {
    # A finding about the culprit comes before a critical one elsewhere, and its cause before what follows from it.
    "culprit before critical": (
        JobMaker("a", "b").gpu("b", 1, **HOT).finding("ecc.uncorrected", "critical", "a", 0)
        .finding("thermal.sw", "warning", "b", 1),
        ("throttled by heat", "90%"), "GPU 1 of b:9836", "thermal.sw",
    ),
    "cause before symptom": (
        JobMaker("a", "b").gpu("b", 1, **HOT).finding("clock.straggler", "warning", "b", 1)
        .finding("thermal.hw", "critical", "b", 1),
        ("GPU 1 of b:9836",), "GPU 1 of b:9836", "thermal.hw",
    ),
    "all GPUs of a host": (
        findings_on_a_whole_host(), ("b:9836 is held back by a clock limit for 100%",), "GPU 0-1 of b:9836",
        "clock.policy",
    ),
    # A warning about a host explains one of its GPUs only if it is about the GPU's class.
    "a host's other warning": (
        JobMaker("a", "b").gpu("b", 1, clock=1300).finding("host.lockup", "warning", "b"), ("GPU 1 of b:9836",),
        "GPU 1 of b:9836", "clock.straggler",
    ),
    "one of several alike": (
        JobMaker("a", "b", "c", "d", "e", gpus=1).gpu("d", 0, classes={"storage": 0.5, "compute": 0.5})
        .gpu("e", 0, classes={"storage": 0.5, "compute": 0.5}),
        ("GPU 0 of d:9836, like 1 other GPU,", "storage", "50%"), "GPU 0 of d:9836", "storage.starved",
    ),
    "slow clock without a finding": (
        JobMaker("a", "b").gpu("b", 1, clock=1386), ("GPU 1 of b:9836", "30% below the SM clock of the others"),
        "GPU 1 of b:9836", "clock.straggler",
    ),
    "class without a finding": (
        all_gpus(JobMaker("a", "b", "c"), **STORAGE), ("storage", "40%"), "", "storage.starved",
    ),
    # Two of four: the median is between them, and neither host is the only one.
    "class on few hosts": (
        JobMaker("a", "b", "c", "d", gpus=1).gpu("c", 0, classes={"unattributed": 0.6, "compute": 0.4})
        .gpu("d", 0, classes={"unattributed": 0.6, "compute": 0.4}),
        ("30%", "on c:9836, d:9836"), "", "",
    ),
    "a rank that differs": (one_that_does_not_wait(), ("the others wait for GPU 1 of b:9836",), "GPU 1 of b:9836", ""),
    "stopped, whatever its GPUs do": (with_steps(0.0, 2.0, moved=END - 840), ("no step for 14 min",), "", "work.hung"),
    "below its best pace": (with_steps(1.5, 2.0), ("25% below its own best pace",), "", ""),
    "a slow rank": (with_steps(2.0, 2.0, slow=1.5), ("rank 3 on b:9836 makes 1.5",), "rank 3 on b:9836", ""),
    "little is known": (all_gpus(JobMaker("a", "b"), classes={"compute": 0.3}), ("70%", "nothing is known"), "", ""),
    "a finding of another version": (
        JobMaker("a", "b").finding("new.code", "critical", "b", 1), (), "GPU 1 of b:9836", "new.code",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("job", "slow", "about", "code"), CASES.values(), ids=CASES)
def test_what_slows_a_job_down_and_what_to_do_first(
    job: JobMaker, slow: tuple[str, ...], about: str, code: str
) -> None:
    found = advice(job.made())
    assert [each for each in slow if each not in found.slow] == []
    assert (found.about, found.code, found.remarkable) == (about, code, True)
    if code in BY_CODE:
        assert found.first == BY_CODE[code].advice.decision
    else:
        assert found.first.startswith(("Look ", "Run gpu-triage check", "See why Prometheus"))


@pytest.mark.parametrize("job", [with_steps(2.0, 2.0), with_steps(1.9, 2.0, moved=END - 200), JobMaker("a", gpus=1)])
def test_a_healthy_job_or_one_that_writes_a_checkpoint_is_held_back_by_nothing(job: JobMaker) -> None:
    found = advice(job.made())
    assert found.slow.startswith("nothing holds its GPU")
    assert (found.about, found.code, found.remarkable) == ("", "", False)


def test_a_finding_that_ended_says_so() -> None:
    job = JobMaker("a", "b").finding("storage.starved", "warning", "a")
    job.answers["lost"] = [each._replace(samples=((START, START + 1000),)) for each in job.answers["lost"]]
    job.finding("driver.earlier", "info", "b")
    assert advice(job.made()).about == "a:9836 (storage.starved ended 43 min ago)"
