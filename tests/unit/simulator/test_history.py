"""Histories of simulated hosts: what a scraper would have kept."""

import io
import math

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

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
