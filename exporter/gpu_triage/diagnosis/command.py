"""The command `gpu-triage check`: its options, its progress, its exit code."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import click

from gpu_triage.config import Config
from gpu_triage.diagnosis.codes import Severity
from gpu_triage.diagnosis.machine_readable import render_json, render_junit
from gpu_triage.diagnosis.obstacles import obstacle
from gpu_triage.diagnosis.report import Report, report_of
from gpu_triage.diagnosis.text import render_text
from gpu_triage.diagnosis.watch import Watched, watch, watch_stepped
from gpu_triage.errors import ConfigError
from gpu_triage.log import configure
from gpu_triage.machine import Machine
from gpu_triage.options import CollectorSwitch, Option, OptionsCommand, serve_options
from gpu_triage.options.values import duration
from gpu_triage.sampler.runner import SteppedClock

EXIT_SOUND: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_COULD_NOT_LOOK: Final = 2

_SECTIONS: Final = frozenset({"Expectations", "Collectors", "Kubernetes", "Paths", "Simulation", "Configuration file"})
_WATCH: Final = duration("2s", "1h")
_PATIENCE: Final = duration("1s", "10m")
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


def applies(option: Option) -> bool:
    """Whether an option of the daemon means something to a look at the host."""
    return option.section in _SECTIONS or option.name == "sample.deadline"


def check_command(switches: Iterable[CollectorSwitch], open_machine: OpenMachine) -> click.Command:
    """The command, for the group.

    Args:
        switches: the collectors that can be switched.
        open_machine: makes the machine.
    """

    @click.command("check", cls=OptionsCommand)
    @click.option(
        "--watch", "watch_for", metavar="DURATION", default="10s", show_default=True, help="How long to look."
    )
    @click.option(
        "--patience",
        metavar="DURATION",
        default="30s",
        show_default=True,
        help="How long to wait for the driver's first answer; opening GPUs takes seconds each without persistence.",
    )
    @click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json", "junit"]),
        default="text",
        show_default=True,
        help="For people, for programs, for test reports.",
    )
    @click.option(
        "--fail-on",
        type=click.Choice([severity.value for severity in reversed(Severity)]),
        default="critical",
        show_default=True,
        help="The least severe finding that makes the exit code 1.",
    )
    @click.option("--simulate-at", metavar="DURATION", help="Scenario time at which to look at a simulated host.")
    @click.option("--verbose", "-v", is_flag=True, help="Log to stderr what the sampler says.")
    @serve_options(switches, applies)
    def check(
        *,
        config: Config,
        watch_for: str,
        patience: str,
        form: str,
        fail_on: str,
        simulate_at: str | None,
        verbose: bool,
    ) -> int:
        """Look at this host for some seconds and say what is wrong with it, in the order of the playbook.

        Prints what was measured, what it means and what to do, then for each GPU its bottleneck and whether it should
        go on taking work: keep, watch or drain. Needs no root; says what it could not read.

        Exit code: 0 sound, 1 findings as severe as --fail-on, 2 the GPUs could not be looked at.
        """
        if simulate_at is not None and config.simulate is None:
            raise ConfigError("--simulate-at is a time of a scenario; name one with --simulate")
        configure(config.log_level if verbose else "critical", config.log_format)
        begin = 0.0 if simulate_at is None else _seconds("--simulate-at", simulate_at, _SCENARIO_TIME.parse)
        seconds = _seconds("--watch", watch_for, _WATCH.parse)
        deadline = _seconds("--patience", patience, _PATIENCE.parse)
        with ExitStack() as stack:
            report = look(open_machine(config, stack, begin), config, seconds, deadline)
        severity = Severity(fail_on)
        _write(report, form, severity)
        return exit_code(report, severity)

    return check


def look(opened: Opened, config: Config, watch_seconds: float, patience_seconds: float) -> Report:
    """The verdict on a machine.

    Args:
        opened: the machine.
        config: as for the daemon.
        watch_seconds: how long to watch it.
        patience_seconds: how long to wait for its first answer.
    """
    watched = _watched(opened, config, watch_seconds, patience_seconds)
    host = config.simulate or platform.node() or "this host"
    return report_of(watched.evidence, host, obstacle(watched.evidence, watched.blocked))


def exit_code(report: Report, fail_on: Severity) -> int:
    """0 sound, 1 findings at least as severe as `fail_on`, 2 the GPUs could not be looked at."""
    if report.blocked is not None:
        return EXIT_COULD_NOT_LOOK
    return EXIT_FINDINGS if report.reaches(fail_on) else EXIT_SOUND


def _watched(opened: Opened, config: Config, watch_seconds: float, patience_seconds: float) -> Watched:
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


def _seconds(flag: str, text: str, parse: Callable[[str], object]) -> float:
    try:
        return float(str(parse(text)))
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from error


def _write(report: Report, form: str, fail_on: Severity) -> None:
    if form == "json":
        click.echo(render_json(report), nl=False)
    elif form == "junit":
        click.echo(render_junit(report, fail_on), nl=False)
    else:
        plain = bool(os.environ.get("NO_COLOR")) or not sys.stdout.isatty()
        click.echo(render_text(report), nl=False, color=not plain)
