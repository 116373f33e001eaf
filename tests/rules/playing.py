"""Every scenario, and how the rules fare in it at one interval.

Three files of tests play them, one an interval, so that several workers share what takes minutes.
"""

from __future__ import annotations

from pathlib import Path

from tests.conftest import RequiresTool
from tests.rules.cases import every_name, load_any
from tests.rules.examine import examine
from tests.rules.rulefile import rule_files
from tests.rules.verdict import disagreements

SCENARIOS = {name: load_any(name) for name in every_name()}


def play(name: str, step_seconds: float, requires_tool: RequiresTool, directory: Path) -> None:
    """Fail unless the rules say of a scenario what it expects, at the times it says, and nothing else ever.

    Args:
        name: of the scenario.
        step_seconds: scrape and evaluation interval; the rules are for 5 to 60.
        requires_tool: finds promtool.
        directory: for promtool's input.
    """
    scenario = SCENARIOS[name]
    promtool = requires_tool("promtool")
    examination = examine(scenario, rule_files(), step_seconds=step_seconds, promtool=promtool, directory=directory)
    found = disagreements(examination, scenario.expectations)
    assert not found, "\n".join([f"{name} every {step_seconds} s:", *found])
