"""What the commands that look at a host once share: how they are wired, and flags beside the options."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import click

from gpu_triage.config import Config
from gpu_triage.errors import ConfigError
from gpu_triage.options.sources import ScenarioOptions
from gpu_triage.options.table import CollectorSwitch
from gpu_triage.options.values import ValueKind, duration

Opened = TypeVar("Opened")
Command = TypeVar("Command", bound=Callable[..., int])

_SCENARIO_TIME: Final = duration("0s", "720h")


@dataclass(frozen=True, slots=True)
class Surroundings(Generic[Opened]):
    """What the commands are wired with.

    Attributes:
        switches: the collectors that can be switched.
        of_scenario: the options that a scenario brings, by its name or path.
        open_machine: opens the machine of a configuration for the life of the stack; of a simulated one at this
            scenario time in seconds.
    """

    switches: tuple[CollectorSwitch, ...]
    of_scenario: ScenarioOptions
    open_machine: Callable[[Config, ExitStack, float], Opened]


def simulate_at_option(command: Command) -> Command:
    """The command with the flag ``--simulate-at``; `scenario_time` reads it."""
    meaning = "Scenario time at which to look at a simulated host, such as 10m."
    return click.option("--simulate-at", metavar="DURATION", help=meaning)(command)


def for_option(default: str) -> Callable[[Command], Command]:
    """A decorator that adds the flag ``--for``, and ``--watch``, its name before; `measuring_time` reads both."""

    def decorate(command: Command) -> Command:
        old_name = click.option("--watch", "watch_for", hidden=True, help="The old name of --for.")
        meaning = f"How long to measure.  [default: {default}]"
        return click.option("--for", "measure_for", metavar="DURATION", help=meaning)(old_name(command))

    return decorate


def measuring_time(measure_for: str | None, watch_for: str | None, default: str, kind: ValueKind) -> float:
    """The seconds that ``--for`` gives, or its old name ``--watch``, with a warning; the default without either.

    Raises:
        ConfigError: both are given, or it is no duration.
    """
    if watch_for is None:
        return seconds_of("--for", default if measure_for is None else measure_for, kind)
    if measure_for is not None:
        raise ConfigError("--watch is the old name of --for; give one of them")
    click.echo("gpu-triage: --watch is deprecated and goes with the next release; use --for", err=True)
    return seconds_of("--watch", watch_for, kind)


def format_option(**readers: str) -> Callable[[Command], Command]:
    """A decorator that adds the flag ``--format``: each form of the output and whom it is for, the default first."""
    forms = list(readers)
    meaning = ", ".join(f"for {who}" for who in readers.values()).capitalize() + "."
    return click.option("--format", "form", type=click.Choice(forms), default=forms[0], show_default=True, help=meaning)


def scenario_time(text: str | None, config: Config) -> float:
    """The scenario time in seconds that ``--simulate-at`` gives; 0 without it.

    Raises:
        ConfigError: it is no time, or nothing is simulated.
    """
    if text is None:
        return 0.0
    if config.simulate is None:
        raise ConfigError("--simulate-at is a time of a scenario; name one with --simulate")
    return seconds_of("--simulate-at", text, _SCENARIO_TIME)


def seconds_of(flag: str, text: str, kind: ValueKind) -> float:
    """The seconds of a flag that holds a duration.

    Raises:
        ConfigError: the text will not do; the message names the flag.
    """
    try:
        return float(str(kind.parse(text)))
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from error
