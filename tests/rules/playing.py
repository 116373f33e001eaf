"""Every scenario, and what the rules say of it at the scrape intervals that they are for.

Two files of tests play them, so that several workers share what takes minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.conftest import RequiresTool
from tests.rules.cases import every_name, load_any
from tests.rules.examine import CLASSES, FIRING, UNDECIDED, examine
from tests.rules.pruned import rules_of_alerts
from tests.rules.verdict import disagreements

from gpu_triage.simulator import Scenario

MOST_GPU_MINUTES = 84
"""A scenario with more takes minutes of a CPU at the shortest scrape interval; ``make long`` plays those too."""


def gpu_minutes(scenario: Scenario) -> float:
    """What it costs to play a scenario, roughly: GPUs times minutes up to its last expectation."""
    return len(scenario.gpus) * max(each.at for each in scenario.expectations) / 60


SCENARIOS = {name: load_any(name) for name in every_name()}
OFTEN = tuple(name for name, scenario in SCENARIOS.items() if gpu_minutes(scenario) <= MOST_GPU_MINUTES)
"""Scenarios that there is time to look at every five seconds."""


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
