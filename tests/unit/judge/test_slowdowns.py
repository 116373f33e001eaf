"""A slowdown that a live host shows by its bit alone: its counter was read once, or stands still."""

from collections.abc import Iterator

import pytest
from tests.evidence import evidence_of

from gpu_triage.judge.host_judge import HostJudge
from gpu_triage.judge.report.report import JudgedHost, Report
from gpu_triage.read.gpu.activity import GPU_SM_UTILIZATION_RATIO
from gpu_triage.read.gpu.power import GPU_CLOCK_HERTZ, GPU_CLOCK_MAX_HERTZ
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_ACTIVE, GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.metrics.metric import Sample

GPU = ("0", "GPU-0")
REASON = "hw_power_brake"
CODE = "power.brake"


def sample(*, is_active: bool, counted: float | None, clock: float = 345e6) -> Iterator[Sample]:
    yield GPU_UP.sample(1, *GPU)
    yield GPU_SM_UTILIZATION_RATIO.sample(1.0, *GPU)
    yield GPU_CLOCK_HERTZ.sample(clock, *GPU, "sm")
    yield GPU_CLOCK_MAX_HERTZ.sample(1410e6, *GPU, "sm")
    yield GPU_THROTTLE_ACTIVE.sample(is_active, *GPU, REASON)
    if counted is not None:
        yield GPU_THROTTLE_SECONDS_TOTAL.sample(counted, *GPU, REASON)


def judged(*rounds: tuple[float, Iterator[Sample]]) -> Report:
    return HostJudge(JudgedHost("host")).judge(evidence_of(*rounds)).report


def found(report: Report) -> list[tuple[str, str]]:
    return [(each.check.code, each.measured) for each in report.findings]


@pytest.mark.parametrize("counted", [None, 7.0])
def test_a_bit_that_was_read_once_is_a_warning_until_its_counter_is_read_again(counted: float | None) -> None:
    report = judged((0.0, sample(is_active=True, counted=counted)))
    assert found(report) == [(CODE, f"{REASON} at that moment, SM clock 345 of 1410 MHz")]
    assert report.gpus[0].bottleneck.name == "power_brake"


def test_a_counter_that_stands_still_hides_no_slowdown() -> None:
    report = judged(*((at, sample(is_active=True, counted=0.0)) for at in range(0, 65, 5)))
    assert found(report) == [(CODE, f"{REASON} for at least 60 s, SM clock 345 of 1410 MHz")]


def test_a_counter_that_moves_is_believed() -> None:
    report = judged(*((at, sample(is_active=True, counted=float(at))) for at in range(0, 65, 5)))
    assert found(report) == [(CODE, f"{REASON} 100% of the time")]


def test_a_flash_that_its_counter_has_not_shown_yet_is_quiet() -> None:
    before = [(float(at), sample(is_active=False, counted=0.0)) for at in range(0, 60, 5)]
    assert found(judged(*before, (60.0, sample(is_active=True, counted=0.0)))) == []


def test_a_slowdown_that_leaves_the_clock_near_its_highest_is_quiet() -> None:
    assert found(judged((0.0, sample(is_active=True, counted=None, clock=1130e6)))) == []
    assert found(judged((0.0, sample(is_active=True, counted=None, clock=1127e6)))) != []
