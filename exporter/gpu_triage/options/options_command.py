"""The options as a click command: flags, help, and the Config passed to the command."""

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar

import click

from gpu_triage import __version__
from gpu_triage.options.option import VARIABLE_PREFIX, Option
from gpu_triage.options.option_sources import ScenarioOptions, config_in
from gpu_triage.options.option_table import CollectorSwitch, all_options

T = TypeVar("T")
_HELP_COLUMNS = 100
_ESSENTIAL = ("expect.gpu-count", "simulate", "simulate-at", "config.file")
"""Options shown in every command's `--help`."""
_VARIABLES = (
    "Every option can also be set by an environment variable (--web.listen-address by "
    f"{VARIABLE_PREFIX}WEB_LISTEN_ADDRESS) or in the configuration file; a flag beats both. All options:"
)
_SOURCES = (
    "A flag beats its environment variable, which beats the key in the configuration file, which beats what a "
    "simulated scenario sets, which beats the default. A variable holds several values separated by commas; an empty "
    "one counts as not set. Durations have a unit: 500ms, 5s, 1m, 1h."
)
_SHOW_ALL = "gpu_triage.help_all"


class OptionsCommand(click.Command):
    """A command with `serve_options`: ``--help`` shows its own and the `essential` options, ``--help-all`` all."""

    def __init__(
        self,
        *args: Any,
        examples: Sequence[tuple[str, str]] = (),
        essential: Sequence[str] = _ESSENTIAL,
        **attributes: Any,
    ) -> None:
        attributes.setdefault("context_settings", {"max_content_width": _HELP_COLUMNS})
        super().__init__(*args, **attributes)
        self.examples = examples
        self.essential = frozenset(essential)
        meaning = "Show every option, with its environment variable, and exit."
        self.params.append(_eager_flag("--help-all", _show_all, meaning))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the essential shared ones, or with --help-all all, under sections."""
        everything = bool(ctx.meta.get(_SHOW_ALL))
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            # Arguments are in the usage line already, and newer versions of click return help records for them, too.
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is None:
                continue
            if not isinstance(parameter, Option):
                sections.setdefault("Options", []).append(record)
            elif everything:
                sections.setdefault(parameter.section, []).append(record)
            elif parameter.key in self.essential:
                sections.setdefault("Options", []).append(parameter.brief_help_record())
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                margin = " " * formatter.current_indent
                for line, purpose in self.examples:
                    formatter.write(f"{margin}# {purpose}\n{margin}{line}\n")
        formatter.write_paragraph()
        formatter.write_text(_SOURCES if ctx.meta.get(_SHOW_ALL) else f"{_VARIABLES} {ctx.command_path} --help-all")
        super().format_epilog(ctx, formatter)


def _eager_flag(flag: str, show: Callable[[click.Context], None], meaning: str) -> click.Option:
    """A flag that shows something instead of running the command."""

    def callback(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's signature
        if wanted and not ctx.resilient_parsing:
            show(ctx)
            ctx.exit()

    return click.Option([flag], is_flag=True, is_eager=True, expose_value=False, callback=callback, help=meaning)


def _show_all(ctx: click.Context) -> None:
    ctx.meta[_SHOW_ALL] = True
    click.echo(ctx.get_help(), color=ctx.color)


def serve_options(
    switches: Iterable[CollectorSwitch],
    of_scenario: ScenarioOptions,
    applies: Callable[[Option], bool] = lambda _option: True,
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """A decorator that adds the options to a command's function and calls it with ``config=Config``.

    Use with ``cls=OptionsCommand`` for grouped help. An option has a flag only if it `applies`; others are still read
    from the environment and the file, which all commands on a host share. `of_scenario` gives what a scenario sets.
    """
    options = all_options(switches)
    flags = [option for option in options if applies(option)]
    names = {option.name for option in flags}

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @wraps(function)
        def with_config(**parameters: Any) -> T:
            config = config_in(click.get_current_context(), options, os.environ, of_scenario)
            return function(config=config, **{key: each for key, each in parameters.items() if key not in names})

        # As in click.option: parameters are stored in reverse order.
        inner = getattr(function, "__click_params__", ())
        with_config.__click_params__ = [*inner, *reversed(flags)]  # type: ignore[attr-defined]  # as click's decorators do
        return with_config

    return decorate


def version_option(of_driver: Callable[[], str]) -> click.Option:
    """The ``--version`` flag: program and Python version, then the driver version from `of_driver`."""

    def show(_ctx: click.Context) -> None:
        # Print the first line at once, since asking the driver may take a while.
        click.echo(f"gpu-triage-exporter {__version__} (Python {platform.python_version()})")
        click.echo(of_driver())

    return _eager_flag("--version", show, "Show the versions of this program, of Python and of the driver, and exit.")
