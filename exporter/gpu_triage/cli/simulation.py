"""The only importer of the simulator, beside its command; both are loaded when needed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from gpu_triage.errors import ConfigError
from gpu_triage.log import fields
from gpu_triage.machine import SteppedClock
from gpu_triage.options.config import Config, Setting
from gpu_triage.options.values import show_duration

if TYPE_CHECKING:
    from gpu_triage_simulator import SimulatedMachine

log = logging.getLogger(__name__)

_AFTERMATH_SECONDS: Final = 3600.0
"""How long after its last event a scenario can still be entered: findings wait and hold for minutes."""


def scenario_options(name: str) -> Mapping[str, Setting]:
    """The options of the exporter that a scenario sets; raises ScenarioError if there is no such scenario."""
    from gpu_triage_simulator import load_scenario  # noqa: PLC0415 - see above

    return load_scenario(name).exporter_options


def simulated(config: Config, stack: ExitStack, clock: SteppedClock | None = None) -> SimulatedMachine:
    """The host of the scenario that a configuration names, from ``--simulate-at`` on.

    It runs on this virtual clock, or else at its pace. Raises ConfigError if it would start long after its last event.
    """
    from gpu_triage_simulator import FastClock, load_scenario, simulated_machine  # noqa: PLC0415 - see above

    assert config.simulate is not None  # noqa: S101 - checked by the callers
    scenario, begin = load_scenario(config.simulate), config.simulate_at_seconds
    latest = scenario.last_seconds + _AFTERMATH_SECONDS
    if begin > latest:
        raise ConfigError(
            f"--simulate-at {show_duration(begin)}: nothing happens in {scenario.name} after "
            f"{show_duration(scenario.last_seconds)}; write {show_duration(latest)} or less"
        )
    pace = FastClock(config.simulate_pace) if config.simulate_pace != 1 else None
    machine = simulated_machine(scenario, clock=clock or pace, starting_at=begin, when_looked_at=clock is not None)
    made = stack.enter_context(machine)
    if clock is None:
        log.warning(
            "this host is SIMULATED: every metric is made up",
            extra=fields(scenario=scenario.name, description=scenario.description, progress=made.progress()),
        )
    return made


def virtual_clock() -> SteppedClock:
    from gpu_triage_simulator import VirtualClock  # noqa: PLC0415 - see above

    return VirtualClock()
