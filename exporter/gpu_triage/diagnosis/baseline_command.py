"""``gpu-triage baseline``: its arguments, its output and its exit codes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import click

from gpu_triage.config import Config
from gpu_triage.diagnosis import baseline
from gpu_triage.log import configure
from gpu_triage.machine import Machine
from gpu_triage.options import OptionsCommand, serve_options
from gpu_triage.options.looking import Surroundings, format_option, scenario_time, seconds_of, simulate_at_option
from gpu_triage.options.values import duration

_WITHIN: Final = duration("1s", "1h")
_OPTIONS: Final = frozenset({"sample.deadline", "path.procfs", "path.sysfs", "replay", "simulate", "config.file"})


def baseline_command(surroundings: Surroundings[Machine]) -> click.Group:
    """The command ``baseline`` with ``write`` and ``diff``."""
    flags = partial(_flags, surroundings)

    @click.group("baseline", short_help="Record this host while it is well, and what changed since.")
    def group() -> None:
        """Record what this host is like while it is well, and say what changed since.

        The exporter compares with it all the time: gpu-triage serve --baseline.file FILE
        """

    @group.command("write", cls=OptionsCommand)
    @click.argument("file", required=False, type=Path)
    @flags
    def write(*, config: Config, file: Path | None, within: str, simulate_at: str | None) -> int:
        """Record this host into FILE, or print what would be in it.

        Only a host that is whole and well is recorded: every GPU of its PCI bus answers, every NVLink is up.
        """
        seconds = seconds_of("--within", within, _WITHIN)
        with ExitStack() as stack:
            machine = _open(surroundings, config, stack, simulate_at)
            click.echo(baseline.record(machine, config, file, seconds), nl=False)
        return 0

    @group.command("diff", cls=OptionsCommand)
    @click.argument("file", type=Path)
    @format_option(text="people", json="programs")
    @flags
    def diff(*, config: Config, file: Path, form: str, within: str, simulate_at: str | None) -> int:
        """Say what differs from the baseline in FILE, and what that means.

        Exit code 0: nothing. 1: something. 2: the file cannot be used, or the host cannot be looked at.
        """
        seconds = seconds_of("--within", within, _WITHIN)
        with ExitStack() as stack:
            machine = _open(surroundings, config, stack, simulate_at)
            found = baseline.differences(machine, config, file, seconds)
            click.echo(baseline.as_json(*found) if form == "json" else baseline.as_text(*found), nl=False)
        return 1 if found[2] else 0

    return group


def _flags(surroundings: Surroundings[Machine], command: Callable[..., int]) -> Callable[..., int]:
    for decorate in (
        serve_options(surroundings.switches, surroundings.of_scenario, lambda option: option.name in _OPTIONS),
        simulate_at_option,
        # A driver without persistence needs seconds to wake each GPU.
        click.option(
            "--within", metavar="DURATION", default="20s", show_default=True, help="How long reading it all may take."
        ),
    ):
        command = decorate(command)
    return command


def _open(surroundings: Surroundings[Machine], config: Config, stack: ExitStack, simulate_at: str | None) -> Machine:
    begin = scenario_time(simulate_at, config)
    configure("error", config.log_format)
    return surroundings.open_machine(config, stack, begin)
