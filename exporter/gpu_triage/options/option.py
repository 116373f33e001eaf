"""An option: a click flag that is also an environment variable, a file key and a Config field."""

from collections.abc import Mapping
from typing import Any, Final

import click

from gpu_triage.documents import packaged, parse_json
from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Origin, Setting
from gpu_triage.options.values import TextType

VARIABLE_PREFIX = "GPU_TRIAGE_"

_SECTIONS: Final = {
    "Web": ("web",),
    "Sampling": ("sample", "stale-after"),
    "Expectations": ("expect", "baseline"),
    "Findings": ("judge",),
    "Metrics": ("metrics",),
    "Collectors": ("process", "network", "nccl", "collector"),
    "Schedulers": ("kubernetes", "slurm"),
    "Paths": ("state", "flight-recorder", "path"),
    "Logging": ("log",),
    "Simulation": ("replay", "simulate", "simulate-at", "simulate-pace"),
    "Configuration file": ("config",),
}
"""Headings in the help, with the first parts of their options' keys."""

MEANINGS: Final[Mapping[str, str]] = parse_json(packaged(__package__, "meanings.json").encode(), "meanings.json")
"""The help of each option, by its key."""

_LONGEST = 240


class Option(click.Option):
    """A click flag with its environment variable, its file key and the Config field it sets.

    Args:
        key: dotted name, ``web.listen-address``; flag, variable, file key and section derive from it.
        field: the Config field it sets; None for the path of the file itself, which can't be set in a file.
        preset: its default, of which a tuple makes it repeatable; a collector's is text for the help.
        collector: key in Config.collectors; None for an ordinary option.
    """

    def __init__(
        self,
        key: str,
        kind: "click.ParamType[Any]",  # generic since click 8.4, and not before
        meaning: str | None = None,
        *,
        field: str | None,
        preset: Any = None,
        collector: str | None = None,
    ) -> None:
        words = key.replace(".", "_").replace("-", "_")
        self.key, self.field, self.kind = key, field, kind
        self.section = next(heading for heading, parts in _SECTIONS.items() if key.partition(".")[0] in parts)
        self.collector, self.preset = collector, preset
        # Whether its flag takes no value: ``--name`` is on, ``--no-name`` is off.
        self.on_off = collector is not None or isinstance(preset, bool)
        self.flag, self.negative_flag = f"--{key}", f"--no-{key}"
        self.variable = f"{VARIABLE_PREFIX}{words.upper()}"
        super().__init__(
            [f"{self.flag}/{self.negative_flag}" if self.on_off else self.flag, self.variable.lower()],
            type=None if self.on_off else kind,
            metavar=_metavar(kind),
            help=MEANINGS[key] if meaning is None else meaning,
            multiple=isinstance(preset, tuple),
            default=None,
        )

    @property
    def synopsis(self) -> str:
        """The flag as shown in the help: ``--sample.fast DURATION``, ``--[no-]collector.process``."""
        return f"--[no-]{self.key}" if self.on_off else f"{self.flag} {self.metavar}"

    @property
    def shown_default(self) -> str:
        """The default in the option's own syntax, or ``none``."""
        if self.preset in (None, ()):
            return "none"
        if isinstance(self.preset, bool):
            return str(self.preset).lower()
        show = self.kind.show if isinstance(self.kind, TextType) else str
        return ",".join(map(show, self.preset)) if self.multiple else show(self.preset)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:  # noqa: ARG002 - click's signature
        return self.synopsis, f"{self.help}  [default: {self.shown_default}; env: {self.variable}]"

    def brief_help_record(self) -> tuple[str, str]:
        """Like `get_help_record`, but without the environment variable, which follows the same rule for all options."""
        default = "" if self.shown_default == "none" else f"  [default: {self.shown_default}]"
        return self.synopsis, f"{self.help}{default}"

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:  # noqa: ARG002 - click's signature
        """Override click: the text of a flag is converted together with those of the other sources."""
        return value

    def flag_in(self, ctx: click.Context) -> Setting | None:
        """What the command line sets, as text; None if nothing."""
        value: Any = ctx.params.get(self.name or "")
        if ctx.get_parameter_source(self.name or "") is not click.core.ParameterSource.COMMANDLINE:
            return None
        if self.on_off:
            return Setting((str(value).lower(),), self.flag if value else self.negative_flag, Origin.FLAG)
        return Setting(tuple(value) if self.multiple else (value,), self.flag, Origin.FLAG)

    def variable_in(self, environment: Mapping[str, str]) -> Setting | None:
        """What the environment sets, as text; None if nothing. An empty variable counts as not set."""
        text = environment.get(self.variable)
        if not text:
            return None
        texts = [each.strip() for each in text.split(",")] if self.multiple else [text]
        return Setting(tuple(texts), f"environment variable {self.variable}", Origin.VARIABLE)

    def read(self, setting: Setting) -> Any:
        """Convert a setting to its value. Raises ConfigError if the value is invalid; the message names its source."""
        try:
            found = tuple(self.kind.convert(text, self, None) for text in setting.texts)
        except click.BadParameter as error:
            raise ConfigError(f"{setting.source}: {_shortened(error.message)}") from error
        return found if self.multiple else found[-1]


def _metavar(kind: "click.ParamType[Any]") -> str:
    if isinstance(kind, click.Choice):
        return "|".join(kind.choices)
    return "PATH" if isinstance(kind, click.Path) else kind.name


def _shortened(message: str) -> str:
    message = message.rstrip(".")
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST // 2]}…{message[-_LONGEST // 2 :]}"
