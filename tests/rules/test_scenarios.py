"""Long scenarios through the rules at the usual and the longest scrape interval; what all scenarios show together."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.playbook import NAMES
from tests.rules.playing import OFTEN, SCENARIOS, gpu_minutes, play
from tests.rules.verdict import wanted
from tests.rules.vocabulary import CLASSES

STEPS_SECONDS = (15, 60)
STEPS_OF_LONG_SECONDS = (60,)
LONG_GPU_MINUTES = 100
"""A scenario with more takes half a minute of a CPU; ``make long`` plays it at shorter intervals too."""

EXPECTATIONS = [expectation for scenario in SCENARIOS.values() for expectation in scenario.expectations]
ELSEWHERE = {
    "GpuEccSramThreshold": "test_alone_sick.py: no simulated board counts so many",
    "GpuExporterAbsent": "test_alone_targets.py: a scenario has a target",
    "GpuExporterXidDeaf": "test_alone_targets.py: the simulated kernel log can be read",
    "GpuExportersDown": "test_alone_targets.py: it takes more than one host",
    "GpuDriverVersionDrift": "test_alone.py: it takes two hosts",
    "GpuExporterWebConfigReloadFailed": "test_alone.py: a history has no web server, so no web configuration",
    "GpuTriageWatchdog": "it fires at every step of every scenario, or the scenario fails",
}
"""Alerts that no scenario expects, and where they are shown instead."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in OFTEN])
def test_the_rules_say_of_a_scenario_what_it_expects_and_nothing_else(
    name: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    long = gpu_minutes(SCENARIOS[name]) > LONG_GPU_MINUTES
    play(name, STEPS_OF_LONG_SECONDS if long else STEPS_SECONDS, requires_tool, tmp_path)


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
