"""Histories of simulated hosts, and what happens to those who look at one."""

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.rig import only, scenario_with

from gpu_triage.errors import ConfigError, ScenarioError
from gpu_triage.read.metrics.metric import Kind
from gpu_triage_simulator import Scenario, load_scenario
from gpu_triage_simulator.history import History, SeriesKey, history_config, record_history, write_openmetrics

pytestmark = pytest.mark.slow

STEP = 30.0
LEAN = only("power", "activity", "ecc", "identity")


def history_of(scenario: Scenario, minutes: int = 10) -> History:
    config = replace(history_config(scenario, STEP), collectors=LEAN.collectors)
    return record_history(scenario, seconds=minutes * 60, step_seconds=STEP, config=config)


def values(history: History, name: str, **labels: str) -> list[float]:
    """The one series' values, NaN as None would be: compare with `absent`."""
    found = [key for key in history.series if key[0] == name and labels.items() <= dict(key[1]).items()]
    assert len(found) == 1, found
    return list(history.series[found[0]])


def at(history: History, minute: float, name: str, **labels: str) -> float | None:
    """A value at a minute; None where the scrape lacks the series."""
    value = values(history, name, **labels)[round(minute * 60 / STEP)]
    return None if math.isnan(value) else value


def seen_at(history: History, minute: float) -> set[str]:
    """Names of what the scrape of a minute brought."""
    step = round(minute * 60 / STEP)
    return {key[0] for key, column in history.series.items() if not math.isnan(column[step])}


def test_a_restart_resets_what_the_exporter_counts_and_not_what_the_driver_does(tmp_path: Path) -> None:
    history = history_of(scenario_with(tmp_path, "dual-a10", 'at = "5m"\neffect = { kind = "exporter_restart" }'))
    busy = values(history, "gpu_busy_seconds_total", gpu="0")
    energy = values(history, "gpu_energy_joules_total", gpu="0")
    step = round(300 / STEP)
    assert busy[step - 1] > 200
    assert busy[step] < 10
    assert energy == sorted(energy)
    assert values(history, "up") == [1.0] * history.steps


def test_a_gap_leaves_nothing_an_exporter_that_is_down_only_up_and_released_gpus_come_back(tmp_path: Path) -> None:
    events = (
        f'at = "{first}m"\nuntil = "{first + 3}m"\neffect = {{ kind = "{kind}" }}'
        for first, kind in ((3, "scrape_gap"), (8, "exporter_down"), (13, "release"))
    )
    history = history_of(scenario_with(tmp_path, "dual-a10", *events), minutes=17)

    def each(name: str, *minutes: float, **labels: str) -> list[float | None]:
        return [at(history, minute, name, **labels) for minute in minutes]

    assert seen_at(history, 2.5) == seen_at(history, 6) != set()
    assert {minute for minute in range(18) if not seen_at(history, minute)} == {3, 4, 5}
    before, after = each("gpu_busy_seconds_total", 2.5, 6, gpu="0")
    assert (after or 0) - (before or 0) > 180  # the exporter ran on
    assert seen_at(history, 8) == seen_at(history, 10.5) == {"up"}
    assert each("up", 7.5, 8, 10.5, 11) == [1.0, 0.0, 0.0, 1.0]
    assert at(history, 11, "gpu_busy_seconds_total", gpu="0") == pytest.approx(0.0, abs=1.0)
    assert each("gpu_exporter_gpus_released", 12.5, 13.5, 15.5, 16.5) == [0, 1, 1, 0]
    assert "gpu_power_watts" not in seen_at(history, 14)
    assert "gpu_power_watts" in seen_at(history, 16.5)


def with_tables(tmp_path: Path, tables: str) -> Scenario:
    return scenario_with(tmp_path, "dual-a10", f'at = 60\neffect = {{ kind = "exporter_restart" }}\n{tables}')


def test_a_scenario_names_labels_of_its_target_and_options_of_its_exporter(tmp_path: Path) -> None:
    tables = '[target]\nlabels = { workload = "serving" }\n[exporter]\noptions = { "expect.gpu-count" = 3 }'
    history = history_of(with_tables(tmp_path, tables), minutes=1)
    assert all(("workload", "serving") in labels for _, labels in history.series)
    assert at(history, 1, "gpu_devices", source="expected") == 3.0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ('options = { "expect.gpu-cuont" = 3 }', ConfigError, "did you mean expect.gpu-count"),
        ('options = { "expect.gpu-count" = "many" }', ConfigError, "exporter.options.expect.gpu-count"),
        ('options = { "simulate" = "h100-8" }', ConfigError, "not an option that a scenario can set"),
        ('options = { "expect.gpu-count" = {} }', ScenarioError, "write a value"),
        ('option = { "expect.gpu-count" = 3 }', ScenarioError, "did you mean options"),
    ],
)
def test_options_are_read_strictly(tmp_path: Path, options: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        history_config(with_tables(tmp_path, f"[exporter]\n{options}"), 60)


@pytest.mark.parametrize(("step", "fast"), [(1, 1), (15, 15), (20, 10), (60, 15), (300, 15)])
def test_no_history_is_sampled_finer_than_needed_nor_coarser_than_the_drivers_memory(step: float, fast: float) -> None:
    config = history_config(load_scenario("no-driver"), step)
    assert config.sample_fast_seconds == fast
    assert config.sample_fast_seconds <= config.sample_medium_seconds <= config.sample_slow_seconds


@pytest.fixture(scope="module")
def history() -> History:
    return record_history(load_scenario("dual-a10"), seconds=240, step_seconds=15)


def test_openmetrics_says_what_was_recorded(history: History) -> None:
    parsed: dict[SeriesKey, dict[float, float]] = {}
    kinds = {}
    stream = io.StringIO()
    write_openmetrics(history, stream)
    families = text_string_to_metric_families(stream.getvalue())  # type: ignore[no-untyped-call]  # not annotated there
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
