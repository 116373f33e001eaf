"""What is remembered of sums and counters, how exactly, and in how much memory."""

from collections.abc import Iterable

import pytest
from tests.evidence import evidence_of

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.past import DAY_SECONDS, Amount, Counted, Memory, Past
from gpu_triage.judge.evidence.series import Series
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_SIMULATED
from gpu_triage.read.gpu.activity import GPU_BUSY_SECONDS_TOTAL
from gpu_triage.read.gpu.power import GPU_POWER_WATTS
from gpu_triage.read.metrics.metric import MetricSpec


def wobbling(past: Past, seconds: float, step: float) -> None:
    """A sum that never grows evenly."""
    for number in range(int(seconds / step)):
        past.note(step, (number % 7) * step)


def test_less_is_known_than_was_asked_for_until_it_was_seen_and_nothing_without_notes() -> None:
    past = Past()
    assert past.over(60.0) == Amount(0.0, 0.0)
    assert past.over(60.0).mean == 0.0
    past.note(20.0, 5.0)
    assert past.over(60.0) == Amount(5.0, 20.0)


@pytest.mark.slow
@pytest.mark.parametrize("step", [1.0, 5.0, 15.0, 60.0])
@pytest.mark.parametrize("seconds", [60.0, 300.0, 840.0, 7200.0])
def test_a_window_holds_what_happened_in_it(step: float, seconds: float) -> None:
    past = Past(DAY_SECONDS)
    for number in range(int(20_000 / step)):
        past.note(step, 1.0 if number % 2 else 3.0)
    found = past.over(seconds)
    assert found.seconds == pytest.approx(seconds)
    assert found.amount == pytest.approx(2 * seconds / step, abs=2.0)


def test_a_burst_leaves_a_window_when_it_is_older() -> None:
    past = Past()
    for amount in (100.0, *[0.0] * (830 // 5)):
        past.note(5.0, amount)
    assert past.over(840.0).amount == 100.0
    for _ in range(2):
        past.note(5.0, 0.0)
    assert past.over(835.0).amount == pytest.approx(0.0)


@pytest.mark.slow
def test_points_are_bounded_however_long_it_goes_on() -> None:
    minutes, day = Past(), Past(DAY_SECONDS)
    wobbling(minutes, 7200.0, 5.0)
    wobbling(day, 1.5 * DAY_SECONDS, 5.0)
    assert len(minutes._clock) <= 120 / 5 + 780 / 5 + 3 + 64
    assert len(day._clock) <= 120 / 5 + 780 / 5 + 85_500 / 60 + 3 + 64


def test_what_goes_on_evenly_needs_two_points() -> None:
    past = Past(DAY_SECONDS)
    for _ in range(10_000):
        past.note(5.0, 5.0)
    assert len(past._clock) == 2
    assert past.over(3600.0) == Amount(3600.0, 3600.0)


def test_a_counter_that_was_reset_goes_on_from_zero_and_a_reading_counts_once() -> None:
    counter = Counted(900.0, 0.0, 10.0)
    for at, value in ((5.0, 12.0), (5.0, 12.0), (10.0, 3.0)):
        counter.read(at, value)
    assert counter.over(900.0) == Amount(5.0, 10.0)


def test_time_between_two_looks_that_are_far_apart_was_seen_by_nobody() -> None:
    memory = Memory()
    assert memory.passed(100.0, seen_seconds=30.0, longest_gap_seconds=60.0) == 30.0
    assert memory.passed(400.0, seen_seconds=60.0, longest_gap_seconds=60.0) == 0.0
    assert memory.passed(460.0, seen_seconds=60.0, longest_gap_seconds=60.0) == 60.0
    assert memory.seconds == 90.0


def test_of_too_many_the_oldest_is_forgotten() -> None:
    memory = Memory()
    for number in range(1100):
        memory.note(str(number), "some", 5.0, 1.0)
    assert memory.over("0", "some", 60.0) == Amount(0.0, 0.0)
    assert memory.over("1099", "some", 60.0) == Amount(1.0, 5.0)


GPU = ("0", "GPU-a")


def seen(spec: MetricSpec, *readings: tuple[float, float], window: float = 60.0) -> HostEvidence:
    """Evidence of one series, of second and value of each publication."""
    return evidence_of(*((at, [spec.sample(value, *GPU)]) for at, value in readings), window_seconds=window)


def one(evidence: HostEvidence, spec: MetricSpec) -> Series:
    (series,) = evidence.series(spec)
    return series


BUSY, WATTS = GPU_BUSY_SECONDS_TOTAL, GPU_POWER_WATTS
STOOD = [*((float(at), 7.0) for at in range(0, 600, 5)), (600.0, 9.0)]
TENS = [(float(at), 10.0) for at in range(0, 51, 5)]
SLEPT = [(0, 0), (5, 5), (3600, 6), (3605, 11)]
RISING = [(float(at), float(at)) for at in range(0, 205, 5)]
SERIES = {
    "what is still published counts once": (
        WATTS,
        [(100, 50), (100, 50), (100, 50), (105, 80)],
        {"mean": 65, "low": 50, "high": 80, "first": 50, "last": 80},
    ),
    "a counter has the rate of its readings": (BUSY, [(100, 5), (104, 8), (110, 10)], {"rate": 0.5}),
    "a counter read once has no rate": (BUSY, [(100, 5)], {"rate": None}),
    "a counter that was reset rises from zero": (BUSY, [(100, 50), (101, 52), (102, 1)], {"increase": 3}),
    "a mean is over time however few readings differ": (WATTS, [*TENS, (60, 70.0)], {"mean": (50 * 10 + 10 * 40) / 60}),
    "a counter that stood still rose within the window only": (BUSY, STOOD, {"increase": 2, "seconds": 60}),
    "what was read before the host slept is not of now": (BUSY, SLEPT, {"rate": 1.0}),
}


@pytest.mark.parametrize(("spec", "readings", "expected"), SERIES.values(), ids=SERIES.keys())
def test_a_series_says_what_it_was_over_the_window(
    spec: MetricSpec, readings: Iterable[tuple[float, float]], expected: dict[str, float | None]
) -> None:
    series = one(seen(spec, *readings), spec)
    assert {name: getattr(series, name) for name in expected} == pytest.approx(expected)


def test_what_is_withdrawn_is_no_evidence_and_begins_anew_when_it_is_back() -> None:
    gone = evidence_of((100, [GPU_POWER_WATTS.sample(50, *GPU)]), (100, None))
    assert (gone.series(GPU_POWER_WATTS), gone.last(GPU_POWER_WATTS)) == ((), None)
    is_back = (102, [GPU_POWER_WATTS.sample(70, *GPU)])
    back = one(evidence_of((100, [GPU_POWER_WATTS.sample(50, *GPU)]), (100, None), is_back), GPU_POWER_WATTS)
    assert (back.first, back.mean) == (70, 70)


def test_series_are_found_by_their_labels() -> None:
    evidence = seen(GPU_POWER_WATTS, (1, 50))
    assert len(evidence.series(GPU_POWER_WATTS, gpu="0")) == 1
    assert evidence.series(GPU_POWER_WATTS, gpu="1") == evidence.series(GPU_EXPORTER_SIMULATED) == ()
    assert seen(GPU_BUSY_SECONDS_TOTAL, (100, 5), (110, 10)).rate(GPU_BUSY_SECONDS_TOTAL, gpu="0") == pytest.approx(0.5)


def test_only_the_window_counts_from_the_last_reading_before_it_and_a_part_can_be_asked_for() -> None:
    series = one(seen(GPU_BUSY_SECONDS_TOTAL, *RISING, window=62.0), GPU_BUSY_SECONDS_TOTAL)
    assert (series.first, series.last, series.seconds) == (135, 200, 65)
    evidence = seen(GPU_POWER_WATTS, (0, 10), (30, 10), (50, 100), (60, 100))
    whole, last = one(evidence, GPU_POWER_WATTS), one(evidence.over(10), GPU_POWER_WATTS)
    assert (whole.low, last.low, last.mean) == (10, 100, 100)


def test_the_window_stays_small_however_long_it_runs() -> None:
    moving = [(float(at), float(at)) for at in range(0, 3600, 5)]
    ((_, points),) = seen(GPU_POWER_WATTS, *moving)._matching(GPU_POWER_WATTS, {})
    assert len(points) <= 2 * (60 // 5 + 2)
