from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpu_triage.read.metrics.integrals import ConfirmedCounter, ContinuedCounter, Integral

ratios = st.floats(0, 1)
steps = st.floats(0, 100)
raws = st.integers(0, 1 << 63)
GAP = 3.0


@given(st.lists(st.tuples(ratios, st.floats(-10, 100))), st.floats(0.1, 50))
def test_an_integral_never_goes_back_and_never_outruns_time(readings: list[tuple[float, float]], gap: float) -> None:
    integral, at, total, elapsed = Integral(gap), 0.0, 0.0, 0.0
    for ratio, step in readings:
        at += step
        elapsed += max(step, 0.0)
        now = integral.add(ratio, at)
        assert now >= total
        assert now <= elapsed * (1 + 1e-9)
        total = now


@given(ratios, st.lists(st.floats(0.001, 3.0), min_size=1, max_size=50))
def test_an_integral_of_a_constant_is_exact_whatever_the_rhythm(ratio: float, beats: list[float]) -> None:
    times = list(accumulate(beats, initial=1000.0))
    # Each time is rounded, so two of them may be further apart than the beat between them.
    assume(all(after - before <= GAP for before, after in pairwise(times)))
    integral = Integral(GAP)
    for at in times:
        integral.add(ratio, at)
    assert integral.total_seconds == pytest.approx(ratio * (times[-1] - times[0]), rel=1e-6, abs=1e-9)


def test_an_integral_starts_at_zero_however_busy_the_first_reading_is() -> None:
    assert Integral(3.0).add(1.0, 5000.0) == 0.0


def test_an_integral_takes_the_mean_of_two_readings() -> None:
    integral = Integral(3.0)
    integral.add(0.0, 10.0)
    assert integral.add(1.0, 12.0) == 1.0


def test_a_gap_longer_than_allowed_is_not_bridged_and_what_follows_counts_again() -> None:
    integral = Integral(3.0)
    integral.add(1.0, 0.0)
    assert integral.add(1.0, 3.0) == 3.0
    assert integral.add(1.0, 6.1) == 3.0
    assert integral.add(1.0, 7.1) == 4.0


def test_two_readings_at_one_instant_add_nothing() -> None:
    integral = Integral(3.0)
    integral.add(1.0, 1.0)
    assert integral.add(1.0, 1.0) == 0.0


@given(st.lists(raws))
def test_a_continued_counter_never_goes_back(values: list[int]) -> None:
    counter, last = ContinuedCounter(), 0.0
    for raw in values:
        now = counter.add(raw)
        assert now >= last
        last = now


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**9), max_size=20))
def test_a_continued_counter_is_the_drivers_own_while_it_only_grows(start: int, growth: list[int]) -> None:
    counter, raw = ContinuedCounter(), start
    assert counter.add(raw) == start
    for more in growth:
        raw += more
        assert counter.add(raw) == raw


def test_a_continued_counter_goes_on_from_where_a_reset_left_it() -> None:
    counter = ContinuedCounter()
    counter.add(1000)
    assert counter.add(5) == 1000  # may be a glitch
    assert counter.add(7) == 1007
    assert counter.add(10) == 1010


def test_a_single_low_reading_of_a_continued_counter_is_not_counted_twice() -> None:
    counter = ContinuedCounter()
    counter.add(1000)
    assert counter.add(0) == 1000
    assert counter.add(1001) == 1001
    assert counter.add(0) == 1001
    assert counter.add(1002) == 1002


def test_one_low_reading_of_an_error_counter_is_held_back() -> None:
    counter = ConfirmedCounter()
    assert counter.add(12) == 12
    assert counter.add(0) == 12
    assert counter.add(12) == 12
    assert counter.add(0) == 12


def test_two_low_readings_of_an_error_counter_are_a_reset_that_shows() -> None:
    counter = ConfirmedCounter()
    counter.add(12)
    assert counter.add(0) == 12
    assert counter.add(0) == 0
    assert counter.add(1) == 1


@given(st.integers(0, 10**6), st.lists(st.integers(0, 10**6), max_size=20))
def test_an_error_counter_that_only_grows_is_the_drivers_own(start: int, growth: list[int]) -> None:
    counter, raw = ConfirmedCounter(), start
    assert counter.add(raw) == start
    for more in growth:
        raw += more
        assert counter.add(raw) == raw


@given(st.lists(st.integers(0, 100), min_size=1))
def test_an_error_counter_shows_nothing_that_the_driver_never_said(values: list[int]) -> None:
    counter = ConfirmedCounter()
    for number, raw in enumerate(values):
        assert counter.add(raw) in values[: number + 1]
