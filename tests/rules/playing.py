"""Every scenario, and what the rules say of it at the scrape intervals that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.conftest import RequiresTool
from tests.rules.cases import every_name, load_any
from tests.rules.cover import cover
from tests.rules.examine import CLASSES, FIRING, UNDECIDED, examine
from tests.rules.pruned import rules_of_alerts
from tests.rules.verdict import disagreements

SCENARIOS = {name: load_any(name) for name in every_name()}
COVER = cover(SCENARIOS)


def play(name: str, steps_seconds: Sequence[float], requires_tool: RequiresTool, directory: Path) -> None:
    """Fail unless the rules say of a scenario what it expects, at the times it says, and nothing else ever.

    Args:
        name: of the scenario.
        steps_seconds: scrape intervals, multiples of the first; the rules are for 5 to 60.
        requires_tool: finds promtool.
        directory: for promtool's input.
    """
    scenario = SCENARIOS[name]
    promtool = requires_tool("promtool")
    rules = rules_of_alerts(directory, (FIRING, UNDECIDED, CLASSES))
    examinations = examine(scenario, rules, steps_seconds=steps_seconds, promtool=promtool, directory=directory)
    for step_seconds, examination in zip(steps_seconds, examinations, strict=True):
        found = disagreements(examination, scenario.expectations)
        assert not found, "\n".join([f"{name} every {step_seconds} s:", *found])
