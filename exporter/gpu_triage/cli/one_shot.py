"""Flags and output shared by the commands."""

import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import click

from gpu_triage.cli.simulation import scenario_options
from gpu_triage.judge.findings.table import Severity
from gpu_triage.options.options_command import serve_options
from gpu_triage.options.values import OneOf, TextType
from gpu_triage.read.registry import COLLECTOR_SWITCHES

Command = TypeVar("Command", bound=Callable[..., int])


host_options = partial(serve_options, COLLECTOR_SWITCHES, scenario_options)
"""A decorator that adds the exporter's options that apply to a command; the command gets ``config``."""


def duration_option(
    flag: str, parameter: str, kind: TextType, default: str, meaning: str
) -> Callable[[Command], Command]:
    return click.option(
        flag, parameter, metavar="DURATION", type=kind, default=default, show_default=True, help=meaning
    )


def for_option(default: str, kind: TextType) -> Callable[[Command], Command]:
    return duration_option("--for", "seconds", kind, default, "How long to measure.")


def fail_on_option(command: Command) -> Command:
    """Add the flag ``--fail-on``, a severity, to a command."""
    severities = OneOf([severity.value for severity in reversed(Severity)])
    meaning = "The least severe finding that makes the exit code 1."
    return click.option("--fail-on", type=severities, default="critical", show_default=True, help=meaning)(command)


def given(parameter: str) -> bool:
    source = click.get_current_context().get_parameter_source(parameter)
    return source is click.core.ParameterSource.COMMANDLINE


def echo_text(render: Callable[[int | None], str]) -> None:
    """Print what `render` returns for the terminal's width, in color (https://no-color.org); for pipes, whole lines."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(render(columns), nl=False, color=colors_wanted())


def colors_wanted() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def format_option(**readers: str) -> Callable[[Command], Command]:
    """A decorator that adds the flag ``--format``; maps each output format to its audience, the default first."""
    forms = list(readers)
    meaning = ", ".join(f"for {who}" for who in readers.values()).capitalize() + "."
    return click.option("--format", "form", type=OneOf(forms), default=forms[0], show_default=True, help=meaning)
