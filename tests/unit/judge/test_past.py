"""What is remembered of sums and counters, how exactly, and in how much memory."""

import tracemalloc

import pytest

from gpu_triage.judge.evidence.past import DAY_SECONDS, Amount, Counted, Memory, Past
from gpu_triage.read.gpu.ecc import GPU_ECC_VOLATILE_ERRORS_TOTAL

MIB = 1024**2


def wobbling(past: Past, seconds: float, step: float) -> None:
    """A sum that never grows evenly."""
    for number in range(int(seconds / step)):
        past.note(step, (number % 7) * step)


def test_nothing_is_known_of_a_past_without_notes() -> None:
    assert Past().over(60.0) == Amount(0.0, 0.0)
    assert Past().over(60.0).mean == 0.0


def test_less_is_known_than_was_asked_for_until_it_was_seen() -> None:
    past = Past()
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
    past.note(5.0, 100.0)
    for _ in range(int(830 / 5)):
        past.note(5.0, 0.0)
    assert past.over(840.0).amount == 100.0
    for _ in range(2):
        past.note(5.0, 0.0)
    assert past.over(835.0).amount == pytest.approx(0.0)


@pytest.mark.slow
def test_points_are_bounded_however_long_it_goes_on() -> None:
    minutes, day = Past(), Past(DAY_SECONDS)
    wobbling(minutes, 7200.0, 5.0)
    wobbling(day, 1.5 * DAY_SECONDS, 5.0)
    assert len(minutes) <= 120 / 5 + 780 / 5 + 3 + 64
    assert len(day) <= 120 / 5 + 780 / 5 + 85_500 / 60 + 3 + 64


def test_what_goes_on_evenly_needs_two_points() -> None:
    past = Past(DAY_SECONDS)
    for _ in range(10_000):
        past.note(5.0, 5.0)
    assert len(past) == 2
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


@pytest.mark.full
@pytest.mark.slow
def test_a_day_of_eight_busy_gpus_takes_little_memory() -> None:
    """Thirty sums of a quarter of an hour, two of two hours and one counter of a day a GPU, none of them even."""
    labels = [(str(gpu), f"GPU-{gpu}", "corrected") for gpu in range(8)]
    memory, total = Memory(), 0.0
    tracemalloc.start()
    try:
        for number in range(int(DAY_SECONDS / 60)):
            now, total = number * 60.0, total + number % 5
            for series in labels:
                memory.count(GPU_ECC_VOLATILE_ERRORS_TOTAL, series, (now, total), DAY_SECONDS)
        for number in range(300):
            for gpu in range(8):
                for name in range(30):
                    memory.note(str(gpu), name, 5.0, (number + name) % 7)
        for number in range(200):
            for gpu in range(8):
                for share in ("held", "busy"):
                    memory.note(str(gpu), share, 60.0, number % 7, 7200.0)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= 1.5 * MIB
