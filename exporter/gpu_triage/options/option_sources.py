"""Combines flags, environment variables, a file and a scenario into one validated Config."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
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
FILE: Final = "gpu_triage.file"
"""Key in a click context's `meta`: the configuration file, where a command takes it as its argument."""

ScenarioOptions = Callable[[str], Mapping[str, Setting]]
"""Returns the options set by a scenario, given its name or path."""

_Settings = Mapping[str, Setting]
"""Settings by option key."""


def _settings_in_file(path: str, options: Sequence[Option]) -> dict[str, Setting]:
    """The settings in the file as text, by option key, to be parsed by each option's type."""
    tree: dict[str, Any] = {}
    for option in options:
        if option.field is not None:
            *sections, last = option.key.split(".")
            table = tree
            for section in sections:
                table = table.setdefault(section, {})
            texts = option.in_file or partial(_texts, many=option.multiple)
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


def _texts(value: Any, *, many: bool) -> tuple[str, ...]:
    texts = value if many and isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError("write a value or a list of values" if many else "write one value")
    return tuple(map(str, texts))


def config_in(
    ctx: click.Context, options: Sequence[Option], environment: Mapping[str, str], of_scenario: ScenarioOptions
) -> Config:
    """The validated configuration of a command. Raises ConfigError that names the source and the remedy."""
    _refuse_unknown_variables(environment, options)
    flags = {each.key: found for each in options if (found := each.flag_in(ctx))}
    variables = {each.key: found for each in options if (found := each.variable_in(environment))}
    path = _read(CONFIG_FILE, options, variables, flags)
    file = _settings_in_file(named, options) if (named := ctx.meta.get(FILE, path)) else {}
    simulated = _read(SIMULATE, options, file, variables, flags)
    scenario = of_scenario(simulated) if simulated else {}
    layers = {Origin.SCENARIO: scenario, Origin.FILE: file, Origin.VARIABLE: variables, Origin.FLAG: flags}
    return _combined(options, layers, Config(config_file=path))


def _read(key: str, options: Sequence[Option], *layers: _Settings) -> str | None:
    """The value of an option that names another source."""
    setting = next((layer[key] for layer in reversed(layers) if key in layer), None)
    option = next(each for each in options if each.key == key)
    return None if setting is None else str(option.read(setting))


def judge_options_now(config: Config, options: Sequence[Option]) -> tuple[JudgeOption, ...]:
    """The judge's settings, with the file read again. Raises ConfigError if it is unreadable, or a key is unknown."""
    if config.config_file is None:
        return config.judge
    option = next(each for each in options if each.key == JUDGE)
    in_file = _judge_options(option, Origin.FILE, _settings_in_file(config.config_file, options))
    others = (each for each in config.judge if each.origin is not Origin.FILE)
    return tuple(sorted((*others, *in_file), key=lambda each: each.origin))


def config_of_scenario(options: Sequence[Option], settings: _Settings, base: Config) -> Config:
    """`base` with the settings of a scenario, validated. Raises ConfigError as `config_in` does."""
    return _combined(options, {Origin.SCENARIO: settings}, base)


def _combined(options: Sequence[Option], layers: Mapping[Origin, _Settings], base: Config) -> Config:
    """`base` with the settings of all sources; `layers` are in ascending order of precedence."""
    scenario = layers[Origin.SCENARIO]
    _refuse_unknown_settings(scenario, options)
    chosen = {key: setting for layer in layers.values() for key, setting in layer.items()}
    # Alternatives of each other: if the user names a file, a scenario's setting is ignored.
    learns = "baseline.from-host"
    if "baseline.file" in chosen and chosen.get(learns) is scenario.get(learns):
        chosen.pop(learns, None)
    fields: dict[str, Any] = {}
    collectors: dict[str, bool] = {}
    for option in options:
        if option.key not in chosen:
            continue
        if option.key == JUDGE:
            found = (_judge_options(option, origin, settings) for origin, settings in layers.items())
            fields["judge"] = tuple(chain.from_iterable(found))
        elif option.collector is not None:
            collectors[option.collector] = option.read(chosen[option.key])
        elif option.field is not None:
            fields[option.field] = option.read(chosen[option.key])
    config = replace(base, collectors={**base.collectors, **collectors}, **fields)
    refuse_useless_combinations(config, {key: setting.source for key, setting in chosen.items()}, options)
    return config


def _judge_options(option: Option, origin: Origin, settings: _Settings) -> Iterator[JudgeOption]:
    """Judge settings of a source; each overrides only what it names."""
    if setting := settings.get(option.key):
        yield from (replace(each, origin=origin, place=setting.source) for each in option.read(setting))


def _refuse_unknown_settings(settings: _Settings, options: Sequence[Option]) -> None:
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
