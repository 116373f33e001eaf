"""What the commands that look at a host share: which options, which machine, how they watch it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import click

from gpu_triage.config import Config
from gpu_triage.diagnosis.watch import Watched, watch, watch_stepped
from gpu_triage.errors import ConfigError
from gpu_triage.machine import Machine
from gpu_triage.options import CollectorSwitch, Option
from gpu_triage.options.sources import ScenarioOptions
from gpu_triage.options.values import ValueKind, duration
from gpu_triage.sampler.runner import SteppedClock

EXIT_SOUND: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_COULD_NOT_LOOK: Final = 2

WATCH: Final = duration("2s", "1h")
PATIENCE: Final = duration("1s", "10m")

_SECTIONS: Final = frozenset({"Expectations", "Collectors", "Kubernetes", "Paths", "Simulation", "Configuration file"})
_SCENARIO_TIME: Final = duration("0s", "720h")


@dataclass(frozen=True, slots=True)
class Opened:
    """A machine to look at.

    Attributes:
        machine: the seams.
        stepped: its clock, if that stands still until it is advanced; None on the real clock.
    """

    machine: Machine
    stepped: SteppedClock | None


OpenMachine = Callable[[Config, ExitStack, float], Opened]
"""Opens the machine of a configuration for the life of the stack; of a simulated one at this scenario time."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the commands are wired with.

    Attributes:
        switches: the collectors that can be switched.
        of_scenario: the options that a scenario brings, by its name or path.
        open_machine: opens the machine to look at.
    """

    switches: tuple[CollectorSwitch, ...]
    of_scenario: ScenarioOptions
    open_machine: OpenMachine


def applies(option: Option) -> bool:
    """Whether an option of the daemon means something to a look at the host."""
    return (option.section in _SECTIONS or option.name == "sample.deadline") and option.name != "baseline.from-host"


def parsed(flag: str, text: str, kind: ValueKind) -> object:
    """The value of a flag's text.

    Raises:
        ConfigError: the text will not do; the message names the flag.
    """
    try:
        return kind.parse(text)
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from error


def seconds_of(flag: str, text: str, kind: ValueKind) -> float:
    """The seconds of a flag that holds a duration; raises as `parsed`."""
    return float(str(parsed(flag, text, kind)))


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


def observe(opened: Opened, config: Config, watch_seconds: float, patience_seconds: float) -> Watched:
    """Watch a machine, with a line of progress on stderr if that is a terminal.

    Args:
        opened: the machine.
        config: as for the daemon.
        watch_seconds: how long to watch it.
        patience_seconds: how long to wait for its first answer.
    """
    if opened.stepped is not None:
        return watch_stepped(opened.machine, opened.stepped, config, watch_seconds, patience_seconds)
    shown = sys.stderr.isatty()
    watched = watch(opened.machine, config, watch_seconds, patience_seconds, _show if shown else _keep_quiet)
    if shown:
        click.echo("\r\x1b[K", nl=False, err=True)
    return watched


def _show(seconds: float, of_seconds: float) -> None:
    click.echo(f"\rlooking, {seconds:.0f} of {of_seconds:.0f} s ", nl=False, err=True)


def _keep_quiet(_seconds: float, _of_seconds: float) -> None:
    """Progress for nobody."""
