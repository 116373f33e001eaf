"""Scenarios of the rules' own: a host that is described once, and what happens to it in a few lines.

A case is a scenario file that begins with `base = "…"`, a file in cases/base. Its tables stand over those of the base,
key by key; its events and expectations are its own.
"""

from pathlib import Path
from typing import Any

from gpu_triage_simulator import Scenario, list_scenarios, load_scenario
from gpu_triage_simulator.scenario_file import read_scenario
from gpu_triage_simulator.schema import read_toml

FOLDER = Path(__file__).parent / "cases"


def case_names() -> tuple[str, ...]:
    return tuple(path.stem for path in sorted(FOLDER.glob("*.toml")))


def load_case(name: str) -> Scenario:
    """The case of this name.

    Raises:
        ScenarioError: it, or its base, is wrong.
    """
    path = FOLDER / f"{name}.toml"
    case = read_toml(path)
    base = read_toml(FOLDER / "base" / f"{case.pop('base')}.toml")
    return read_scenario({**base, **_over(base, case), "name": name}, path.name)


def load_any(name: str) -> Scenario:
    return load_case(name) if name in case_names() else load_scenario(name)


def every_name() -> tuple[str, ...]:
    return (*(summary.name for summary in list_scenarios()), *case_names())


def _over(base: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    return {
        key: {**base[key], **value} if isinstance(value, dict) and isinstance(base.get(key), dict) else value
        for key, value in case.items()
    }
