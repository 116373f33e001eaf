"""Counters are believed only as fast as the hardware can count: an absurd reading leaves no trace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nvml_bench import BenchMaker, says

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device
from gpu_triage.read.gpu.power import PowerReader
from gpu_triage.read.metrics.driver_counters import CounterLimit, DriverCounter, Integral, LinkCounter

ABSURD = 18446744073709551614
LIMIT = CounterLimit(per_second=100.0, most=1e12)


def inquiry() -> Inquiry:
    return Inquiry(Device(0, "GPU-0", None, None))


@pytest.mark.parametrize(
    ("told", "joules"),
    [
        ((5_000_000, 5_100_000, ABSURD, 2**50, 5_200_000, 5_300_000), [5000, 5100, None, None, 5200, 5300]),
        ((ABSURD, 5_000_000, 5_100_000), [None, 5000, 5100]),
        # It reads zero for a while, and goes on from where it was.
        ((900_000_000, 900_100_000, 0, 0, 0, 0, 900_600_000, 900_700_000), [900_000, *[900_100] * 5, 900_600, 900_700]),
    ],
)
def test_an_absurd_energy_is_dropped(bench: BenchMaker, told: tuple[int, ...], joules: list[float | None]) -> None:
    nvml, reader = bench(), PowerReader()
    for millijoules, expected in zip(told, joules, strict=True):
        nvml.answer("nvmlDeviceGetTotalEnergyConsumption", says(millijoules))
        round_ = nvml.round()
        assert reader.read(round_).energy_joules == expected
        assert round_.inquiry.failures == ([] if expected is not None else ["implausible"])
        nvml.clock.advance(1)


def test_a_counter_that_was_reset_long_ago_does_not_go_back_to_its_old_level() -> None:
    counter, asked = DriverCounter(LIMIT), inquiry()
    values = [counter.read(asked, raw, at) for raw, at in ((50_000, 0), (10, 1), (20, 2), (50_010, 61))]
    assert values == [50_000, 50_000, 50_020, None]
    assert counter.read(asked, 700, 62) == 50_700


def test_a_counter_that_stays_at_its_new_level_goes_on_without_the_jump() -> None:
    counter, asked = DriverCounter(LIMIT), inquiry()
    assert counter.read(asked, 1000, 0.0) == 1000
    published = [counter.read(asked, 900_000 + second, float(second)) for second in range(1, 63)]
    assert published[:59] == [None] * 59
    assert published[-2:] == [1001, 1002]
    assert counter.read(asked, 7, 63.0) == 1002  # may be a glitch
    assert counter.read(asked, 9, 64.0) == 1011


def test_a_counter_may_catch_up_on_the_time_in_which_nobody_asked() -> None:
    counter, asked = DriverCounter(LIMIT), inquiry()
    counter.read(asked, 0, 0.0)
    assert counter.read(asked, 90_000, 1000.0) == 90_000
    assert asked.failures == []


@given(st.lists(st.tuples(st.integers(-5, 1 << 64) | st.integers(0, 5000), st.floats(0, 100))))
def test_a_bounded_counter_never_goes_back_and_never_outruns_the_hardware(readings: list[tuple[int, float]]) -> None:
    counter, at, first, last = DriverCounter(LIMIT), 0.0, None, 0.0
    for number, (raw, step) in enumerate(readings, 1):
        at += step
        now = counter.read(inquiry(), raw, at)
        if now is not None:
            first = now if first is None else first
            assert last <= now <= first + (at + 10 * number) * LIMIT.per_second
            last = now


@pytest.mark.parametrize(
    ("shows_resets", "told", "published"),
    [
        (False, (1000, 5, 7, 10), [1000, 1000, 1007, 1010]),  # the first low reading may be a glitch
        (False, (1000, 0, 1001, 0, 1002), [1000, 1000, 1001, 1001, 1002]),
        (True, (12, 0, 12, 0), [12, 12, 12, 12]),
        (True, (12, 0, 0, 1), [12, 12, 0, 1]),
    ],
)
def test_two_low_readings_are_a_reset(*, shows_resets: bool, told: tuple[int, ...], published: list[float]) -> None:
    counter = DriverCounter(shows_resets=shows_resets)
    assert [counter.add(raw, 0.0) for raw in told] == published


@given(st.lists(st.integers(0, 100), min_size=1))
def test_an_error_counter_shows_nothing_that_the_driver_never_said(values: list[int]) -> None:
    counter = DriverCounter(shows_resets=True)
    for number, raw in enumerate(values):
        assert counter.add(raw, 0.0) in values[: number + 1]


def test_a_link_that_joins_later_brings_no_past_with_it() -> None:
    total = LinkCounter(LIMIT).total
    assert total({0: 10}) == 10
    assert total({0: 10, 1: 1000}) == 10
    assert total({0: 11, 1: 1005}) == 16


@given(st.lists(st.dictionaries(st.integers(0, 5), st.floats(0, 1e15)), max_size=30))
def test_no_sum_goes_back_whoever_is_in_it(steps: list[dict[int, float]]) -> None:
    total = LinkCounter(LIMIT).total
    counters, before = dict.fromkeys(range(6), 0.0), 0.0
    for grown in steps:
        for link, by in grown.items():
            counters[link] += by
        now = total({link: counters[link] for link in grown})
        assert now is None or now >= before
        before = before if now is None else now


ratios = st.floats(0, 1)
steps = st.floats(0, 100)


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


def test_a_gap_longer_than_allowed_is_not_bridged_and_what_follows_counts_again() -> None:
    integral = Integral(3.0)
    integral.add(1.0, 0.0)
    assert integral.add(1.0, 3.0) == 3.0
    assert integral.add(1.0, 6.1) == 3.0
    assert integral.add(1.0, 7.1) == 4.0
