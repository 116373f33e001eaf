"""Every scenario through the rules at the shortest supported scrape interval."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.playing import SCENARIOS, play

from gpu_triage.simulator import Scenario

STEPS_SECONDS = (5,)
MOST_GPU_MINUTES = 100
"""More take minutes of a CPU each; ``make long`` plays them too."""


def is_small(scenario: Scenario) -> bool:
    """Whether there is time to look at it every five seconds."""
    minutes = max(expectation.at for expectation in scenario.expectations) / 60
    return len(scenario.gpus) * minutes <= MOST_GPU_MINUTES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a scenario; the longest only when asked for."""
    if "name" in metafunc.fixturenames:
        every = metafunc.config.getoption("--long")
        metafunc.parametrize("name", [name for name, each in SCENARIOS.items() if every or is_small(each)])


@pytest.mark.timeout(900)
def test_the_rules_say_of_a_scenario_what_it_expects_and_nothing_else(
    name: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    play(name, STEPS_SECONDS, requires_tool, tmp_path)


def test_continuous_integration_plays_a_dozen_of_the_scenarios() -> None:
    assert sum(is_small(scenario) for scenario in SCENARIOS.values()) >= 12
