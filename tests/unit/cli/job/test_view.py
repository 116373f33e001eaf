"""What literal answers make of a job: its time, findings, steps and notes."""

import json

import pytest
from click import unstyle
from tests.unit.cli.job.conftest import END, START, JobMaker, gpu_labels, run, series

from gpu_triage.cli.job.advice import advice_on, compare
from gpu_triage.cli.job.job_command import parse_since
from gpu_triage.cli.job.job_report import JobReport, render_html, render_json, render_text
from gpu_triage.cli.job.job_runs import JobKey, Kind
from gpu_triage.cli.job.job_view import Job, notes_on

EARLY = 1600.0  # A time at which a GPU is lost


def report(job: Job, limit: int = 20) -> JobReport:
    comparison = compare(job)
    notes = tuple(notes_on(job))
    return JobReport(job, comparison, advice_on(job, comparison), notes, "http://prometheus:9090", (), limit)


def text_of(job: Job, limit: int = 20) -> str:
    return unstyle(render_text(report(job, limit)))


def test_time_without_data_is_neither_lost_nor_well() -> None:
    job = (
        JobMaker("a").gpu("a", 0, classes={"compute": 0.5}).gpu("a", 1, classes={"storage": 0.25, "idle": 0.25}).made()
    )
    time = job.time
    assert time.total == 2 * (END - START)
    assert time.by_class == {"compute": 1800, "storage": 900, "idle": 900}
    assert (time.lost, time.unknown) == (900, 3600)
    assert "    no data           60 GPU min   50%  not known" in text_of(job)


def test_a_critical_finding_after_the_gpu_left_is_of_the_job_and_a_warning_is_of_the_next() -> None:
    def findings(severity: str, code: str) -> list[str]:
        maker = JobMaker("a", "b").finding(code, severity, "b", 1)
        for name in ("found", "lost"):
            maker.answers[name] = [each._replace(samples=((END, EARLY + 120),)) for each in maker.answers[name]]
        maker.leaves("b", 1, EARLY)
        return [each.code for each in maker.made().findings]

    assert findings("critical", "gpu.lost") == ["gpu.lost"]
    assert findings("warning", "work.held_idle") == []


def test_steps_of_the_job_come_before_those_of_its_user() -> None:
    def paced(*found: tuple[str, str]) -> Job:
        maker = JobMaker("a")
        for owner, name in found:
            labels = {"job": "gpu-triage", "instance": "a:9836", "owner": owner, "job_name": name}
            maker.add("paces", series(2, **labels)).add("recent", series(2, **labels))
            maker.add("best", series(2, **labels)).add("moved", series(END, **labels))
        return maker.made()

    def names(job: Job) -> list[str] | None:
        return None if job.pace is None else [each.job_name for each in job.pace.ranks]

    assert names(paced(("ada", "one"), ("4711", "two"))) == ["two"]
    assert names(paced(("ada", "one"))) == ["one"]
    assert names(paced(("ada", "one"), ("ada", "two"))) is None
    assert names(paced()) is None


def test_notes_say_what_was_not_there_all_the_time() -> None:
    maker = JobMaker("a", "b").leaves("b", 1, EARLY)
    maker.add("parts", series(1, **gpu_labels("a", 0), mig_uuid="MIG-1"))
    maker.add("neighbors", series(40, **gpu_labels("a", 1), workload_pod="web-0", workload_namespace="shop"))
    notes = list(notes_on(maker.made()))
    assert notes == [
        "GPU 1 of b:9836 left or was no longer seen before the end, the first 50 min before it",
        "GPU 1 of a:9836 was shared with pod shop/web-0 for 10 min: readings are of both",
        "it had MIG devices of GPU 0 of a:9836: clock, power and class are those of the whole GPU",
    ]


def test_earlier_runs_and_other_pods_are_mentioned() -> None:
    key = JobKey(Kind.POD, "", "research", "train-0")
    job = JobMaker("a").made(
        found={"others": (run(start=0, end=60),), "siblings": 3}, key=key, pods=frozenset({"train-0"})
    )
    notes = list(notes_on(job))
    assert "3 other pods of research/train had GPUs at the same time; compare them all by that name" in notes
    assert "it also had GPUs from 1970-01-01 00:00:00 UTC to 1970-01-01 00:01:00 UTC; --at looks at that time" in notes


def test_a_start_that_nobody_watched_is_a_least_time() -> None:
    maker = JobMaker("a")
    assert "running for 60 min, since 1970-01-01 00:16:40 UTC" in text_of(maker.made())
    unwatched = JobMaker("a").made(found={}, watched=False)
    assert "running for at least 60 min" in text_of(unwatched)


def test_an_end_that_nobody_watched_is_none() -> None:
    gone = JobMaker("a").made(found={"ongoing": False})
    assert "ran for at least 60 min, from" in text_of(gone)
    assert "Prometheus has nothing of these hosts from after that: the job may have run on" in list(notes_on(gone))
    over = JobMaker("a").add("after", series(1, job="gpu-triage", instance="a:9836")).made(found={"ongoing": False})
    assert "ran for 60 min, from" in text_of(over)


def test_the_limit_counts_what_it_leaves_out() -> None:
    maker = JobMaker("a", "b", "c")
    for code in ("ecc.corrected", "driver.earlier", "thermal.sw"):
        maker.finding(code, "info", "a", 0)
    text = text_of(maker.made(), limit=1)
    assert text.count("and 2 more: raise --limit to see them") == 2


def test_names_from_labels_cannot_control_a_terminal_or_a_page() -> None:
    maker = JobMaker("a").finding("<b>\x1b[31m", "critical", "a", 0)
    job = maker.made(users=frozenset({"<script>\x1b[2J"}))
    text, page = text_of(job), render_html(report(job)).decode()
    assert "\x1b" not in text
    assert "\x1b" not in page
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert json.loads(render_json(report(job)))["job"]["users"] == ["<script>\x1b[2J"]


@pytest.mark.parametrize(
    ("text", "since"),
    [("2h", (None, 7200.0)), ("3d", (None, 259_200.0)), ("90m", (None, 5400.0)), ("1768435200", (1768435200.0, 0.0))],
)
def test_since_is_a_duration_or_a_time(text: str, since: tuple[float | None, float]) -> None:
    assert parse_since(text) == since


@pytest.mark.parametrize("text", ["", "d", "yesterday", "2026-11-22T10:00:00"])
def test_since_is_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration and no time"):
        parse_since(text)
