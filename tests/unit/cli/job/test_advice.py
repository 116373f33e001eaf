"""What is said first, and what to do first."""

from __future__ import annotations

from tests.unit.cli.job.conftest import END, START, JobMaker, series

from gpu_triage.cli.job.advice import OF_CLASS, Advice, advice_on, compare
from gpu_triage.cli.job.job_view import GOOD, Job
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES


def advice(job: Job) -> Advice:
    return advice_on(job, compare(job))


def with_steps(job: JobMaker, recent: float, best: float, moved: float = END, slow: float | None = None) -> JobMaker:
    """Two ranks per host; the last one may be slower."""
    for place, (host, _gpu) in enumerate(job.places):
        labels = {"job": "gpu-triage", "instance": f"{host}:9836", "owner": "4711", "rank": str(place)}
        last = place == len(job.places) - 1
        job.add("paces", series(slow if last and slow is not None else recent, **labels))
        job.add("recent", series(recent, **labels)).add("best", series(best, **labels)).add(
            "moved", series(moved, **labels)
        )
    return job


def test_every_class_that_loses_time_has_advice() -> None:
    assert {*OF_CLASS, *GOOD, "sick", "unattributed"} == {*BOTTLENECK_CLASSES}
    for name, code in OF_CLASS.items():
        assert BY_CODE[code].topic == name


def test_a_healthy_job_is_told_as_healthy() -> None:
    found = advice(with_steps(JobMaker("a", "b"), 2.0, 2.0).made())
    assert found.slow == "nothing holds its GPUs back, and none of them is slower than the others"
    assert (found.about, found.code, found.remarkable) == ("", "", False)


def test_one_gpu_that_nothing_holds_back() -> None:
    assert advice(JobMaker("a", gpus=1).made()).slow == "nothing holds its GPU back"


def test_a_finding_about_the_culprit_comes_before_a_critical_one_elsewhere() -> None:
    job = JobMaker("a", "b").gpu("b", 1, classes={"thermal": 0.9, "compute": 0.1}, clock=1300)
    job.finding("ecc.uncorrected", "critical", "a", 0).finding("thermal.sw", "warning", "b", 1)
    found = advice(job.made())
    assert found.slow == "GPU 1 of b:9836 is throttled by heat for 90% of its time"
    assert (found.about, found.code) == ("GPU 1 of b:9836", "thermal.sw")
    assert found.first == BY_CODE["thermal.sw"].advice.decision


def test_of_two_findings_about_the_culprit_the_cause_is_taken() -> None:
    job = JobMaker("a", "b").gpu("b", 1, classes={"thermal": 0.9, "compute": 0.1}, clock=1300)
    job.finding("clock.straggler", "warning", "b", 1).finding("thermal.hw", "critical", "b", 1)
    assert advice(job.made()).code == "thermal.hw"


def test_a_finding_on_all_gpus_of_a_host_is_about_all_of_them() -> None:
    job = JobMaker("a", "b", "c")
    for gpu in range(2):
        job.gpu("b", gpu, classes={"clock_cap": 1.0}, clock=1400).finding("clock.policy", "warning", "b", gpu)
    found = advice(job.made())
    assert (found.slow, found.about) == (
        "b:9836 is held back by a clock limit for 100% of its time",
        "GPU 0-1 of b:9836",
    )


def test_a_warning_of_a_host_explains_one_of_its_gpus_only_with_its_class() -> None:
    job = JobMaker("a", "b").gpu("b", 1, clock=1300).finding("host.lockup", "warning", "b")
    assert advice(job.made()).code == "clock.straggler"


def test_one_of_several_alike_is_named_as_one_of_several() -> None:
    job = JobMaker("a", "b", "c", "d", "e", gpus=1)
    for host in ("d", "e"):
        job.gpu(host, 0, classes={"storage": 0.5, "compute": 0.5})
    assert advice(job.made()).slow == "GPU 0 of d:9836, like 1 other GPU, is waiting for storage for 50% of its time"


def test_a_slow_clock_without_a_finding_is_a_straggler() -> None:
    found = advice(JobMaker("a", "b").gpu("b", 1, clock=1386).made())
    assert (
        found.slow
        == "GPU 1 of b:9836 runs 30% below the SM clock of the others, and a synchronous job runs at its pace"
    )
    assert found.first == BY_CODE["clock.straggler"].advice.decision


def test_a_class_without_a_finding_has_the_advice_of_its_finding() -> None:
    job = JobMaker("a", "b", "c")
    for place in job.places:
        job.gpu(*place, classes={"storage": 0.4, "compute": 0.6}, busy=0.5)
    found = advice(job.made())
    assert found.slow == "its GPUs are waiting for storage for 40% of their time"
    assert (found.code, found.first) == ("storage.starved", BY_CODE["storage.starved"].advice.decision)


def test_a_class_on_few_hosts_names_them() -> None:
    job = JobMaker("a", "b", "c", "d", gpus=1)
    # Two of four: the median is between them, and neither host is the only one.
    for host in ("c", "d"):
        job.gpu(host, 0, classes={"unattributed": 0.6, "compute": 0.4})
    found = advice(job.made())
    assert found.slow.endswith("for 30% of their time, on c:9836, d:9836")
    assert found.first.startswith("Look inside the job")


def test_a_rank_that_differs_is_looked_at() -> None:
    job = JobMaker("a", "b")
    for place in (("a", 0), ("a", 1), ("b", 0)):
        job.gpu(*place, classes={"communication": 0.8, "compute": 0.2})
    found = advice(job.made())
    assert found.slow == "the others wait for GPU 1 of b:9836: they spin at low power, and it does not"
    assert found.first.startswith("Look at what runs there first (py-spy dump")


def test_a_job_that_makes_no_step_has_stopped_whatever_its_gpus_do() -> None:
    found = advice(with_steps(JobMaker("a", "b"), 0.0, 2.0, moved=END - 840).made())
    assert found.slow.endswith("; no step for 14 min")
    assert (found.first, found.remarkable) == (BY_CODE["work.hung"].advice.decision, True)


def test_a_checkpoint_is_no_stop() -> None:
    found = advice(with_steps(JobMaker("a", "b"), 1.9, 2.0, moved=END - 200).made())
    assert "no step" not in found.slow
    assert not found.remarkable


def test_a_pace_below_its_own_best_is_told() -> None:
    found = advice(with_steps(JobMaker("a", "b"), 1.5, 2.0).made())
    assert found.slow == "it is 25% below its own best pace, and nothing seen holds its GPUs back"
    assert found.first.startswith("Look inside the job")


def test_a_slow_rank_is_named() -> None:
    found = advice(with_steps(JobMaker("a", "b"), 2.0, 2.0, slow=1.5).made())
    assert found.slow == "rank 3 on b:9836 makes 1.5 steps a second, the median is 2"
    assert found.about == "rank 3 on b:9836"


def test_a_job_of_which_little_is_known_is_not_told_as_healthy() -> None:
    job = JobMaker("a", "b")
    for place in job.places:
        job.gpu(*place, classes={"compute": 0.3})
    found = advice(job.made())
    assert found.slow == "for 70% of its time nothing is known about its GPUs"
    assert found.remarkable


def test_a_finding_that_ended_says_so() -> None:
    job = JobMaker("a", "b").finding("storage.starved", "warning", "a")
    job.answers["lost"] = [each._replace(samples=((START, START + 1000),)) for each in job.answers["lost"]]
    job.finding("driver.earlier", "info", "b")
    assert advice(job.made()).about == "a:9836 (storage.starved ended 43 min ago)"


def test_a_finding_of_another_version_is_still_told() -> None:
    found = advice(JobMaker("a", "b").finding("new.code", "critical", "b", 1).made())
    assert (found.code, found.first) == ("new.code", "Run gpu-triage check on its host.")
