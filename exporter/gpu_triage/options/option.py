"""An option: a click flag that is also an environment variable, a file key and a Config field."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import click

from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config, Setting
from gpu_triage.options.values import TextType

VARIABLE_PREFIX = "GPU_TRIAGE_"

_SECTIONS = {
    "web": "Web",
    "sample": "Sampling",
    "stale-after": "Sampling",
    "expect": "Expectations",
    "baseline": "Expectations",
    "judge": "Findings",
    "metrics": "Metrics",
    "process": "Collectors",
    "network": "Collectors",
    "collector": "Collectors",
    "kubernetes": "Schedulers",
    "slurm": "Schedulers",
    "state": "Paths",
    "flight-recorder": "Paths",
    "path": "Paths",
    "log": "Logging",
    "replay": "Simulation",
    "simulate": "Simulation",
    "simulate-at": "Simulation",
    "simulate-pace": "Simulation",
    "config": "Configuration file",
}
"""Headings in the help, by the first part of the key."""

_SETTINGS = "gpu_triage.settings"
_LONGEST = 240


class Option(click.Option):
    """A click flag with its environment variable, its file key and the Config field it sets.

    Args:
        key: dotted name, ``web.listen-address``; flag, variable, file key and section derive from it.
        field: the Config field it sets, if its name differs from the key; None for the path of the file itself, which
            can't be set in a file.
        in_file: converts a value with a special syntax in the file to strings; raises ValueError.
        collector: key in Config.collectors; None for an ordinary option.
        preset: a collector's default, for the help; an ordinary option's default is that of Config.
        on_off: whether its flag takes no value: ``--name`` is on, ``--no-name`` is off.

    Attributes:
        flagged: whether it is a flag of its command, as opposed to only being read from the environment and the file.
    """

    def __init__(
        self,
        key: str,
        kind: click.ParamType[Any],
        meaning: str,
        *,
        field: str | None = "",
        many: bool = False,
        in_file: Callable[[Any], tuple[str, ...]] | None = None,
        collector: str | None = None,
        preset: str = "",
        on_off: bool = False,
        is_eager: bool = False,
    ) -> None:
        words = key.replace(".", "_").replace("-", "_")
        self.key, self.section = key, _SECTIONS[key.partition(".")[0]]
        self.field = words if field == "" else field
        self.collector, self.preset, self.on_off = collector, preset, on_off
        self.in_file = in_file
        self.flagged = True
        self.flag, self.negative_flag = f"--{key}", f"--no-{key}"
        self.variable = f"{VARIABLE_PREFIX}{words.upper()}"
        super().__init__(
            [f"{self.flag}/{self.negative_flag}" if on_off else self.flag, self.variable.lower()],
            type=kind,
            metavar=_metavar(kind),
            help=meaning,
            multiple=many,
            default=None,
            envvar=self.variable,
            is_eager=is_eager,
        )

    @property
    def synopsis(self) -> str:
        """The flag as shown in the help: ``--sample.fast DURATION``, ``--[no-]collector.process``."""
        return f"--[no-]{self.key}" if self.on_off else f"{self.flag} {self.metavar}"

    @property
    def shown_default(self) -> str:
        """The default in the option's own syntax, or ``none``."""
        if self.collector is not None:
            return self.preset
        value = None if self.field is None else getattr(Config(), self.field)
        if value is None or value == ():
            return "none"
        if isinstance(value, bool):
            return str(value).lower()
        show = self.type.show if isinstance(self.type, TextType) else str
        return ",".join(map(show, value)) if self.multiple else show(value)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:  # noqa: ARG002 - click's signature
        if not self.flagged:
            return None
        return self.synopsis, f"{self.help}  [default: {self.shown_default}; env: {self.variable}]"

    def brief_help_record(self) -> tuple[str, str]:
        """Like `get_help_record`, but without the environment variable, which follows the same rule for all options."""
        default = "" if self.shown_default == "none" else f"  [default: {self.shown_default}]"
        return self.synopsis, f"{self.help}{default}"

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        if self.flagged:
            super().add_to_parser(parser, ctx)

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:  # noqa: ARG002 - click's signature
        """Override click: version 8.2 takes any text in the variable of an on/off flag as true."""
        return os.environ.get(self.variable) or None

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """As in click, but an invalid value raises an error that names its source.

        Raises:
            ConfigError: the value of the flag, variable or key is invalid.
        """
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.BadParameter as error:
            raise ConfigError(f"{source_of(ctx, self)}: {_shortened(error.message)}") from error

    def read(self, setting: Setting) -> Any:
        """Convert a setting to its value. Raises ConfigError: the value is invalid."""
        try:
            found = tuple(self.type.convert(text, self, None) for text in setting.texts)
        except click.BadParameter as error:
            raise ConfigError(f"{setting.source}: {_shortened(error.message)}") from error
        return found if self.multiple else found[-1]


def _metavar(kind: click.ParamType[Any]) -> str:
    if isinstance(kind, click.Choice):
        return "|".join(kind.choices)
    return "PATH" if isinstance(kind, click.Path) else kind.name


def _shortened(message: str) -> str:
    message = message.rstrip(".")
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST // 2]}…{message[-_LONGEST // 2 :]}"


def settings_of(ctx: click.Context) -> dict[str, Setting]:
    """The settings from the configuration file and the scenario of a command, by option key."""
    found: dict[str, Setting] = ctx.meta.setdefault(_SETTINGS, {})
    return found


def source_of(ctx: click.Context, option: Option) -> str:
    """Where an option was set: its flag, ``environment variable NAME``, or ``config.yml: key``."""
    source = ctx.get_parameter_source(option.name)
    if source is click.core.ParameterSource.ENVIRONMENT:
        return f"environment variable {option.variable}"
    if source is click.core.ParameterSource.DEFAULT_MAP:
        return settings_of(ctx)[option.key].source
    return option.negative_flag if ctx.params.get(option.name) is False and option.on_off else option.flag
