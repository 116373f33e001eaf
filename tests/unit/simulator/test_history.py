"""Histories of simulated hosts: what a scraper would have kept."""

import io
import math

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.gathered import every

from gpu_triage.errors import ConfigError
from gpu_triage.read.metrics.metric import Kind
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.history import History, SeriesKey, record_history
from gpu_triage_simulator.openmetrics import write_openmetrics

pytestmark = pytest.mark.slow


def text_of(history: History) -> str:
    stream = io.StringIO()
    write_openmetrics(history, stream)
    return stream.getvalue()


def one(history: History, name: str, **labels: str) -> list[float]:
    found = [key for key in history.series if key[0] == name and labels.items() <= dict(key[1]).items()]
    assert len(found) == 1, found
    return list(history.series[found[0]])


@pytest.fixture(scope="module")
def history() -> History:
    return record_history(load_scenario("dual-a10"), seconds=240, step_seconds=15)


def test_the_first_and_the_last_instant_are_scraped(history: History) -> None:
    assert history.steps == 17
    assert {len(values) for values in history.series.values()} == {17}
    assert one(history, "up") == [1.0] * 17


def test_every_series_bears_the_labels_of_its_target() -> None:
    target = {"instance": "node-1:9836", "rack": "r2"}
    history = record_history(load_scenario("rtx-4070-ti-super"), seconds=60, step_seconds=30, target=target)
    wanted = {"job": "gpu-triage", **target}.items()
    assert all(wanted <= dict(labels).items() for _, labels in every(history.series))


def test_openmetrics_says_what_was_recorded(history: History) -> None:
    parsed: dict[SeriesKey, dict[float, float]] = {}
    kinds = {}
    families = text_string_to_metric_families(text_of(history))  # type: ignore[no-untyped-call]  # not annotated there
    for family in families:
        for sample in family.samples:
            kinds[sample.name] = family.type
            key = (sample.name, tuple(sorted(sample.labels.items())))
            parsed.setdefault(key, {})[float(sample.timestamp)] = sample.value
    stamps = [history.start_seconds + i * history.step_seconds for i in range(history.steps)]
    recorded = {
        key: {stamp: value for stamp, value in zip(stamps, values, strict=True) if not math.isnan(value)}
        for key, values in history.series.items()
    }
    assert parsed == recorded
    assert kinds["gpu_energy_joules_total"] == Kind.COUNTER.value
    assert kinds["gpu_power_watts"] == Kind.GAUGE.value


def test_a_history_is_the_same_byte_for_byte_however_often_it_is_made(history: History) -> None:
    again = record_history(load_scenario("dual-a10"), seconds=240, step_seconds=15)
    assert text_of(again) == text_of(history)


def test_the_wall_clock_starts_where_it_is_told() -> None:
    start = 1_700_000_000.0
    history = record_history(load_scenario("h100-8-bad-night"), seconds=60, step_seconds=60, start_seconds=start)
    seen = [v for key, values in history.series.items() if key[0].endswith("_timestamp_seconds") for v in values]
    assert seen
    assert all(math.isnan(value) or start - 864_000 <= value <= start + 60 for value in seen)


@pytest.mark.parametrize(("seconds", "step"), [(0.0, 15.0), (60.0, 0.0), (60.0, -1.0), (math.inf, 1.0), (10.0, 60.0)])
def test_times_that_make_no_history_are_refused(seconds: float, step: float) -> None:
    with pytest.raises(ConfigError, match="has no two scrapes"):
        record_history(load_scenario("no-driver"), seconds=seconds, step_seconds=step)


def test_a_history_too_large_to_hold_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="take a longer step or a shorter time"):
        record_history(load_scenario("no-driver"), seconds=1e9, step_seconds=1)
