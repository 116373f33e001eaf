"""The reader of throttle reasons: the driver's counters where it has them, polls where it has not."""

from collections.abc import Callable
from typing import Any

import pynvml
import pytest
from tests.nvml_bench import Bench, BenchMaker, fields_say, says

from gpu_triage.driver.nvml.session import DriverVersions
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL, ThrottleReader, ThrottleReading, counter_fields
from gpu_triage_simulator import VirtualClock

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
        ("535.183.01", NO_SLOWDOWN_IDS),
        ("570.124.06", NO_SLOWDOWN_IDS),
        ("575.51", EARLY_IDS),
        ("575.51.03", EARLY_IDS),
        ("580.65.06", EARLY_IDS),
        ("580.81", EARLY_IDS),
        ("580.82", LATE_IDS),
        ("580.82.07", LATE_IDS),
        ("590.44.01", LATE_IDS),
        (None, NO_SLOWDOWN_IDS),
        ("", NO_SLOWDOWN_IDS),
        ("junk", NO_SLOWDOWN_IDS),
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


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, False), (1.0, True)])
def test_what_is_0_on_most_cards_is_not_a_series_of_each(*, seconds: float, shown: bool) -> None:
    default_samples = GPU_THROTTLE_SECONDS_TOTAL.default_samples
    assert default_samples is not None
    assert default_samples(GPU_THROTTLE_SECONDS_TOTAL.sample(seconds, "0", "GPU-a", "reliability")) is shown
    assert default_samples(GPU_THROTTLE_SECONDS_TOTAL.sample(seconds, "0", "GPU-a", "hw_thermal"))


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
HOT_DRIVER = DriverVersions("590.48.01", None, None)


class Hot:
    """A GPU whose driver reports reasons and counts them, or does not, second by second."""

    def __init__(self, nvml: Bench, interval_seconds: float = 1.0) -> None:
        nvml.versions = HOT_DRIVER
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
        (74, "sw_power_cap", 0x4),
        (76, "sync_boost", 0x10),
        (269, "sw_thermal", 0x20),
        (270, "hw_thermal", 0x40),
        (271, "hw_power_brake", 0x80),
    ],
)
def test_a_counter_is_held_against_the_bit_of_its_reason(bench: BenchMaker, field: int, reason: str, bit: int) -> None:
    hot = Hot(bench())
    for _ in range(20):
        reading = hot.read(bit, 0, field=field, reason=reason)
    assert reading.rejected == {reason: "stands_still"}
    assert hot.totals[-1] > 0


@pytest.mark.parametrize(
    ("seconds", "reported", "rejected"),
    [
        # Nine samples of a minute, and ten that are spread over one.
        pytest.param(240, lambda second: second % 60 in range(3, 12), {}, marks=pytest.mark.slow),
        (120, lambda second: second % 6 == 5, {"hw_thermal": "stands_still"}),
    ],
)
def test_ten_samples_suffice(
    bench: BenchMaker, seconds: int, reported: Callable[[int], bool], rejected: dict[str, str]
) -> None:
    hot = Hot(bench())
    for second in range(seconds):
        reading = hot.read(HW_THERMAL if reported(second) else 0, 0)
    assert reading.rejected == rejected
    assert (hot.totals[-1] > 9) == bool(rejected)


@pytest.mark.slow
def test_a_counter_that_moved_within_the_minute_is_the_source(bench: BenchMaker) -> None:
    hot = Hot(bench())
    for second in range(270):
        reading = hot.read(HW_THERMAL, (second + 50) // 55)
    assert reading.rejected == {}
    assert hot.totals[-1] == 5.0


def test_a_counter_that_grows_without_its_bit_stays_the_source(bench: BenchMaker) -> None:
    # As on an RTX 2080 SUPER: far below the limit, and the bit is never set.
    hot = Hot(bench())
    for second in range(300):
        reading = hot.read(0, second * 0.45, field=74, reason="sw_power_cap")
    assert reading.rejected == {}
    assert hot.totals[-1] == pytest.approx(299 * 0.45)


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


def test_a_driver_that_is_loaded_anew_resets_no_total_and_no_verdict_of_a_counter(bench: BenchMaker) -> None:
    hot = Hot(bench())
    for second in range(30):
        hot.read(HW_THERMAL, 500 + second)
    for second in range(30):
        reading = hot.read(HW_THERMAL, second)
    assert hot.totals == sorted(hot.totals)
    assert reading.rejected == {}
    assert hot.totals[-1] == pytest.approx(558.0, abs=2)


def test_a_counter_that_outruns_time_is_named_with_that_cause(bench: BenchMaker) -> None:
    hot = Hot(bench())
    for counted in (10, 11, 500, 900, 1300, 1700):
        reading = hot.read(0, counted)
    assert reading.rejected == {"hw_thermal": "too_fast"}
