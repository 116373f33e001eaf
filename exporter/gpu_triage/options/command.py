"""The options as a click command sees them: its flags, its help, and the Config it is called with."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable
from copy import copy
from functools import wraps
from typing import Any, TypeVar

import click

from gpu_triage import __version__
from gpu_triage.options.option import Option
from gpu_triage.options.sources import ScenarioOptions, config_in, no_options, use_file, use_scenario
from gpu_triage.options.table import CONFIG_FILE, SIMULATE, CollectorSwitch, all_options

T = TypeVar("T")
_HELP_COLUMNS = 100


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

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """As click, the configuration file first: it may name the scenario, whose options it overrules."""
        found = super().get_params(ctx)
        return sorted(found, key=lambda each: not isinstance(each, Option) or each.key != CONFIG_FILE)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each option once, under its section; the command's own beside them under "Options"."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in super().get_params(ctx):
            # The usage line names the arguments, and newer versions of click give them a record too.
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                section = parameter.section if isinstance(parameter, Option) else "Options"
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
    callbacks = {CONFIG_FILE: use_file, SIMULATE: use_scenario(of_scenario)}
    # Each command has its own: whether one has a flag differs.
    options = [copy(option) for option in all_options(switches)]
    for option in options:
        option.flagged = applies(option)
        option.callback = callbacks.get(option.key)
    names = {option.name for option in options}

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @wraps(function)
        def with_config(**parameters: Any) -> T:
            config = config_in(click.get_current_context(), os.environ)
            return function(config=config, **{key: each for key, each in parameters.items() if key not in names})

        # As click.option would: a command turns the list around.
        inner = getattr(function, "__click_params__", ())
        with_config.__click_params__ = [*inner, *reversed(options)]  # type: ignore[attr-defined]  # set by click's own decorators too
        return with_config

    return decorate


def version_option() -> Callable[[Callable[..., T]], Callable[..., T]]:
    """The ``--version`` flag: name, version and the Python it runs on."""
    message = f"gpu-triage-exporter {__version__} (Python {platform.python_version()})"
    return click.version_option(__version__, message=message.replace("%", "%%"), help="Show the version and exit.")
