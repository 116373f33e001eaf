"""Every scenario through the rules: what it expects fires, at the time it says, and nothing else ever does."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_triage.simulator import list_scenarios, load_scenario
from tests.conftest import RequiresTool
from tests.rules.examine import examine
from tests.rules.rulefile import rule_files
from tests.rules.verdict import disagreements

NAMES = [summary.name for summary in list_scenarios()]


@pytest.mark.parametrize("step_seconds", [5, 15, 60])
@pytest.mark.parametrize("name", NAMES)
def test_the_rules_say_of_a_scenario_what_it_expects_and_nothing_else(
    name: str, step_seconds: float, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    scenario = load_scenario(name)
    examination = examine(
        scenario,
        rule_files(),
        step_seconds=step_seconds,
        promtool=requires_tool("promtool"),
        directory=tmp_path,
    )
    found = disagreements(examination, scenario.expectations)
    assert not found, "\n".join([f"{name} every {step_seconds} s:", *found])
