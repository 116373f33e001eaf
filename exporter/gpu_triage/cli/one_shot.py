"""Wiring and flags shared by the one-shot commands."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import click

from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config
from gpu_triage.options.sources import ScenarioOptions
from gpu_triage.options.table import CollectorSwitch
from gpu_triage.options.values import TextType, duration

OpenedMachine = TypeVar("OpenedMachine")
Command = TypeVar("Command", bound=Callable[..., int])

_SCENARIO_TIME: Final = duration("0s", "720h")


@dataclass(frozen=True, slots=True)
class CommandWiring(Generic[OpenedMachine]):
    """Dependencies of the commands.

    `open_machine` opens the configured machine for the life of the exit stack. Its last argument is a time in seconds:
    for a simulated machine the scenario time, for a recorded one how long before the end to start, 0 for the beginning.
    """

    switches: tuple[CollectorSwitch, ...]
    of_scenario: ScenarioOptions
    open_machine: Callable[[Config, ExitStack, float], OpenedMachine]


def simulate_at_option(command: Command) -> Command:
    """Add the flag ``--simulate-at`` to a command; `scenario_time` converts its value."""
    meaning = "Scenario time at which to look at a simulated host, such as 10m."
    return click.option("--simulate-at", metavar="DURATION", type=_SCENARIO_TIME, help=meaning)(command)


def for_option(default: str, kind: TextType) -> Callable[[Command], Command]:
    """A decorator that adds the flag ``--for``; the command gets ``seconds``."""
    meaning = "How long to measure."
    return click.option(
        "--for", "seconds", metavar="DURATION", type=kind, default=default, show_default=True, help=meaning
    )


def format_option(**readers: str) -> Callable[[Command], Command]:
    """A decorator that adds the flag ``--format``; maps each output format to its audience, the default first."""
    forms = list(readers)
    meaning = ", ".join(f"for {who}" for who in readers.values()).capitalize() + "."
    return click.option("--format", "form", type=click.Choice(forms), default=forms[0], show_default=True, help=meaning)


def scenario_time(seconds: float | None, config: Config) -> float:
    """The scenario time in seconds set with ``--simulate-at``, default 0; raises ConfigError without a simulation."""
    if seconds is not None and config.simulate is None:
        raise ConfigError("--simulate-at is a time of a scenario; name one with --simulate")
    return seconds or 0.0
