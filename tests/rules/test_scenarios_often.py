"""Small scenarios through the rules at the shortest scrape interval too, of one recording; with --long, all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.playing import OFTEN, SCENARIOS, play

STEPS_SECONDS = (5, 15, 60)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a scenario; the longest only when asked for."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", tuple(SCENARIOS) if metafunc.config.getoption("--long") else OFTEN)


@pytest.mark.timeout(900)
def test_the_rules_say_of_a_scenario_what_it_expects_and_nothing_else(
    name: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    play(name, STEPS_SECONDS, requires_tool, tmp_path)


def test_continuous_integration_plays_a_dozen_of_the_scenarios() -> None:
    assert len(OFTEN) >= 12
