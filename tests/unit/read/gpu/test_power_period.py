"""The period of power: of series made by hand, and of the samples that a driver keeps."""

import math
import random
from collections.abc import Sequence
from typing import Any, Final

import pynvml
import pytest
from tests.nvml_bench import Bench, BenchMaker, shown
from tests.rules.cases import FOLDER

from gpu_triage.machine import Moment
from gpu_triage.read.gpu.activity import ActivityReader
from gpu_triage.read.gpu.power import PERIOD_PARTS, POWER_PERIOD, PowerPeriodReader, PowerPeriodReading, repetition
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage_simulator import Scenario
from gpu_triage_simulator.scenario_file import read_scenario
from gpu_triage_simulator.schema import read_toml

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
    lines = shown(POWER_PERIOD.render(PowerPeriodReading(5.0, 0.9), GpuLabels("0", "GPU-a")))
    labels = '{gpu="0",uuid="GPU-a"}'
    assert lines == [f"gpu_power_period_seconds{labels} 5.0", f"gpu_power_period_strength_ratio{labels} 0.9"]
    assert list(POWER_PERIOD.render(NONE, GpuLabels("0", "GPU-a"))) == []


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
