"""Which GPU or host is slower than the others, and by what."""

from pathlib import Path

import pytest
from tests.unit.cli.job.conftest import JobMaker

from gpu_triage.cli.job.advice import BUSY_SHARE, CAUSED_SHARE, CLOCK_SHARE, MOST_OF_A_HOST, WAITING_SHARE, compare


@pytest.mark.parametrize(("share", "stands_out"), [(CLOCK_SHARE - 0.005, False), (CLOCK_SHARE + 0.005, True)])
def test_a_clock_stands_out_beyond_what_chips_differ_by(share: float, *, stands_out: bool) -> None:
    comparison = compare(JobMaker("a", "b").gpu("b", 1, clock=1980 * (1 - share)).made())
    assert comparison.gpu is not None
    assert (comparison.gpu.host.instance, comparison.gpu.gpus[0].gpu) == ("b:9836", "1")
    assert comparison.gpu.stands_out is stands_out
    assert (comparison.culprit is not None) is stands_out


def test_one_gpu_has_no_others() -> None:
    assert compare(JobMaker("a", gpus=1).made()) == (None, None, None, 0)


def test_gpus_of_another_model_are_no_measure() -> None:
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
