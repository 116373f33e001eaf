"""Every scenario through the rules: what it expects fires, at the time it says, and nothing else ever does."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.cases import every_name, load_any
from tests.rules.examine import examine
from tests.rules.playbook import NAMES
from tests.rules.rulefile import rule_files
from tests.rules.verdict import disagreements, wanted
from tests.rules.vocabulary import CLASSES

from gpu_triage.simulator import Scenario

SCENARIOS = {name: load_any(name) for name in every_name()}
EXPECTATIONS = [expectation for scenario in SCENARIOS.values() for expectation in scenario.expectations]

STEPS_SECONDS = (5, 15, 60)
"""Both ends of the scrape intervals that the rules are for, and the usual one."""
MOST_GPU_MINUTES_AT_FIVE_SECONDS = 120
"""More take minutes of a CPU each; ``make long`` plays them too."""

ELSEWHERE = {
    "GpuDriverVersionDrift": "test_alone.py: it takes two hosts",
    "GpuExporterWebConfigReloadFailed": "test_alone.py: a history has no web server, so no web configuration",
    "GpuTriageWatchdog": "it fires at every step of every scenario, or the scenario fails",
}
"""Alerts that no scenario expects, and where they are shown instead."""


def is_small(scenario: Scenario) -> bool:
    """Whether there is time to look at it every five seconds."""
    minutes = max(expectation.at for expectation in scenario.expectations) / 60
    return len(scenario.gpus) * minutes <= MOST_GPU_MINUTES_AT_FIVE_SECONDS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a scenario and interval; the longest at 5 s only when asked for."""
    if "step_seconds" in metafunc.fixturenames:
        every = metafunc.config.getoption("--long")
        runs = [(name, step) for step in STEPS_SECONDS for name in SCENARIOS]
        runs = [(name, step) for name, step in runs if every or step > min(STEPS_SECONDS) or is_small(SCENARIOS[name])]
        metafunc.parametrize(("name", "step_seconds"), runs)


@pytest.mark.timeout(600)
def test_the_rules_say_of_a_scenario_what_it_expects_and_nothing_else(
    name: str, step_seconds: float, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    scenario = SCENARIOS[name]
    promtool = requires_tool("promtool")
    examination = examine(scenario, rule_files(), step_seconds=step_seconds, promtool=promtool, directory=tmp_path)
    found = disagreements(examination, scenario.expectations)
    assert not found, "\n".join([f"{name} every {step_seconds} s:", *found])


def test_every_alert_fires_in_some_scenario() -> None:
    fired = {wanted(alert).labels["alertname"] for expectation in EXPECTATIONS for alert in expectation.alerts}
    assert NAMES - fired == set(ELSEWHERE)


def test_every_alert_is_nearly_met_in_a_scenario_in_which_it_stays_quiet() -> None:
    missed = {name for expectation in EXPECTATIONS for name in expectation.near_misses}
    assert NAMES - missed == set(ELSEWHERE)


def test_scenarios_name_no_alert_that_does_not_exist() -> None:
    named = {wanted(alert).labels["alertname"] for expectation in EXPECTATIONS for alert in expectation.alerts}
    missed = {name for expectation in EXPECTATIONS for name in expectation.near_misses}
    assert (named | missed) - NAMES == set()


def test_every_class_of_bottleneck_is_seen() -> None:
    seen = {bottleneck for expectation in EXPECTATIONS for bottleneck in expectation.bottleneck.values()}
    assert set(CLASSES) - seen == set()
