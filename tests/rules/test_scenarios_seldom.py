"""Every scenario through the rules at the longest supported scrape interval."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.playing import SCENARIOS, play

STEP_SECONDS = 60


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_rules_say_of_a_scenario_what_it_expects_and_nothing_else(
    name: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    play(name, STEP_SECONDS, requires_tool, tmp_path)
