"""What the rules recorded of a job decides what slows it down, and what to do first.

Which GPU or host is slower than the others, and by what.
"""

from pathlib import Path

import pytest
from tests.unit.cli.job.conftest import END, START, STEP, JobMaker, advice, gpu_labels, run, series

from gpu_triage.cli.fleet.fleet_view import Selection
from gpu_triage.cli.job.advice import (
    BUSY_SHARE,
    CAUSED_SHARE,
    CLOCK_SHARE,
    MOST_OF_A_HOST,
    WAITING_SHARE,
    advice_on,
    compare,
)
from gpu_triage.cli.job.job_facts import Window, loss_of, loss_queries
from gpu_triage.cli.job.job_report import JobReport
from gpu_triage.cli.job.job_runs import JobKey, Kind
from gpu_triage.cli.job.job_view import Job


def slow(pace: float = 0.7) -> JobMaker:
    return (
        JobMaker("a", "b", "c")
        .add("paced", series(pace, owner="4711/"))
        .add("lost_now", series(6 * (1 - pace), owner="4711/"))
        .add("lost_seconds", series(6 * (1 - pace) * 1800, owner="4711/"))
    )


def waits(
    job: JobMaker, host: str, gpu: int | None, why: str, *, seconds: float = 3240.0, lasts: bool = True
) -> JobMaker:
    labels = gpu_labels(host, gpu or 0) | {"why": why}
    labels = {name: value for name, value in labels.items() if name != "gpu" and (gpu is not None or name != "uuid")}
    job.add("awaited", series(seconds, **labels))
    return job.add("awaited_now", series(1, **labels)) if lasts else job


@pytest.mark.parametrize(
    ("gpu", "why", "subject", "said"),
    [
        (1, "computing", "GPU 1 of b:9836", "the others wait for"),
        (1, "clock", "GPU 1 of b:9836", "SM clock"),
        (None, "starving", "b:9836", "is busy for"),
        (None, "network", "b:9836", "its network fails, or sends again"),
    ],
)
def test_what_the_others_wait_for_is_named(gpu: int | None, why: str, subject: str, said: str) -> None:
    found = advice(waits(slow(), "b", gpu, why).made())
    assert found.remarkable
    assert (found.about, found.slow.count(subject)) == (subject, 1)
    assert said in found.slow


def test_what_they_wait_for_now_comes_before_what_once_cost_more_or_differs_and_confirmed_before_pending() -> None:
    job = waits(waits(slow(), "a", 0, "computing", seconds=9000, lasts=False), "b", 1, "computing", seconds=60)
    assert advice(job.made()).about == "GPU 1 of b:9836"
    job = waits(slow(), "a", 0, "computing").add("differs", series(0.02, **gpu_labels("b", 1)))
    assert advice(job.made()).about == "GPU 0 of a:9836"
    job = JobMaker("a", "b").finding("thermal.hw", "critical", "a", 0, state=1)
    job.finding("power.brake", "critical", "b", 1)
    assert advice(job.made()).code == "power.brake"


@pytest.mark.parametrize("waited_for", [1, None])
def test_of_findings_alike_in_severity_the_one_that_costs_most_comes_first(waited_for: int | None) -> None:
    job = waits(waits(slow(), "c", waited_for, "computing"), "b", 0, "computing", seconds=60)
    for place in (("a", 0), ("b", 0), ("c", 1)):
        job.finding("pcie.width", "warning", *place)
    found = job.finding("thermal.hw", "critical", "a", 1).made().findings
    assert [each.host.instance[0] for each in found] == ["a", "c", "b", "a"]


def test_the_headline_and_the_advice_are_about_the_same_part() -> None:
    """A critical finding elsewhere is listed, and does not take the place of what slows the job down."""
    job = waits(slow(), "b", 1, "computing").finding("ecc.uncorrected", "critical", "a", 0)
    found = advice(job.made())
    assert found.about == "GPU 1 of b:9836"
    assert "GPU 1 of b:9836" in found.slow


def test_where_the_pace_is_known_waiting_is_not_guessed_from_means() -> None:
    """Evaluations on rank 0: the others spin for a good part of the time, and the job is as fast as ever."""
    job = slow(1.0)
    for place in (("a", 1), ("b", 0), ("b", 1), ("c", 0), ("c", 1)):
        job.gpu(*place, classes={"communication": 0.4, "compute": 0.6})
    made = job.made()
    assert compare(made).culprit is None
    job.answers.pop("lost_seconds")
    assert compare(JobMaker.made(job)).culprit is not None


def test_the_owner_of_a_job_that_hangs_is_not_told_to_free_a_gpu() -> None:
    job = JobMaker("a", "b").finding("work.allocated_idle", "warning", "a", 0)
    for place in (("a", 0), ("a", 1), ("b", 0), ("b", 1)):
        job.gpu(*place, classes={"hung": 0.8, "compute": 0.2})
    assert advice(job.made()).code == "work.hung"
    for pace, code in ((0.0, ""), (0.7, "work.allocated_idle")):
        job = slow(pace).finding("work.allocated_idle", "warning", "a", 0)
        assert advice(job.made()).code == code


def hangs(*odd: tuple[int, float]) -> Job:
    """A job of which all GPUs spin; `odd` are GPUs of host b, and how much of a CPU their main threads take."""
    job = JobMaker("a", "b")
    for place in (("a", 0), ("a", 1), ("b", 0), ("b", 1)):
        job.gpu(*place, classes={"communication": 0.5, "compute": 0.5})
    return job.add("differs", *(series(value, **gpu_labels("b", gpu)) for gpu, value in odd)).made()


@pytest.mark.parametrize(("share", "does"), [(0.02, "does not run"), (0.97, "runs")])
def test_a_main_thread_that_differs_is_where_to_look_first(share: float, does: str) -> None:
    found = advice(hangs((1, share)))
    assert (found.about, found.code, found.remarkable) == ("GPU 1 of b:9836", "work.hung", True)
    assert found.slow.endswith(f"GPU 1 of b:9836 {does}")


@pytest.mark.parametrize("odd", [(), ((0, 0.02), (1, 0.02))])
def test_without_one_main_thread_that_differs_none_is_named(odd: tuple[tuple[int, float], ...]) -> None:
    found = advice(hangs(*odd))
    assert (found.about, found.code) == ("", "work.low_power")
    assert "main thread" not in found.slow


def test_a_pace_that_was_never_known_is_no_loss() -> None:
    assert JobMaker("a").made().loss is None
    job = slow().made()
    loss = job.loss
    assert loss is not None
    assert (loss.pace, round(loss.gpus or 0, 3), round(loss.gpu_seconds)) == (0.7, 1.8, 3240)
    report = JobReport(job, compare(job), advice_on(job, compare(job)), (), "", (), 20, gpu_hour_price=3.0)
    assert report.cost == pytest.approx(2.7), "0.9 hours"
    names = ("paced", "lost_now", "awaited", "awaited_now", "awaited_since")
    ended = loss_of({"lost_seconds": [series(60)]} | {name: [] for name in names})
    assert ended is not None
    assert (ended.pace, ended.gpus) == (None, None)


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        (JobKey(Kind.SLURM, "", "", "4711"), '"4711/"'),
        (JobKey(Kind.POD, "", "ml", "train-3"), '"ml/train"'),
        (JobKey(Kind.USER, "", "", "ada"), ""),
    ],
)
def test_the_recorded_series_of_a_job_are_those_of_its_owner(key: JobKey, owner: str) -> None:
    asked = loss_queries(Selection(), run(key=key), Window(START, END, STEP))
    assert all(f"owner={owner}" in query for query in asked.values())
    assert bool(asked) is bool(owner)


@pytest.mark.parametrize(("share", "stands_out"), [(CLOCK_SHARE - 0.005, False), (CLOCK_SHARE + 0.005, True)])
def test_a_clock_stands_out_beyond_what_chips_differ_by(share: float, *, stands_out: bool) -> None:
    comparison = compare(JobMaker("a", "b").gpu("b", 1, clock=1980 * (1 - share)).made())
    assert comparison.gpu is not None
    assert (comparison.gpu.host.instance, comparison.gpu.gpus[0].gpu) == ("b:9836", "1")
    assert bool(comparison.gpu.reasons) is stands_out
    assert (comparison.culprit is not None) is stands_out


def test_one_gpu_has_no_others_and_those_of_another_model_are_no_measure() -> None:
    assert compare(JobMaker("a", gpus=1).made()) == (None, None, None, 0)
    assert compare(JobMaker("a", "b", gpus=1).gpu("b", 0, name="A100", clock=1410).made()).gpu is None
    more = JobMaker("a", "b").gpu("b", 0, name="A100", clock=1410).gpu("b", 1, name="A100", clock=1410)
    assert compare(more.made())[1:3] == (None, None)


def test_a_host_counts_as_one_if_nearly_all_of_its_gpus_are_slow() -> None:
    whole = JobMaker("a", "b", "c", gpus=4).gpu("b", 0, clock=1400).gpu("b", 1, clock=1400).gpu("b", 2, clock=1400)
    comparison = compare(whole.made())
    assert comparison.host is not None
    assert comparison.culprit is comparison.host
    one = compare(JobMaker("a", "b", "c", gpus=4).gpu("b", 0, clock=1000).made())
    assert one.culprit is one.gpu


def test_a_reading_that_is_not_known_is_not_zero() -> None:
    """A GPU of MIG has no busy share, and one that was never under load has no clock."""
    job = JobMaker("a", "b").gpu("b", 1, clock=None, busy=None, power=None, classes={}).made()
    comparison = compare(job)
    assert comparison.culprit is None
    assert job.gpus[3].clock_hertz is None
    assert comparison.gpu is not None
    assert comparison.gpu.gpus[0] is not job.gpus[3]


def test_the_documentation_has_the_thresholds(repository: Path) -> None:
    text = " ".join((repository / "docs" / "jobs.md").read_text(encoding="utf-8").split())
    for share, said in (
        (CLOCK_SHARE, "its SM clock under load is {} % lower"),
        (CAUSED_SHARE, "a cause of its own takes {} % more of its time"),
        (BUSY_SHARE, "it is busy for {} % less of its time"),
        (WAITING_SHARE, "the others wait {} % more for it"),
    ):
        assert said.format(f"{100 * share:.0f}") in text
    assert MOST_OF_A_HOST == 0.75
    assert "if three quarters of its GPUs are slow" in text
