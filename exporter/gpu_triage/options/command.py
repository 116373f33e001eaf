"""The options as a click command sees them: its flags, its help, and the Config it is called with."""

from __future__ import annotations

import os
import platform
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpu_triage import __version__
from gpu_triage.given import Given
from gpu_triage.options.sources import ScenarioOptions, build_config, no_options
from gpu_triage.options.table import all_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpu_triage.options.table import CollectorSwitch, Option

T = TypeVar("T")
_HELP_COLUMNS = 100


class OptionFlag(click.Option):
    """A flag that knows the option it stands for; its value stays text until the option's kind reads it."""

    def __init__(self, *args: Any, option: Option, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.option = option

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:  # noqa: ARG002 - click's signature
        """How the flag is written, and what it does with its default and environment variable."""
        option = self.option
        return option.synopsis, f"{option.help}  [default: {option.default}; env: {option.variable}]"


class OptionsCommand(click.Command):
    """A command whose help groups the options by subject; for commands decorated with `serve_options`."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        attributes.setdefault("context_settings", {"max_content_width": _HELP_COLUMNS})
        super().__init__(*args, **attributes)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, and let every complaint know the command it is about."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each option once, under its section; the command's own beside them under "Options"."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            # The usage line names the arguments, and newer versions of click give them a record too.
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                section = parameter.option.section if isinstance(parameter, OptionFlag) else "Options"
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Say which source wins."""
        formatter.write_paragraph()
        formatter.write_text(
            "A flag beats its environment variable, which beats the key in the configuration file, which "
            "beats what a simulated scenario sets, which beats the default. "
            "A variable holds several values separated by commas; an empty one counts as "
            "not set. Durations have a unit: 500ms, 5s, 1m, 1h."
        )
        super().format_epilog(ctx, formatter)


def serve_options(
    switches: Iterable[CollectorSwitch],
    of_scenario: ScenarioOptions = no_options,
    applies: Callable[[Option], bool] = lambda _option: True,
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """A decorator that gives a command's function the options and calls it with ``config=Config``.

    Other parameters of the command are handed on unchanged. Use with ``cls=OptionsCommand`` for grouped help.

    Args:
        switches: the collectors that can be switched.
        of_scenario: tells the options that a scenario brings, by its name or path.
        applies: which options have a flag here. The others are still read from the environment and the file, which
            a host's commands share.
    """
    options = all_options(switches)
    flagged = tuple(option for option in options if applies(option))

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @wraps(function)
        def with_config(**parameters: Any) -> T:
            flags: dict[str, Given] = {}
            for option in flagged:
                value = parameters.pop(_parameter_name(option))
                if value is not None and value != ():
                    flags[option.name] = _given_by_flag(option, value)
            return function(config=build_config(options, flags, os.environ, of_scenario), **parameters)

        decorated: Callable[..., T] = with_config
        for option in reversed(flagged):  # click lists the decorator applied last first
            decorated = _flag_of(option)(decorated)
        return decorated

    return decorate


def _parameter_name(option: Option) -> str:
    return option.variable.lower()


def _flag_of(option: Option) -> Callable[[Callable[..., T]], Callable[..., T]]:
    name = _parameter_name(option)
    if option.on_off:
        flags = f"{option.flag}/{option.negative_flag}"
        return click.option(flags, name, cls=OptionFlag, option=option, default=None)
    return click.option(option.flag, name, cls=OptionFlag, option=option, default=None, type=str, multiple=option.many)


def _given_by_flag(option: Option, value: object) -> Given:
    if isinstance(value, bool):
        return Given(("true" if value else "false",), option.flag if value else option.negative_flag)
    texts = tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)
    return Given(texts, option.flag)


def version_option() -> Callable[[Callable[..., T]], Callable[..., T]]:
    """The ``--version`` flag: name, version and the Python it runs on."""
    message = f"gpu-triage-exporter {__version__} (Python {platform.python_version()})"
    return click.version_option(__version__, message=message.replace("%", "%%"), help="Show the version and exit.")
