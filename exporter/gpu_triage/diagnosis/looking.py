"""What the commands that look at a host share: which options, how they watch the machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

import click

from gpu_triage.config import Config
from gpu_triage.diagnosis.watch import Watched, watch, watch_stepped
from gpu_triage.machine import Machine
from gpu_triage.options import Option
from gpu_triage.options.values import duration
from gpu_triage.sampler.runner import SteppedClock

EXIT_SOUND: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_COULD_NOT_LOOK: Final = 2
"""With a report on the output. Options that cannot be used end with 2 too, and with none."""

WATCH: Final = duration("2s", "1h")
PATIENCE: Final = duration("1s", "10m")

_SECTIONS: Final = frozenset({"Expectations", "Collectors", "Kubernetes", "Paths", "Simulation", "Configuration file"})


@dataclass(frozen=True, slots=True)
class Opened:
    """A machine to look at.

    Attributes:
        machine: the seams.
        stepped: its clock, if that stands still until it is advanced; None on the real clock.
    """

    machine: Machine
    stepped: SteppedClock | None


def applies(option: Option) -> bool:
    """Whether an option of the daemon means something to a look at the host."""
    return (option.section in _SECTIONS or option.name == "sample.deadline") and option.name != "baseline.from-host"


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
