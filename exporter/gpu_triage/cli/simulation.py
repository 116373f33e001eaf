"""The only importer of the simulator, which is loaded when needed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gpu_triage.log import fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

    import click

    from gpu_triage.machine import Machine, SteppedClock
    from gpu_triage.options.config import Config, Setting
    from gpu_triage_simulator import Scenario

log = logging.getLogger(__name__)


def simulate_command() -> click.Command:
    """``gpu-triage simulate``."""
    from gpu_triage_simulator.command import simulate_command as command  # noqa: PLC0415 - see above

    return command


def scenario_options(name: str) -> Mapping[str, Setting]:
    """The options of the exporter that a scenario sets.

    Raises:
        ScenarioError: there is no such scenario.
    """
    from gpu_triage_simulator import load_scenario  # noqa: PLC0415 - see above

    return load_scenario(name).exporter_options


def simulated(config: Config, stack: ExitStack, starting_at: float) -> Machine:
    """The machine of the scenario that a configuration names, in real time from this second of it on."""
    from gpu_triage_simulator import simulated_machine  # noqa: PLC0415 - see above

    scenario = _scenario(config)
    log.warning(
        "this host is SIMULATED: every metric is made up",
        extra=fields(scenario=scenario.name, description=scenario.description),
    )
    return stack.enter_context(simulated_machine(scenario, starting_at=starting_at)).machine


def stepped(config: Config, stack: ExitStack, starting_at: float) -> Machine:
    """The same, on a virtual clock."""
    from gpu_triage_simulator import simulated_machine  # noqa: PLC0415 - see above

    made = simulated_machine(_scenario(config), clock=virtual_clock(), starting_at=starting_at, when_looked_at=True)
    return stack.enter_context(made).machine


def virtual_clock() -> SteppedClock:
    """A clock that stands still until it is stepped."""
    from gpu_triage_simulator import VirtualClock  # noqa: PLC0415 - see above

    return VirtualClock()


def _scenario(config: Config) -> Scenario:
    from gpu_triage_simulator import at_pace, load_scenario  # noqa: PLC0415 - see above

    assert config.simulate is not None  # noqa: S101 - checked by the callers
    return at_pace(load_scenario(config.simulate), config.simulate_pace)
