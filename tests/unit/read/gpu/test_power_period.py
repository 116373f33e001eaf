"""The period of power: of series made by hand, and of the samples that a driver keeps."""

import math
import random
from collections.abc import Sequence
from typing import Any, Final

import pynvml
import pytest
from tests.nvml_bench import Bench, BenchMaker, shown
from tests.rig import rig
from tests.rules.cases import FOLDER

from gpu_triage.machine import Moment
from gpu_triage.options.config import Config
from gpu_triage.read.gpu.activity import ActivityReader
from gpu_triage.read.gpu.power import PERIOD_PARTS, POWER_PERIOD, PowerPeriodReader, PowerPeriodReading, repetition
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage_simulator import Scenario, nvml_load
from gpu_triage_simulator.scenario_file import read_scenario
from gpu_triage_simulator.schema import read_toml

SAMPLES: Final = "nvmlDeviceGetSamples"
NONE: Final = PowerPeriodReading()
TOTAL_POWER: Final = 0
COMPUTE_SECONDS: Final = 3.4
EXCHANGE_SECONDS: Final = 1.6
STEP_SECONDS: Final = COMPUTE_SECONDS + EXCHANGE_SECONDS


def noise(watts: float, seed: int = 0, values: int = PERIOD_PARTS) -> list[float]:
    drawn = random.Random(seed)
    return [drawn.gauss(300.0, watts) for _ in range(values)]


def square(period: float, watts: float = 300.0, share: float = 0.6, values: int = PERIOD_PARTS) -> list[float]:
    """Means over each value of power that is higher by `watts` for a share of each period."""
    fine = 10
    highs = [watts * ((step / fine / period) % 1.0 < share) for step in range(values * fine)]
    return [sum(highs[at : at + fine]) / fine for at in range(0, len(highs), fine)]


def wave(period: float) -> list[float]:
    return [300.0 + 100.0 * math.sin(2.0 * math.pi * part / period) for part in range(PERIOD_PARTS)]


def added(*series: Sequence[float]) -> list[float]:
    return [sum(values) for values in zip(*series, strict=True)]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("period", [10.0, 13.3, 20.0, 40.7, 66.6, 79.0])
def test_the_period_of_a_step_is_found(period: float, share: float) -> None:
    found = repetition(added(square(period, share=share), noise(30.0)))
    assert found is not None
    assert found[0] == pytest.approx(period, rel=0.02)
    assert 0.6 < found[1] <= 1.0


@pytest.mark.parametrize(
    ("series", "period"),
    [
        (square(7.5, share=0.5), 7.5),  # twice that is a whole number of values, and repeats better
        (added(square(40.0), square(10.0, watts=350.0)), 40.0),  # micro-batches of a step
    ],
)
def test_the_shortest_period_that_is_nearly_the_strongest_counts(series: list[float], period: float) -> None:
    found = repetition(added(series, noise(10.0)))
    assert found is not None
    assert found[0] == pytest.approx(period, rel=0.02)


@pytest.mark.parametrize(
    "series",
    [
        [300.0] * PERIOD_PARTS,
        [0.1] * PERIOD_PARTS,  # no exact number: its mean may differ by rounding
        *(noise(30.0, seed) for seed in range(20)),
        [300.0 + part for part in range(PERIOD_PARTS)],
        [-200.0] * 120 + square(20.0, values=PERIOD_PARTS - 120),  # the job has just started
        square(20.0, values=120) + square(28.0, values=PERIOD_PARTS - 120),  # its steps became longer
        [100.0 * (50 <= part < 60 or 120 <= part < 130) for part in range(PERIOD_PARTS)],  # two checkpoints
        [100.0 * (10 <= part < 30 or 85 <= part < 105) for part in range(PERIOD_PARTS)],
        wave(2.0),
        wave(2.5),  # faster than the values: every second time, it comes back to the same one
    ],
)
def test_what_does_not_repeat_has_no_period(series: list[float]) -> None:
    assert repetition(series) is None


def test_a_period_that_changed_is_known_once_the_old_one_has_passed() -> None:
    found = [repetition(added(square(20.0)[:kept] + square(28.0)[kept:], noise(10.0))) for kept in (240, 200, 40, 0)]
    assert [each and round(each[0]) for each in found] == [20, 20, 28, 28]


@pytest.mark.parametrize(("period", "known"), [(4.0, False), (4.4, False), (5.0, True)])
def test_a_period_has_five_parts(period: float, known: bool) -> None:  # noqa: FBT001 - a column
    assert (repetition(wave(period)) is not None) == known


@pytest.mark.parametrize(("period", "known"), [(PERIOD_PARTS / 3, True), (PERIOD_PARTS / 3 + 1, False)])
def test_a_period_is_at_most_a_third_of_the_window(period: float, known: bool) -> None:  # noqa: FBT001 - a column
    assert (repetition(square(period)) is not None) == known


def test_a_period_has_a_strength_of_a_half() -> None:
    """The more noise, the weaker it is, until it is below a half."""
    found = [repetition(added(square(20.0), noise(watts))) for watts in range(0, 400, 2)]
    strengths = [each[1] for each in found if each is not None]
    assert found.index(None) == len(strengths) > 10
    assert 0.5 <= min(strengths) == strengths[-1] < 0.51


def job() -> Scenario:
    """Two H100 with a job that spends 3.4 of 5 s computing."""
    base = read_toml(FOLDER / "base" / "two-h100.toml")
    rank = {"gpus": [0, 1], "compute_seconds": COMPUTE_SECONDS}
    return read_scenario(
        {**base, "name": "job", "job": [{"exchange_seconds": EXCHANGE_SECONDS, "ranks": [rank]}]}, "job.toml"
    )


def readings(nvml: Bench, reader: PowerPeriodReader, since: int, until: int) -> list[PowerPeriodReading]:
    return [reader.read(nvml.at(second)) for second in range(since, until)]


def test_the_step_of_a_job_is_the_period_of_its_power(bench: BenchMaker) -> None:
    nvml, reader = bench(job()), PowerPeriodReader()
    found = readings(nvml, reader, 20, 200)
    # The ring has the 20 s before the first look, too.
    assert found[:99] == [NONE] * 99
    for reading in found[105:]:
        assert reading.seconds == pytest.approx(STEP_SECONDS, rel=0.02)
        assert reading.strength is not None
        assert reading.strength > 0.8


def test_nothing_is_known_of_two_minutes_with_a_gap(bench: BenchMaker) -> None:
    """The ring has the last 20 s: a look after 19 s misses nothing, one after 25 s does."""
    nvml, reader = bench(job()), PowerPeriodReader()
    readings(nvml, reader, 0, 150)
    assert reader.read(nvml.at(168)) != NONE
    found = readings(nvml, reader, 193, 340)
    assert found[:100] == [NONE] * 100
    assert NONE not in found[110:]


def test_after_a_step_of_the_wall_clock_two_minutes_are_collected_anew(bench: BenchMaker) -> None:
    nvml, reader = bench(job()), PowerPeriodReader()
    readings(nvml, reader, 0, 150)
    gpu = nvml.at(150)
    assert reader.read(gpu) != NONE
    assert reader.read(nvml.round(at=Moment(gpu.at.monotonic, gpu.at.wall - 1.5))) == NONE
    found = readings(nvml, reader, 151, 280)
    assert found[:99] == [NONE] * 99
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


@pytest.mark.parametrize(
    ("config", "kinds"), [(Config(), {1}), (Config(collectors={"power_period": True}), {TOTAL_POWER, 1})]
)
def test_power_is_sampled_only_on_request(monkeypatch: pytest.MonkeyPatch, config: Config, kinds: set[int]) -> None:
    asked, answer = set(), nvml_load._recent_samples

    def recent(device: Any, kind: int, *arguments: Any) -> list[tuple[int, int]]:
        asked.add(kind)
        return answer(device, kind, *arguments)

    monkeypatch.setattr(nvml_load, "_recent_samples", recent)
    with rig(job(), config) as running:
        running.run(2)
    assert asked == kinds


def test_both_metrics_are_published(bench: BenchMaker) -> None:
    nvml, reader = bench(job()), PowerPeriodReader()
    reading = readings(nvml, reader, 0, 150)[-1]
    lines = shown(POWER_PERIOD.render(reading, GpuLabels("0", "GPU-a")))
    labels = '{gpu="0",uuid="GPU-a"}'
    assert lines == [
        f"gpu_power_period_seconds{labels} {reading.seconds!r}",
        f"gpu_power_period_strength_ratio{labels} {reading.strength!r}",
    ]
    assert list(POWER_PERIOD.render(NONE, GpuLabels("0", "GPU-a"))) == []
