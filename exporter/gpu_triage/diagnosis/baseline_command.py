"""``gpu-triage baseline``: its arguments, its output and its exit codes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from gpu_triage.config import Config
from gpu_triage.diagnosis import baseline
from gpu_triage.machine import Machine
from gpu_triage.options.values import parse_duration

MachineOpener = Callable[[Config, ExitStack, float], Machine]
"""Opens the machine of a configuration for as long as the stack; the number is a simulated host's time in seconds."""


def baseline_command(open_machine: MachineOpener) -> click.Group:
    """The command ``baseline`` with ``write`` and ``diff``."""

    @click.group("baseline")
    def group() -> None:
        """Record what this host is like while it is well, and say what changed since.

        The exporter compares with it all the time: gpu-triage serve --baseline.file FILE
        """

    @group.command("write")
    @click.argument("file", required=False, type=Path)
    @_options
    def write(file: Path | None, within: str, **where: Any) -> int:
        """Record this host into FILE, or print what would be in it.

        Only a host that is whole and well is recorded: every GPU of its PCI bus answers, every NVLink is up.
        """
        with ExitStack() as stack:
            config, machine = _host(stack, open_machine, **where)
            click.echo(baseline.record(machine, config, file, _seconds("--within", within)), nl=False)
        return 0

    @group.command("diff")
    @click.argument("file", type=Path)
    @click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
    @_options
    def diff(file: Path, form: str, within: str, **where: Any) -> int:
        """Say what differs from the baseline in FILE, and what that means.

        Exit code 0: nothing. 1: something. 2: the file cannot be used, or the host cannot be looked at.
        """
        with ExitStack() as stack:
            config, machine = _host(stack, open_machine, **where)
            found = baseline.differences(machine, config, file, _seconds("--within", within))
            click.echo(baseline.as_json(*found) if form == "json" else baseline.as_text(*found), nl=False)
        return 1 if found[2] else 0

    return group


def _options(command: Callable[..., int]) -> Callable[..., int]:
    real = Config()
    for option in (
        click.option("--simulate", metavar="SCENARIO", help="Look at this simulated host instead."),
        click.option("--at", metavar="DURATION", help="The simulated host's time to look at, such as 10m."),
        # A driver without persistence needs seconds to wake each GPU.
        click.option(
            "--within", metavar="DURATION", default="20s", show_default=True, help="How long reading it all may take."
        ),
        click.option("--path.sysfs", "path_sysfs", type=Path, default=real.path_sysfs, show_default=True),
        click.option("--path.procfs", "path_procfs", type=Path, default=real.path_procfs, show_default=True),
    ):
        command = option(command)
    return command


def _host(stack: ExitStack, open_machine: MachineOpener, at: str | None, **where: Any) -> tuple[Config, Machine]:
    config = Config(log_level="error", **where)
    if at is not None and config.simulate is None:
        raise click.UsageError("--at is a time of a simulated host; give --simulate as well")
    return config, open_machine(config, stack, 0.0 if at is None else _seconds("--at", at))


def _seconds(flag: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.UsageError(f"{flag}: {error}") from error
