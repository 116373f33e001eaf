"""Combines flags, environment variables, a file and a scenario, using click's mechanisms, into one validated Config."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import click

from gpu_triage.documents import Keyed, Parsed, Place, parse_yaml, raised_as, read_file, read_value, suggestion
from gpu_triage.errors import ConfigError
from gpu_triage.options.combinations import refuse_useless_combinations
from gpu_triage.options.config import Config, JudgeOption, Origin, Setting
from gpu_triage.options.judge import JUDGE
from gpu_triage.options.option import VARIABLE_PREFIX, Option, settings_of, source_of
from gpu_triage.options.table import CONFIG_FILE, SIMULATE

# Kubernetes sets environment variables for every Service of the namespace in every container, with the Service's name
# as a prefix, and a Service called gpu-triage or gpu-triage-exporter is likely.
_OTHERS_PREFIX = "GPU_TRIAGE_EXPORTER_"
_SERVICE_VARIABLE = re.compile(
    r"GPU_TRIAGE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
_OVERRULED = (("baseline.file", "baseline.from-host"),)
"""Alternatives of each other: if the user sets the first, a scenario's setting of the second is ignored."""

_SCENARIO = "gpu_triage.scenario"

ScenarioOptions = Callable[[str], Mapping[str, Setting]]
"""Returns the options set by a scenario, given its name or path."""


def no_options(_scenario: str) -> Mapping[str, Setting]:
    return {}


def use_file(ctx: click.Context, option: click.Parameter, path: str | None) -> str | None:
    """Click callback for the configuration file: its settings apply where neither a flag nor a variable is given."""
    if path is not None and isinstance(option, Option):
        _add(ctx, {**settings_of(ctx), **_settings_in_file(path, _options_of(ctx.command))})
    return path


def use_scenario(of_scenario: ScenarioOptions) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Create a click callback for the scenario: its settings apply where no other source sets an option."""

    def use(ctx: click.Context, _option: click.Parameter, scenario: str | None) -> str | None:
        if scenario is not None:
            settings = of_scenario(scenario)
            _refuse_unknown_settings(settings, _options_of(ctx.command))
            ctx.meta[_SCENARIO] = settings
            _add(ctx, {**settings, **settings_of(ctx)})
        return scenario

    return use


def _add(ctx: click.Context, settings: Mapping[str, Setting]) -> None:
    settings_of(ctx).update(settings)
    texts = ((option, settings[option.key].texts) for option in _options_of(ctx.command) if option.key in settings)
    ctx.default_map = {option.name or "": list(found) if option.multiple else found[-1] for option, found in texts}


def _options_of(command: click.Command) -> tuple[Option, ...]:
    return tuple(each for each in command.params if isinstance(each, Option))


def _settings_in_file(path: str, options: Sequence[Option]) -> dict[str, Setting]:
    """The settings in the file as text, by option key, to be parsed by each option's type."""
    tree: dict[str, Any] = {}
    for option in options:
        if option.field is not None:
            *sections, last = option.key.split(".")
            table = tree
            for section in sections:
                table = table.setdefault(section, {})
            texts = option.in_file or (_texts if option.multiple else _text)
            table[last] = Annotated[tuple[str, ...], Parsed(texts)]
    with raised_as(ConfigError):
        found = read_value(_hint(tree), parse_yaml(read_file(path), path), Place(path))
    return {key: Setting(texts, f"{path}: {key}") for key, texts in _flat(found)}


def _hint(tree: Mapping[str, Any]) -> Keyed:
    return Keyed({key: _hint(each) if isinstance(each, dict) else each for key, each in tree.items()})


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    for key, each in tree.items():
        if isinstance(each, dict):
            yield from _flat(each, f"{above}{key}.")
        else:
            yield f"{above}{key}", each


def _text(value: Any) -> tuple[str, ...]:
    if not isinstance(value, str):
        raise ValueError("write one value")  # noqa: TRY004 - invalid user input, not a bug
    return (str(value),)


def _texts(value: Any) -> tuple[str, ...]:
    each = value if isinstance(value, list) else [value]
    if not each or not all(isinstance(text, str) for text in each):
        raise ValueError("write a value or a list of values")
    return tuple(map(str, each))


def config_in(ctx: click.Context, environment: Mapping[str, str]) -> Config:
    """The validated configuration of a command invocation.

    Raises:
        ConfigError: an unknown environment variable, or an invalid combination. The message names the source and the
            remedy.
    """
    options = _options_of(ctx.command)
    _refuse_unknown_variables(environment, options)
    unset = (None, click.core.ParameterSource.DEFAULT)
    given = [option for option in options if ctx.get_parameter_source(option.name or "") not in unset]
    sources = {option.key: source_of(ctx, option) for option in given}
    for key, overruled in _OVERRULED:
        scenario = ctx.meta.get(_SCENARIO, {}).get(overruled)
        if key in sources and scenario is not None and sources.get(overruled) == scenario.source:
            del sources[overruled]
    values = [
        (option, tuple(_of_all_sources(ctx, option)) if option.key == JUDGE else ctx.params[option.name or ""])
        for option in given
        if option.key in sources
    ]
    path = next((ctx.params[option.name or ""] for option in options if option.key == CONFIG_FILE), None)
    return _checked(options, values, sources, Config(config_file=path))


def _of_all_sources(ctx: click.Context, option: Option) -> Iterator[JudgeOption]:
    """Judge settings from all sources, in ascending order of precedence; each overrides only the settings it names."""
    scenario, setting = ctx.meta.get(_SCENARIO, {}).get(option.key), settings_of(ctx).get(option.key)
    if scenario is not None:
        yield from _judge_options(option, scenario, Origin.SCENARIO)
    if setting is not None and setting is not scenario:
        yield from _judge_options(option, setting, Origin.FILE)
    if variable := option.resolve_envvar_value(ctx):
        texts = tuple(option.type.split_envvar_value(variable))
        yield from _judge_options(option, Setting(texts, f"environment variable {option.variable}"), Origin.VARIABLE)
    if ctx.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE:
        yield from ctx.params[option.name or ""]


def _judge_options(option: Option, setting: Setting, origin: Origin) -> tuple[JudgeOption, ...]:
    return tuple(replace(each, origin=origin, place=setting.source) for each in option.read(setting))


def judge_options_now(config: Config, options: Sequence[Option]) -> tuple[JudgeOption, ...]:
    """The judge settings, with those from the configuration file reloaded.

    Raises:
        ConfigError: the file is unreadable, or has an unknown key.
    """
    if config.config_file is None:
        return config.judge
    setting = _settings_in_file(config.config_file, options).get(JUDGE)
    option = next(each for each in options if each.key == JUDGE)
    in_file = () if setting is None else _judge_options(option, setting, Origin.FILE)
    others = (each for each in config.judge if each.origin is not Origin.FILE)
    return tuple(sorted((*others, *in_file), key=lambda each: each.origin))


def config_of_scenario(options: Sequence[Option], settings: Mapping[str, Setting], base: Config) -> Config:
    """The validated configuration: `base` with the settings of a scenario.

    Raises:
        ConfigError: as in `config_in`, or a value is invalid.
    """
    _refuse_unknown_settings(settings, options)
    values = [
        (option, _judge_options(option, setting, Origin.SCENARIO) if option.key == JUDGE else option.read(setting))
        for option in options
        if (setting := settings.get(option.key)) is not None
    ]
    return _checked(options, values, {key: setting.source for key, setting in settings.items()}, base)


def _checked(
    options: Sequence[Option], values: Sequence[tuple[Option, Any]], sources: Mapping[str, str], base: Config
) -> Config:
    chosen = {option.field: value for option, value in values if option.field and option.collector is None}
    collectors = {option.collector: value for option, value in values if option.collector is not None}
    config = replace(base, collectors={**base.collectors, **collectors}, **chosen)
    refuse_useless_combinations(config, sources, options)
    return config


def _refuse_unknown_settings(settings: Mapping[str, Setting], options: Sequence[Option]) -> None:
    keys = [option.key for option in options if option.field is not None and option.key != SIMULATE]
    for key, setting in settings.items():
        if key not in keys:
            right = suggestion(key, keys, "gpu-triage serve --help-all lists them")
            raise ConfigError(f"{setting.source}: is not an option that a scenario can set; {right}")


def _refuse_unknown_variables(environment: Mapping[str, str], options: Sequence[Option]) -> None:
    known = [option.variable for option in options]
    for variable in sorted(environment):
        others = variable.startswith(_OTHERS_PREFIX) or _SERVICE_VARIABLE.fullmatch(variable)
        if variable.startswith(VARIABLE_PREFIX) and variable not in known and not others:
            right = suggestion(variable, known, "--help-all lists them")
            raise ConfigError(f"unknown environment variable {variable}; {right}")
