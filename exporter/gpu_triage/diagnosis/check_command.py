"""The command `gpu-triage check`: its options and its exit code."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

import click

from gpu_triage.config import Config
from gpu_triage.diagnosis.codes import Severity
from gpu_triage.diagnosis.looking import MEASURE, PATIENCE, Opened, applies, look
from gpu_triage.diagnosis.machine_readable import render_json, render_junit
from gpu_triage.diagnosis.report import Report
from gpu_triage.diagnosis.text import render_text
from gpu_triage.log import configure
from gpu_triage.options import OptionsCommand, serve_options
from gpu_triage.options.looking import (
    Surroundings,
    for_option,
    format_option,
    measuring_time,
    scenario_time,
    seconds_of,
    simulate_at_option,
)

_DEFAULT_FOR = "10s"


def check_command(surroundings: Surroundings[Opened]) -> click.Command:
    """The command, for the group."""

    @click.command("check", cls=OptionsCommand, short_help="Say what is wrong with this host, and what to do.")
    @for_option(_DEFAULT_FOR)
    @click.option(
        "--patience",
        metavar="DURATION",
        default="30s",
        show_default=True,
        help="How long to wait for the driver's first answer; opening GPUs takes seconds each without persistence.",
    )
    @format_option(text="people", json="programs", junit="test reports")
    @click.option(
        "--fail-on",
        type=click.Choice([severity.value for severity in reversed(Severity)]),
        default="critical",
        show_default=True,
        help="The least severe finding that makes the exit code 1.",
    )
    @simulate_at_option
    @click.option("--verbose", "-v", is_flag=True, help="Log to stderr what the sampler says.")
    @serve_options(surroundings.switches, surroundings.of_scenario, applies)
    def check(
        *,
        config: Config,
        measure_for: str | None,
        watch_for: str | None,
        patience: str,
        form: str,
        fail_on: str,
        simulate_at: str | None,
        verbose: bool,
    ) -> int:
        """Measure this host for some seconds and say what is wrong with it, in the order of the playbook.

        Prints what was measured, what it means and what to do, then for each GPU its bottleneck and whether it should
        go on taking work: keep, watch or drain. Needs no root; says what it could not read.

        Exit code: 0 sound, 1 findings as severe as --fail-on (by default: the host's verdict is drain), 2 the GPUs
        could not be looked at, or, without any report, the options cannot be used, 70 a fault of this program.
        """
        begin = scenario_time(simulate_at, config)
        seconds = measuring_time(measure_for, watch_for, _DEFAULT_FOR, MEASURE)
        deadline = seconds_of("--patience", patience, PATIENCE)
        configure(config.log_level if verbose else "critical", config.log_format)
        with ExitStack() as stack:
            report = look(surroundings.open_machine(config, stack, begin), config, seconds, deadline).report
        severity = Severity(fail_on)
        _write(report, form, severity)
        return report.exit_code(severity)

    return check


def _write(report: Report, form: str, fail_on: Severity) -> None:
    if form == "json":
        click.echo(render_json(report), nl=False)
    elif form == "junit":
        click.echo(render_junit(report, fail_on), nl=False)
    else:
        click.echo(render_text(report), nl=False, color=wants_colour())


def wants_colour() -> bool:
    """Whether stdout is a terminal whose user does not mind colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
