"""Busy time, from the samples that the driver keeps or from polls.

The period of power: of series made by hand, and of the samples that a driver keeps. Reasons of throttling: the driver's
counters where it has them, polls where it has not.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pynvml
import pytest
from tests.nvml_bench import Bench, BenchMaker, fields_say, fills, says
from tests.rules.cases import FOLDER

from gpu_triage.driver.nvml.session import DriverVersions
from gpu_triage.machine import Moment
from gpu_triage.read.gpu.activity import ActivityReader
from gpu_triage.read.gpu.power import PERIOD_PARTS, PowerPeriodReader, PowerPeriodReading, repetition
from gpu_triage.read.gpu.throttle import ThrottleReader, ThrottleReading, counter_fields
from gpu_triage_simulator import Scenario, VirtualClock
from gpu_triage_simulator.scenario_file import read_scenario
from gpu_triage_simulator.schema import read_toml

WALL = 1_768_435_200.0


class Samples:
    """nvmlDeviceGetSamples of a driver that has these samples: time of day in seconds and percent."""

    def __init__(self) -> None:
        self.ring: list[tuple[float, int]] = []
        self.value_type = 1

    def __call__(self, _device: Any, _kind: Any, since: Any, value_type: Any, count: Any, out: Any) -> int:
        found = [(round(at * 1e6), percent) for at, percent in self.ring if round(at * 1e6) > since.value]
        value_type._obj.value = self.value_type
        count._obj.value = len(found)
        if not found:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        for sample, (stamp, percent) in zip(out or (), found, strict=out is not None):
            sample.timeStamp, sample.sampleValue.uiVal = stamp, percent
        return 0

    def tick(self, second: float, *percents: int) -> None:
        """Take the samples of one second, spread evenly; the ring keeps the last hundred."""
        step = 1.0 / len(percents)
        self.ring += [(second + (i + 1) * step, percent) for i, percent in enumerate(percents)]
        del self.ring[:-100]


def sampled(nvml: Bench) -> Samples:
    """A driver that polls as idle and whose samples the test makes."""
    samples = Samples()
    nvml.answer("nvmlDeviceGetSamples", samples)
    nvml.answer("nvmlDeviceGetUtilizationRates", fills(gpu=0, memory=0))
    return samples


def observed_after(
    nvml: Bench, reader: ActivityReader, second: float, wall: float | None = None
) -> tuple[float, float]:
    """Busy seconds, and the seconds in which that was observed."""
    at = Moment(monotonic=500.0 + second, wall=WALL + second if wall is None else wall)
    reading = reader.read(nvml.round(at=at))
    assert reading.busy_seconds is not None
    assert reading.observed_seconds is not None
    return reading.busy_seconds, reading.observed_seconds


def busy_after(nvml: Bench, reader: ActivityReader, second: float, wall: float | None = None) -> float:
    return observed_after(nvml, reader, second, wall)[0]


def test_bursts_between_polls_are_counted_from_the_drivers_samples(bench: BenchMaker) -> None:
    nvml, reader = bench(), ActivityReader(3.0)
    samples = sampled(nvml)
    samples.tick(WALL - 1, 0, 0, 0, 0, 0)
    busy_after(nvml, reader, 0)
    for second in range(10):
        samples.tick(WALL + second, 0, 100, 0, 0, 0)
        busy = busy_after(nvml, reader, second + 1)
    assert busy == pytest.approx(2.0)


def test_what_was_sampled_before_the_first_look_is_not_counted(bench: BenchMaker) -> None:
    nvml, reader = bench(), ActivityReader(30.0)
    samples = sampled(nvml)
    for second in range(-15, 0):
        samples.tick(WALL + second, 100, 100, 100, 100, 100)
    assert busy_after(nvml, reader, 0) == 0.0


def test_samples_on_both_sides_of_a_long_silence_are_not_joined(bench: BenchMaker) -> None:
    nvml, reader = bench(), ActivityReader(3.0)
    samples = sampled(nvml)
    samples.tick(WALL - 1, 100)
    busy_after(nvml, reader, 0)
    samples.tick(WALL, 100)
    assert busy_after(nvml, reader, 1) == pytest.approx(1.0)
    samples.tick(WALL + 20, 100)
    assert busy_after(nvml, reader, 21) == pytest.approx(1.0)


@pytest.mark.parametrize("answer", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NOT_FOUND, "another type"])
def test_without_samples_busy_time_is_integrated_from_polls(bench: BenchMaker, answer: int | str) -> None:
    nvml, reader = bench(), ActivityReader(3.0)
    samples = sampled(nvml)
    samples.value_type = 0
    if isinstance(answer, int):
        nvml.answer("nvmlDeviceGetSamples", answer)
    nvml.answer("nvmlDeviceGetUtilizationRates", fills(gpu=50, memory=0))
    for second in range(11):
        samples.tick(WALL + second - 1, 100)
        busy = busy_after(nvml, reader, second)
    assert busy == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("step", "sampled_until"),
    [
        *((step, 61) for step in (-3600.0, -10.0, 3600.0)),  # the clock is set anew
        (0.0, 20),  # the driver stops sampling, and is polled again
    ],
)
def test_busy_seconds_go_on(bench: BenchMaker, step: float, sampled_until: int) -> None:
    nvml, reader = bench(), ActivityReader(3.0)
    samples = sampled(nvml)
    nvml.answer("nvmlDeviceGetUtilizationRates", fills(gpu=100, memory=0))
    total = 0.0
    for second in range(61):
        wall = WALL + second + (step if second > 20 else 0.0)
        if second <= sampled_until:
            samples.tick(wall - 1, 100, 100, 100, 100, 100)
        now = busy_after(nvml, reader, second, wall)
        assert total <= now <= second + 1
        total = now
    assert total == pytest.approx(60.0, abs=2.5 if step else 3.0)


LATE = (0.0, 1.0, 2.0, 5.0, 8.001, 20.0, 21.0)  # gaps of 1, 1, 3, just over 3, 12, and 1 s


def test_time_between_polls_that_are_too_far_apart_is_not_observed(bench: BenchMaker) -> None:
    nvml, reader = bench(), ActivityReader(3.0)
    nvml.answer("nvmlDeviceGetSamples", pynvml.NVML_ERROR_NOT_SUPPORTED)
    nvml.answer("nvmlDeviceGetUtilizationRates", fills(gpu=80, memory=0))
    seconds = [observed_after(nvml, reader, second) for second in LATE]
    assert [observed for _, observed in seconds] == pytest.approx([0.0, 1.0, 2.0, 5.0, 5.0, 5.0, 6.0])
    assert [busy for busy, _ in seconds] == pytest.approx([0.8 * observed for _, observed in seconds])


def test_the_drivers_samples_are_observed_however_late_they_are_read(bench: BenchMaker) -> None:
    """It keeps the last 20 s; what is older is lost."""
    nvml, reader = bench(), ActivityReader(3.0)
    samples = sampled(nvml)
    second, seen = -1, []
    for late in (0, 1, 11, 71):
        while second < late:
            samples.tick(WALL + second, 50, 50, 50, 50, 50)
            second += 1
        seen.append(observed_after(nvml, reader, late))
    assert [observed for _, observed in seen] == pytest.approx([0.0, 1.0, 11.0, 11.0 + 19.8])
    assert [busy for busy, _ in seen] == pytest.approx([0.5 * observed for _, observed in seen])


SAMPLES: Final = "nvmlDeviceGetSamples"
NONE: Final = PowerPeriodReading()
TOTAL_POWER: Final = 0


def noise(watts: float, seed: int = 0) -> list[float]:
    drawn = random.Random(seed)
    return [drawn.gauss(300.0, watts) for _ in range(PERIOD_PARTS)]


def square(period: float, watts: float = 300.0, share: float = 0.6) -> list[float]:
    """Means over each value of power that is higher by `watts` for a share of each period."""
    fine = 10
    highs = [watts * ((step / fine / period) % 1.0 < share) for step in range(PERIOD_PARTS * fine)]
    return [sum(highs[at : at + fine]) / fine for at in range(0, len(highs), fine)]


def wave(period: float) -> list[float]:
    return [300.0 + 100.0 * math.sin(2.0 * math.pi * part / period) for part in range(PERIOD_PARTS)]


def added(*series: Sequence[float]) -> list[float]:
    return [sum(values) for values in zip(*series, strict=True)]


REPEATS: Final = (
    *((square(period, share=share), period) for period in (10.0, 13.3, 20.0, 40.7, 66.6, 79.0) for share in (0.3, 0.8)),
    (square(7.5, share=0.5), 7.5),  # twice that is a whole number of values, and repeats better
    (added(square(40.0), square(10.0, watts=350.0)), 40.0),  # micro-batches of a step
    (wave(5.0), 5.0),  # parts
    (square(PERIOD_PARTS / 3), PERIOD_PARTS / 3),
    # It changed: known once the old one has passed.
    *((square(20.0)[:kept] + square(28.0)[kept:], period) for kept, period in ((200, 20.0), (40, 28.0))),
)
DOES_NOT: Final = (
    [300.0] * PERIOD_PARTS,
    [0.1] * PERIOD_PARTS,  # no exact number: its mean may differ by rounding
    *(noise(30.0, seed) for seed in range(20)),
    [300.0 + part for part in range(PERIOD_PARTS)],
    [-200.0] * 120 + square(20.0)[: PERIOD_PARTS - 120],  # the job has just started
    square(20.0)[:120] + square(28.0)[: PERIOD_PARTS - 120],  # its steps became longer
    [100.0 * (50 <= part < 60 or 120 <= part < 130) for part in range(PERIOD_PARTS)],  # two checkpoints
    *map(wave, (2.0, 2.5)),  # faster than the values: every second time, it comes back to the same one
    *map(wave, (4.0, 4.4)),  # parts
    square(PERIOD_PARTS / 3 + 1),
)


@pytest.mark.parametrize(("series", "period"), [*REPEATS, *((each, None) for each in DOES_NOT)])
def test_the_shortest_period_that_is_nearly_the_strongest_is_found(series: list[float], period: float | None) -> None:
    found = repetition(series if period is None else added(series, noise(10.0)))
    assert (found and found[0]) == (period and pytest.approx(period, rel=0.02))


def test_the_more_noise_the_weaker_is_a_period_until_it_is_below_a_half() -> None:
    found = [repetition(added(square(20.0), noise(watts))) for watts in range(0, 400, 2)]
    strengths = [each[1] for each in found if each is not None]
    assert found.index(None) == len(strengths) > 10
    assert 0.5 <= min(strengths) == strengths[-1] < 0.51


def job() -> Scenario:
    """Two H100 with a job that spends 3.4 of 5 s computing."""
    base = read_toml(FOLDER / "base" / "two-h100.toml")
    rank = {"gpus": [0, 1], "compute_seconds": 3.4}
    return read_scenario({**base, "name": "job", "job": [{"exchange_seconds": 1.6, "ranks": [rank]}]}, "job.toml")


def readings(nvml: Bench, reader: PowerPeriodReader, since: int, until: int) -> list[PowerPeriodReading]:
    return [reader.read(nvml.at(second)) for second in range(since, until)]


def test_the_step_of_a_job_is_the_period_of_its_power(bench: BenchMaker) -> None:
    found = readings(bench(job()), PowerPeriodReader(), 20, 200)  # the ring has the 20 s before, too
    assert found[:99] == [NONE] * 99
    assert min(each.strength or 0.0 for each in found[105:]) > 0.8
    assert [each.seconds for each in found[105:]] == [pytest.approx(5.0, rel=0.02)] * 75


@pytest.mark.parametrize(("second", "set_back", "known"), [(168, 0.0, True), (175, 0.0, False), (150, 1.5, False)])
def test_after_a_gap_or_a_step_of_the_wall_clock_two_minutes_are_collected_anew(
    bench: BenchMaker, second: int, set_back: float, *, known: bool
) -> None:
    """The ring has the last 20 s: a look after 19 s misses nothing, one after 25 s does."""
    nvml, reader = bench(job()), PowerPeriodReader()
    readings(nvml, reader, 0, 150)
    at = nvml.at(second).at
    assert (reader.read(nvml.round(at=Moment(at.monotonic, at.wall - set_back))) != NONE) is known
    found = readings(nvml, reader, second + 1, second + 130)
    assert [each != NONE for each in found[:98]] == [known] * 98
    assert found[-1] != NONE


@pytest.mark.parametrize("answer", [pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_UNKNOWN])
def test_a_driver_that_stops_sampling_has_no_period_after_three_seconds(bench: BenchMaker, answer: int) -> None:
    nvml, reader = bench(job()), PowerPeriodReader()
    readings(nvml, reader, 0, 150)
    nvml.answer(SAMPLES, answer)
    assert [reading == NONE for reading in readings(nvml, reader, 150, 156)] == [False] * 3 + [True] * 3


def test_utilization_is_sampled_where_power_is_not(bench: BenchMaker) -> None:
    nvml = bench(job())
    below: Any = nvml.library._base.nvmlDeviceGetSamples  # type: ignore[attr-defined]  # the simulated library's

    def call(device: Any, kind: Any, *arguments: Any) -> int:
        code: int = below(device, kind, *arguments) if kind.value != TOTAL_POWER else pynvml.NVML_ERROR_NOT_SUPPORTED
        return code

    nvml.answer(SAMPLES, call)
    power, activity = PowerPeriodReader(), ActivityReader(3.0)
    for second in range(10):
        gpu = nvml.at(second)
        assert power.read(gpu) == NONE
        activity.read(gpu)
        assert gpu.inquiry.failures == []
    # Once for power; twice a round, for their number and for themselves, for utilization.
    assert nvml.calls(SAMPLES) == 1 + 2 * 10


START = VirtualClock().now().monotonic
# NVML_FI_DEV_PERF_POLICY_{POWER,THERMAL,SYNC_BOOST,BOARD_LIMIT,RELIABILITY} of nvml.h (CUDA 13.3), which DCGM's fields
# 240 to 245 read (dcgm_fields.cpp).
IDS = {"sw_power_cap": 74, "sync_boost": 76, "board_limit": 77, "reliability": 79}
EARLY_IDS = {**IDS, "sw_thermal": 251, "hw_thermal": 252, "hw_power_brake": 253}
LATE_IDS = {**IDS, "sw_thermal": 269, "hw_thermal": 270, "hw_power_brake": 271}
NO_SLOWDOWN_IDS = {**IDS, "sw_thermal": 75}


@pytest.mark.parametrize(
    ("version", "ids"),
    [
        *((version, NO_SLOWDOWN_IDS) for version in ("535.183.01", "570.124.06", None, "", "junk")),
        *((version, EARLY_IDS) for version in ("575.51", "575.51.03", "580.65.06", "580.81")),
        *((version, LATE_IDS) for version in ("580.82", "580.82.07", "590.44.01")),
    ],
)
def test_counter_ids_are_those_of_the_driver_at_hand(version: str | None, ids: dict[str, int]) -> None:
    assert dict(counter_fields(version)) == ids


def throttled(nvml: Bench, reader: ThrottleReader, second: float) -> dict[str, float]:
    return dict(reader.read(nvml.after(START + second - nvml.clock.now().monotonic)).seconds)


@pytest.mark.parametrize(
    ("field", "reason", "counted", "totals"),
    [
        (74, "sw_power_cap", {0: 40.0, 1: 40.5}, [40.0, 40.5]),
        # A reading that outruns time is dropped, and one that is zero, once or for a while.
        (74, "sw_power_cap", {0: 40, 1: 41, 2: 2e5, 3: 43, 4: 44}, [40, 41, 41, 43, 44]),
        (74, "sw_power_cap", {0: 1000, 10: 0, 11: 1011, 12: 1012}, [1000, 1000, 1011, 1012]),
        (
            74,
            "sw_power_cap",
            dict(enumerate((40.0, 40.5, 0, 0, 0, 42.5, 43.5, 44.5, 45.5, 46.5))),
            [40.0, 40.5, 40.5, 40.5, 40.5, 42.5, 43.5, 44.5, 45.5, 46.5],
        ),
        # Power smoothing's numbers under the id, in a driver that was renumbered once more: polls take its place.
        (269, "sw_thermal", dict(enumerate((10, 11, 500, 12, 900, 700, 800))), [10, 11, 11, 12, 12, 12, 13]),
    ],
)
def test_a_reason_the_driver_counts_has_the_drivers_seconds(
    bench: BenchMaker, field: int, reason: str, counted: dict[int, float], totals: list[float]
) -> None:
    nvml, reader = bench("dual-a10"), ThrottleReader(3.0)  # held by software for heat
    nvml.versions = DriverVersions("580.82.07", None, None)
    published = []
    for second, seconds in counted.items():
        nvml.answer("nvmlDeviceGetFieldValues", fields_say({field: (0, "ullVal", int(seconds * 1e9))}))
        published.append(throttled(nvml, reader, second)[reason])
    assert published == totals


@pytest.mark.parametrize(("field", "reason"), [(75, "sw_thermal"), (77, "board_limit"), (79, "reliability")])
def test_an_older_drivers_policies_are_read_as_nanoseconds(bench: BenchMaker, field: int, reason: str) -> None:
    nvml, reader = bench("dual-a10"), ThrottleReader(3.0)
    nvml.answer("nvmlDeviceGetFieldValues", fields_say({field: (0, "ullVal", 7_000_000_000)}))
    assert throttled(nvml, reader, 0)[reason] == 7.0


def test_a_reason_the_driver_does_not_count_is_integrated(bench: BenchMaker) -> None:
    nvml, reader = bench("dual-a10"), ThrottleReader(3.0)  # held by software for heat
    nvml.answer("nvmlDeviceGetFieldValues", pynvml.NVML_ERROR_NOT_SUPPORTED)
    totals = [throttled(nvml, reader, second)["sw_thermal"] for second in range(4)]
    assert totals == [0.0, 1.0, 2.0, 3.0]
    assert throttled(nvml, reader, 4)["hw_thermal"] == 0.0


def test_one_slow_call_does_not_cost_the_drivers_throttle_counter(bench: BenchMaker) -> None:
    nvml, reader = bench(), ThrottleReader(3.0)
    raw, durations = 40.0, [0, 4, 0, 0]

    def call(*arguments: Any) -> int:
        nonlocal raw
        seconds = durations.pop(0)
        nvml.clock.advance(seconds)
        raw += seconds
        return int(fields_say({74: (0, "ullVal", int(raw * 1e9))})(*arguments))

    nvml.answer("nvmlDeviceGetFieldValues", call)
    totals = []
    while durations:
        round_ = nvml.round()
        totals.append(reader.read(round_).seconds["sw_power_cap"])
        assert round_.inquiry.failures == []
        nvml.clock.advance(1)
        raw += 1.0
    assert totals == [40.0, 45.0, 46.0, 47.0]


def test_reasons_are_asked_by_their_old_name_where_the_new_one_is_missing(bench: BenchMaker) -> None:
    nvml = bench("dual-a10")
    new = ThrottleReader(3.0).read(nvml.round())
    for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetSupportedClocksEventReasons"):
        nvml.answer(function, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    assert ThrottleReader(3.0).read(nvml.round()).active == new.active
    assert new.active is not None
    assert [reason for reason, active in new.active.items() if active] == ["sw_thermal"]


def test_reasons_are_those_that_the_gpu_supports_and_unknown_ones(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetSupportedClocksEventReasons", says(0x4))
    for bits, active in ((0, False), (0x10_0004, True)):
        nvml.answer("nvmlDeviceGetCurrentClocksEventReasons", says(bits))
        assert ThrottleReader(3.0).read(nvml.round()).active == {"sw_power_cap": active, "unknown": active}


HW_THERMAL = 0x40


class Hot:
    """A GPU whose driver reports reasons and counts them, or does not, second by second."""

    def __init__(self, nvml: Bench, interval_seconds: float = 1.0) -> None:
        nvml.versions = DriverVersions("590.48.01", None, None)
        self._nvml = nvml
        self._interval_seconds = interval_seconds
        self._reader = ThrottleReader(3 * interval_seconds, interval_seconds)
        self._reads = 0
        self.totals: list[float] = []
        self.failures: list[str] = []

    def read(self, bits: int, counted: float, *, field: int = 270, reason: str = "hw_thermal") -> ThrottleReading:
        """The next reading, with these bits and these seconds in the reason's counter."""
        self._nvml.clock.advance(self._interval_seconds if self._reads else 0)
        self._reads += 1
        self._nvml.answer("nvmlDeviceGetCurrentClocksEventReasons", says(bits))
        self._nvml.answer("nvmlDeviceGetFieldValues", fields_say({field: (0, "ullVal", int(counted * 1e9))}))
        round_ = self._nvml.round()
        reading = self._reader.read(round_)
        self.totals.append(reading.seconds[reason])
        self.failures += round_.inquiry.failures
        return reading


def test_a_counter_that_stands_still_beside_its_reason_is_integrated(
    bench: BenchMaker, caplog: pytest.LogCaptureFixture
) -> None:
    hot = Hot(bench())
    for _ in range(60):
        reading = hot.read(HW_THERMAL, 7)
    # The first reading says where it stands, ten more that it stands still.
    assert hot.totals == [7.0] * 11 + [7.0 + second for second in range(1, 50)]
    assert reading.rejected == {"hw_thermal": "stands_still"}
    assert hot.failures == []
    (record,) = (each for each in caplog.records if "is not used" in each.message)
    gpu = {"gpu": 0, "uuid": bench().devices[0].uuid}
    counter = {"reason": "hw_thermal", "cause": "stands_still", "field": 270, "driver": "590.48.01"}
    assert record.__dict__["fields"] == {**gpu, **counter}


@pytest.mark.parametrize(
    ("field", "reason", "bit"),
    [
        *((74, "sw_power_cap", 0x4), (76, "sync_boost", 0x10), (269, "sw_thermal", 0x20)),
        *((270, "hw_thermal", 0x40), (271, "hw_power_brake", 0x80)),
    ],
)
def test_a_counter_is_held_against_the_bit_of_its_reason(bench: BenchMaker, field: int, reason: str, bit: int) -> None:
    hot = Hot(bench())
    for _ in range(20):
        reading = hot.read(bit, 0, field=field, reason=reason)
    assert reading.rejected == {reason: "stands_still"}
    assert hot.totals[-1] > 0


COURSES: Mapping[str, tuple[range, Callable[[int], bool], Callable[[int], float], str, float]] = {
    "nine samples of a minute are too few": (range(240), lambda at: at % 60 in range(3, 12), lambda _: 0, "", 0.0),
    "ten of a minute suffice": (range(120), lambda at: at % 6 == 5, lambda _: 0, "stands_still", 10.5),
    "it moves within the minute": (range(270), lambda _: True, lambda at: (at + 50) // 55, "", 5.0),
    # As on an RTX 2080 SUPER: far below the limit, and the bit is never set.
    "it grows without its bit": (range(300), lambda _: False, lambda at: at * 0.45, "", 299 * 0.45),
    "the driver is loaded anew": (range(60), lambda _: True, lambda at: 500 + at if at < 30 else at - 30, "", 558.0),
    "it outruns time": (range(6), lambda _: False, (10, 11, 500, 900, 1300, 1700).__getitem__, "too_fast", 11.0),
}
"""Seconds, when the reason is reported, what its counter says; why it is rejected, and the total at the end."""


@pytest.mark.parametrize(("seconds", "reported", "counted", "fault", "total"), COURSES.values(), ids=COURSES)
def test_a_counter_is_rejected_only_if_it_is_wrong(  # noqa: PLR0917 - the columns of the table
    bench: BenchMaker,
    seconds: range,
    reported: Callable[[int], bool],
    counted: Callable[[int], float],
    fault: str,
    total: float,
) -> None:
    hot = Hot(bench())
    for at in seconds:
        reading = hot.read(HW_THERMAL if reported(at) else 0, counted(at))
    assert reading.rejected == ({"hw_thermal": fault} if fault else {})
    assert hot.totals == sorted(hot.totals)
    assert hot.totals[-1] == pytest.approx(total, abs=1.0)


@pytest.mark.parametrize(
    ("interval_seconds", "after_seconds"), [(0.1, 10.0), (0.5, 10.0), (2.0, 20.0), (5.0, 50.0), (15.0, 150.0)]
)
def test_slow_sampling_is_given_more_than_a_minute(
    bench: BenchMaker, interval_seconds: float, after_seconds: float
) -> None:
    hot = Hot(bench(), interval_seconds)
    seconds = 0.0
    while not hot.read(HW_THERMAL, 0).rejected:
        seconds += interval_seconds
    assert seconds == pytest.approx(after_seconds, abs=max(1.5, interval_seconds))
