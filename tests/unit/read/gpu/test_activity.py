"""Busy time, from the samples that the driver keeps or from polls."""

from typing import Any

import pynvml
import pytest
from tests.nvml_bench import Bench, BenchMaker, fills

from gpu_triage.machine import Moment
from gpu_triage.read.gpu.activity import ActivityReader

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


def busy_after(nvml: Bench, reader: ActivityReader, second: float, wall: float | None = None) -> float:
    at = Moment(monotonic=500.0 + second, wall=WALL + second if wall is None else wall)
    seconds = reader.read(nvml.round(at=at)).busy_seconds
    assert seconds is not None
    return seconds


def test_in_mig_mode_there_is_no_busy_time(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetUtilizationRates", pynvml.NVML_ERROR_NOT_SUPPORTED)
    reading = ActivityReader(3.0).read(nvml.round())
    assert (reading.sm_utilization_ratio, reading.busy_seconds, reading.observed_seconds) == (None, None, None)


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


def observed_after(nvml: Bench, reader: ActivityReader, second: float) -> tuple[float, float]:
    """Busy seconds, and the seconds in which that was observed."""
    reading = reader.read(nvml.round(at=Moment(monotonic=500.0 + second, wall=WALL + second)))
    assert reading.busy_seconds is not None
    assert reading.observed_seconds is not None
    return reading.busy_seconds, reading.observed_seconds


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
