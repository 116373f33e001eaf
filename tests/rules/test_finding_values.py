"""What an alert says was measured: the recorded scenarios have it for every finding that they show."""

from collections.abc import Sequence
from math import nan

import pytest
from tests.finding_values import wrong_in
from tests.parts import some
from tests.recordings import recorded, seconds_of
from tests.rules.cover import COVER, SCENARIOS

from gpu_triage.read.exporter.judgment import GPU_FINDING_SINCE_TIMESTAMP_SECONDS, GPU_FINDING_VALUE
from gpu_triage_simulator import Scenario
from gpu_triage_simulator.history import History, SeriesKey

PLAYED = [*COVER.values(), *(scenario for scenario in SCENARIOS.values() if scenario not in COVER.values())]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", some(PLAYED, tuple(COVER.values())), ids=lambda scenario: scenario.name)
def test_every_finding_of_a_scenario_has_a_value_exactly_where_its_row_measures_one(scenario: Scenario) -> None:
    assert wrong_in(recorded(scenario, seconds=seconds_of(scenario))) == set()


@pytest.mark.parametrize(
    ("code", "values", "wrong"),
    [
        ("thermal.hw", (0.4, 0.5), set()),
        ("thermal.hw", (0.4, nan), {"thermal.hw"}),
        ("thermal.hw", None, {"thermal.hw"}),
        ("gpu.lost", None, set()),
        ("gpu.lost", (nan, 1.0), {"gpu.lost"}),
    ],
)
def test_a_value_that_is_missing_or_one_too_many_is_noticed(
    code: str, values: tuple[float, float] | None, wrong: set[str]
) -> None:
    gpu_labels = (("code", code), ("gpu", "0"), ("uuid", "GPU-a"))
    series: dict[SeriesKey, Sequence[float]] = {
        (GPU_FINDING_SINCE_TIMESTAMP_SECONDS.name, (*gpu_labels, ("severity", "critical"))): (1.0, 1.0)
    }
    if values is not None:
        series[GPU_FINDING_VALUE.name, gpu_labels] = values
    assert wrong_in(History(0.0, 30.0, 2, series, ())) == wrong
