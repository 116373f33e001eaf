"""The Config that a command line, an environment and a configuration file give."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import click
from click.testing import CliRunner

from gpu_triage.options.config import Config
from gpu_triage.options.option_sources import ScenarioOptions
from gpu_triage.options.option_table import CollectorSwitch
from gpu_triage.options.options_command import OptionsCommand, serve_options


def config_from(
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    switches: Sequence[CollectorSwitch] = (),
    of_scenario: ScenarioOptions = lambda _name: {},
) -> Config:
    """The Config that a command with every option is called with; raises what the command line would say."""

    @click.command(cls=OptionsCommand)
    @serve_options(switches, of_scenario)
    def command(config: Config) -> Config:
        return config

    result = CliRunner().invoke(command, list(arguments), env=environment, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    config: Config = result.return_value
    return config


class Ran(NamedTuple):
    """The exit code of a command, and what it printed."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]
"""Runs `gpu-triage` with these arguments."""
