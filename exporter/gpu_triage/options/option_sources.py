"""Combines flags, environment variables, a file and a scenario into one validated Config."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import click

from gpu_triage.documents import Keyed, Parsed, Place, parse_yaml, raised_as, read_file, read_value, suggestion
from gpu_triage.errors import ConfigError
from gpu_triage.options.combinations import refuse_useless_combinations
from gpu_triage.options.config import Config, JudgeOption, Origin, Setting
from gpu_triage.options.option import VARIABLE_PREFIX, Option
from gpu_triage.options.option_table import CONFIG_FILE, JUDGE, SIMULATE

# Kubernetes sets environment variables for every Service of the namespace in every container, with the Service's name
# as a prefix, and a Service called gpu-triage or gpu-triage-exporter is likely.
_OTHERS_PREFIX = "GPU_TRIAGE_EXPORTER_"
_SERVICE_VARIABLE = re.compile(
    r"GPU_TRIAGE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
_OVERRULED = (("baseline.file", "baseline.from-host"),)
"""Alternatives of each other: if the user sets the first, a scenario's setting of the second is ignored."""

FILE: Final = "gpu_triage.file"
"""Key in a click context's `meta`: the configuration file, where a command takes it as its argument."""

ScenarioOptions = Callable[[str], Mapping[str, Setting]]
"""Returns the options set by a scenario, given its name or path."""

_Layers = Mapping[Origin, Mapping[str, Setting]]
"""Settings by option key, from each source in ascending order of precedence."""


def no_options(_scenario: str) -> Mapping[str, Setting]:
    return {}


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


def config_in(ctx: click.Context, environment: Mapping[str, str], of_scenario: ScenarioOptions = no_options) -> Config:
    """The validated configuration of a command invocation.

    Raises:
        ConfigError: an unknown environment variable, or an invalid value or combination. The message names the source
            and the remedy.
    """
    options = tuple(each for each in ctx.command.params if isinstance(each, Option))
    _refuse_unknown_variables(environment, options)
    flags = {each.key: found for each in options if (found := each.flag_in(ctx))}
    variables = {each.key: found for each in options if (found := each.variable_in(environment))}
    path = _read(CONFIG_FILE, options, variables, flags)
    file = _settings_in_file(named, options) if (named := ctx.meta.get(FILE, path)) else {}
    simulated = _read(SIMULATE, options, file, variables, flags)
    scenario = of_scenario(simulated) if simulated else {}
    _refuse_unknown_settings(scenario, options)
    chosen = {**scenario, **file, **variables, **flags}
    for key, overruled in _OVERRULED:
        if key in chosen and overruled in scenario and chosen[overruled] is scenario[overruled]:
            del chosen[overruled]
    layers = {Origin.SCENARIO: scenario, Origin.FILE: file, Origin.VARIABLE: variables, Origin.FLAG: flags}
    return _checked(options, chosen, layers, Config(config_file=path))


def _read(key: str, options: Sequence[Option], *layers: Mapping[str, Setting]) -> str | None:
    """The value of an option that names another source."""
    setting = next((layer[key] for layer in reversed(layers) if key in layer), None)
    option = next((each for each in options if each.key == key), None)
    return None if setting is None or option is None else str(option.read(setting))


def _judge_options(option: Option, layers: _Layers) -> Iterator[JudgeOption]:
    """Judge settings from all sources; each overrides only the settings it names."""
    for origin, settings in layers.items():
        if setting := settings.get(option.key):
            yield from (replace(each, origin=origin, place=setting.source) for each in option.read(setting))


def judge_options_now(config: Config, options: Sequence[Option]) -> tuple[JudgeOption, ...]:
    """The judge settings, with those from the configuration file reloaded.

    Raises:
        ConfigError: the file is unreadable, or has an unknown key.
    """
    if config.config_file is None:
        return config.judge
    option = next(each for each in options if each.key == JUDGE)
    in_file = _judge_options(option, {Origin.FILE: _settings_in_file(config.config_file, options)})
    others = (each for each in config.judge if each.origin is not Origin.FILE)
    return tuple(sorted((*others, *in_file), key=lambda each: each.origin))


def config_of_scenario(options: Sequence[Option], settings: Mapping[str, Setting], base: Config) -> Config:
    """The validated configuration: `base` with the settings of a scenario.

    Raises:
        ConfigError: as in `config_in`, or a value is invalid.
    """
    _refuse_unknown_settings(settings, options)
    return _checked(options, settings, {Origin.SCENARIO: settings}, base)


def _checked(options: Sequence[Option], chosen: Mapping[str, Setting], layers: _Layers, base: Config) -> Config:
    values: list[tuple[Option, Any]] = [
        (option, tuple(_judge_options(option, layers)) if option.key == JUDGE else option.read(chosen[option.key]))
        for option in options
        if option.key in chosen
    ]
    fields = {option.field: value for option, value in values if option.field and option.collector is None}
    collectors = {option.collector: value for option, value in values if option.collector is not None}
    config = replace(base, collectors={**base.collectors, **collectors}, **fields)
    refuse_useless_combinations(config, {key: setting.source for key, setting in chosen.items()}, options)
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
