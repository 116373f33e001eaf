"""What literal answers make of a job: its time, findings, steps and notes, and what to do first."""

import json
import re
from typing import Any

import pytest
from click import unstyle
from tests.unit.cli.job.conftest import END, START, JobMaker, advice, gpu_labels, run, series

from gpu_triage.cli.job.advice import OF_CLASS, OF_OTHERS, advice_on, compare
from gpu_triage.cli.job.job_command import parse_since
from gpu_triage.cli.job.job_report import JobReport, render_html, render_json, render_text
from gpu_triage.cli.job.job_runs import JobKey, Kind
from gpu_triage.cli.job.job_view import GOOD, Job, notes_on
from gpu_triage.judge.findings.table import BY_CODE, CHECKS, Check
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES

EARLY = 1600.0  # A time at which a GPU is lost


def report(job: Job, limit: int = 20) -> JobReport:
    comparison = compare(job)
    notes = tuple(notes_on(job))
    return JobReport(job, comparison, advice_on(job, comparison), notes, "http://prometheus:9090", (), limit)


def text_of(job: Job, limit: int = 20) -> str:
    return unstyle(render_text(report(job, limit)))


def test_time_without_data_is_of_no_class() -> None:
    job = (
        JobMaker("a").gpu("a", 0, classes={"compute": 0.5}).gpu("a", 1, classes={"storage": 0.25, "idle": 0.25}).made()
    )
    time = job.time
    assert time.total == 2 * (END - START)
    assert time.by_class == {"compute": 1800, "storage": 900, "idle": 900}
    assert time.unknown == 3600
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


def test_the_slowest_rank_and_host_are_told_if_they_differ() -> None:
    text = text_of(with_steps(2.0, 2.0, slow=1.5).made())
    assert "slowest: rank 3 on b:9836 with 1.5 a second, the median is 2\n" in text
    assert "slowest host: b:9836 with 1.75 a second\n" in text
    assert "all 4 counters advance alike" in text_of(with_steps(2.0, 2.0).made())


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


def test_a_start_or_an_end_that_nobody_watched_is_a_least_time() -> None:
    assert "running for 60 min, since 1970-01-01 00:16:40 UTC" in text_of(JobMaker("a").made())
    assert "running for at least 60 min" in text_of(JobMaker("a").made(found={}, watched=False))
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
    [("2h", END - 7200.0), ("3d", END - 259_200.0), ("90m", END - 5400.0), ("1768435200", 1768435200.0)],
)
def test_since_is_a_duration_or_a_time(text: str, since: float) -> None:
    assert parse_since(text)(END) == since


@pytest.mark.parametrize("text", ["", "d", "yesterday", "2026-11-22T10:00:00"])
def test_since_is_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration and no time"):
        parse_since(text)


HOT: dict[str, Any] = {"classes": {"thermal": 0.9, "compute": 0.1}, "clock": 1300}
WAITS: dict[str, Any] = {"classes": {"communication": 0.8, "compute": 0.2}}
STORAGE: dict[str, Any] = {"classes": {"storage": 0.4, "compute": 0.6}, "busy": 0.5}


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
    assert {*OF_CLASS, *OF_OTHERS, *GOOD} == {*BOTTLENECK_CLASSES}
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
def test_what_slows_a_job_and_what_to_do_first(job: JobMaker, slow: tuple[str, ...], about: str, code: str) -> None:
    found = advice(job.made())
    assert [each for each in slow if each not in found.slow] == []
    assert (found.about, found.code, found.remarkable) == (about, code, True)
    if code in BY_CODE:
        assert found.first == BY_CODE[code].advice.anywhere
    else:
        assert found.first.startswith(("Look ", "Run gpu-triage check", "See why Prometheus"))


@pytest.mark.parametrize("job", [with_steps(2.0, 2.0), with_steps(1.9, 2.0, moved=END - 200), JobMaker("a", gpus=1)])
def test_a_healthy_job_or_one_that_writes_a_checkpoint_is_held_back_by_nothing(job: JobMaker) -> None:
    found = advice(job.made())
    assert found.slow.startswith("its GPUs lost no time to a bottleneck")
    assert (found.about, found.code, found.remarkable) == ("", "", False)
    assert (", and none of them is slower" in found.slow, ", and " in found.slow) == (len(job.places) > 1,) * 2


def test_a_finding_that_ended_says_so() -> None:
    job = JobMaker("a", "b").finding("storage.starved", "warning", "a")
    job.answers["lost"] = [each._replace(samples=((START, START + 1000),)) for each in job.answers["lost"]]
    job.finding("driver.earlier", "info", "b")
    assert advice(job.made()).about == "a:9836 (storage.starved ended 43 min ago)"
    # One that is seen after the job does not end what lasted as long as the job.
    job = JobMaker("a", "b").finding("storage.starved", "warning", "a").finding("driver.earlier", "info", "b")
    job.answers["lost"][1] = job.answers["lost"][1]._replace(samples=((END, END + 300),))
    assert advice(job.made()).about == "a:9836"


CLEAR = re.compile("nothing (?!is known)")


KINDS = {(each.severity, each.of_host, each.topic in BOTTLENECK_CLASSES and each.topic): each for each in CHECKS}


@pytest.mark.parametrize("check", KINDS.values(), ids=lambda check: str(check.code))
def test_a_job_with_a_finding_is_never_said_to_be_held_back_by_nothing(check: Check) -> None:
    gpu = None if check.of_host else 1
    for name in BOTTLENECK_CLASSES:
        for job in (JobMaker("a", "b"), JobMaker("a", gpus=2), with_steps(1.5, 2.0)):
            all_gpus(job, classes={name: 1.0}).finding(check.code, check.severity.value, "a", gpu)
            found = advice(job.made())
            assert not CLEAR.search(found.slow), (name, found.slow)
            assert not CLEAR.search(found.first.lower()) or check.advice.anywhere in found.first
        healthy = name in GOOD
        shown = advice(all_gpus(JobMaker("a"), classes={name: 1.0}).finding(check.code, "warning", "a", gpu).made())
        assert (check.code in shown.slow) is healthy
