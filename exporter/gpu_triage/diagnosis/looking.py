"""What the commands that look at a host once share: which options, and how they measure the machine."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from gpu_triage.config import Config
from gpu_triage.diagnosis.judge import Judgement, subject_of
from gpu_triage.diagnosis.measure import measure, measure_stepped
from gpu_triage.machine import Machine
from gpu_triage.options import Option
from gpu_triage.options.values import duration
from gpu_triage.sampler.incident_store import path_in
from gpu_triage.sampler.runner import SteppedClock

MEASURE: Final = duration("2s", "1h")
PATIENCE: Final = duration("1s", "10m")

UNIT_STATE_DIRECTORY: Final = Path("/var/lib/gpu-triage")
"""Where the exporter keeps its ledger of incidents when systemd runs it as deploy/systemd does."""

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


def look(opened: Opened, config: Config, seconds: float, patience_seconds: float) -> Judgement:
    """The judgement of a machine, with a line of progress on stderr if that is a terminal.

    Args:
        opened: the machine.
        config: as for the daemon.
        seconds: how long to measure it.
        patience_seconds: how long to wait for its first answer.
    """
    subject = subject_of(config, continuous=False)
    if not opened.machine.simulated:
        config = _with_ledger(config)
    if opened.stepped is not None:
        machine, clock = opened.machine, opened.stepped
        return measure_stepped(machine, clock, subject, config, seconds, patience_seconds=patience_seconds)
    shown = sys.stderr.isatty()
    progress = _show if shown else _keep_quiet
    judgement = measure(opened.machine, subject, config, seconds, patience_seconds=patience_seconds, progress=progress)
    if shown:
        click.echo("\r\x1b[K", nl=False, err=True)
    return judgement


def _with_ledger(config: Config) -> Config:
    """The configuration with the state directory of the unit, if none is named and this host's ledger is there."""
    if (
        config.replay is not None
        or config.state_directory is not None
        or not os.access(path_in(UNIT_STATE_DIRECTORY), os.R_OK)
    ):
        return config
    return replace(config, state_directory=UNIT_STATE_DIRECTORY)


def _show(seconds: float, of_seconds: float) -> None:
    click.echo(f"\rmeasuring, {seconds:.0f} of {of_seconds:.0f} s ", nl=False, err=True)


def _keep_quiet(_seconds: float, _of_seconds: float) -> None:
    """Progress for nobody."""
