"""Samples, how readings are rendered, and counters, which are believed only as fast as the hardware can count."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nvml_bench import BenchMaker, says

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device
from gpu_triage.read.gpu.power import PowerReader
from gpu_triage.read.metrics.driver_counters import CounterLimit, DriverCounter, Integral, LinkCounter
from gpu_triage.read.metrics.metric import ANY, Sample, gpu_counter, gpu_gauge, gpu_info, host_counter, host_info
from gpu_triage.read.metrics.rendering import samples

GAUGE = gpu_gauge("A thing.", source="nowhere")
COUNTER = host_counter("A thing.", source="nowhere")
INFO = host_info("A thing.", labels=("name",), source="nowhere")


def test_a_sample_carries_its_labels_as_they_are_and_its_value_as_a_float() -> None:
    assert GAUGE.sample(70, "0", 'GPU-"\n\\') == Sample(GAUGE, ("0", 'GPU-"\n\\'), 70.0)
    assert isinstance(GAUGE.sample(True, "0", "GPU-0").value, float)  # noqa: FBT003 - a flag is a value like any


@pytest.mark.parametrize("labels", [(), ("0",), ("0", "GPU-0", "more")])
def test_a_sample_with_too_few_or_too_many_labels_is_refused(labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="gauge has labels"):
        GAUGE.sample(1.0, *labels)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    for spec, labels in ((GAUGE, ("0", "GPU-0")), (COUNTER, ()), (INFO, ("x",))):
        with pytest.raises(ValueError, match="is not a reading"):
            spec.sample(value, *labels)


def test_a_gauge_may_be_negative_and_a_counter_may_not() -> None:
    assert GAUGE.sample(-1, "0", "GPU-0").value == -1.0
    assert COUNTER.sample(0).value == 0.0
    with pytest.raises(ValueError, match=r"a counter cannot be -0\.5"):
        COUNTER.sample(-0.5)


@pytest.mark.parametrize("value", [0, 2, -1, 0.999])
def test_an_info_is_always_one(value: float) -> None:
    assert INFO.sample(1, "x").value == 1.0
    with pytest.raises(ValueError, match="an info is always 1"):
        INFO.sample(value, "x")


def test_a_help_is_filled_with_states_and_words() -> None:
    labels = {"end": ("a", "b"), "name": ANY}
    spec = gpu_gauge("By end ({end}): {states}.", labels=labels, states={1: "on"}, source="x")
    assert spec.help == "By end (a, b): 1 on."
    assert (spec.labels, spec.label_values) == (("gpu", "uuid", "end", "name"), {"end": ("a", "b")})


GPU = ("0", "GPU-1")
HEAT = gpu_gauge("A thing.", labels=("sensor",), source="nowhere")
ERRORS = gpu_counter("A thing.", labels=("end", "severity"), source="nowhere")
MODE = gpu_info("A thing.", labels=("mode",), source="nowhere")
PEERS = gpu_info("A thing.", labels=("peer", "level"), source="nowhere")
STATE = gpu_gauge("A thing: {states}.", states={1: "calm", 2: "busy"}, source="nowhere")


@dataclass(frozen=True, slots=True)
class Reading:
    name: str = "not published"
    watts: Annotated[float | None, GAUGE] = None
    core: Annotated[float | None, HEAT, "core"] = None
    others: Annotated[Mapping[str, float] | None, HEAT] = None
    errors: Annotated[Mapping[str, int] | None, ERRORS, "port"] = None
    mode: Annotated[str | None, MODE] = None
    peers: Annotated[Mapping[str, str] | None, PEERS] = None
    state: Annotated[str | None, STATE] = None
    modes: Annotated[Mapping[str, bool] | None, MODE] = None
    unrelated: Annotated[int, "of something else"] = 0


def test_what_is_absent_has_no_sample() -> None:
    assert list(samples(Reading(), GPU)) == []
    assert list(samples(Reading(others={}, errors={}, peers={}), GPU)) == []
    assert list(samples(None)) == []


@pytest.mark.parametrize("watts", [0, False])
def test_zero_and_false_are_present(watts: float) -> None:
    assert list(samples(Reading(watts=watts), GPU)) == [GAUGE.sample(0, *GPU)]


def test_fields_are_published_in_their_order_with_the_labels_of_their_annotation() -> None:
    reading = Reading(watts=1, core=2, others={"memory": 3, "board": 4}, errors={"fatal": 5})
    assert list(samples(reading, GPU)) == [
        GAUGE.sample(1, *GPU),
        HEAT.sample(2, *GPU, "core"),
        HEAT.sample(3, *GPU, "memory"),
        HEAT.sample(4, *GPU, "board"),
        ERRORS.sample(5, *GPU, "port", "fatal"),
    ]


def test_text_is_the_last_label_of_an_info_and_the_state_of_a_gauge() -> None:
    assert list(samples(Reading(mode="default", peers={"1": "pix"}, state="busy", modes={"all": True}), GPU)) == [
        MODE.sample(1, *GPU, "default"),
        PEERS.sample(1, *GPU, "1", "pix"),
        STATE.sample(2, *GPU),
        MODE.sample(1, *GPU, "all"),
    ]


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


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-10, 100))), st.floats(0.1, 50))
def test_an_integral_never_goes_back_and_never_outruns_time(readings: list[tuple[float, float]], gap: float) -> None:
    integral, at, total, elapsed = Integral(gap), 0.0, 0.0, 0.0
    for ratio, step in readings:
        at += step
        elapsed += max(step, 0.0)
        integral.add(ratio, at)
        now = integral.total_seconds
        assert total <= now <= elapsed * (1 + 1e-9)
        total = now


def test_a_gap_longer_than_allowed_is_not_bridged_and_what_follows_counts_again() -> None:
    integral = Integral(3.0)
    assert [integral.add(1.0, at).seconds for at in (0.0, 3.0, 6.1, 7.1)] == pytest.approx([0.0, 3.0, 0.0, 1.0])
    assert integral.total_seconds == pytest.approx(4.0)
