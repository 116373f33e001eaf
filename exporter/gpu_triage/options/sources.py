"""From flags, environment variables and a file to one checked Config."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from gpu_triage.config import Config
from gpu_triage.errors import ConfigError
from gpu_triage.given import Given
from gpu_triage.options.combinations import refuse_useless_combinations
from gpu_triage.options.file import options_in_file
from gpu_triage.options.table import CONFIG_FILE, SIMULATE, VARIABLE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_triage.options.table import Option

# Kubernetes describes every Service of the namespace to every container, in variables named after it, and a
# Service called gpu-triage or gpu-triage-exporter is likely.
_OTHERS_PREFIX = "GPU_TRIAGE_EXPORTER_"
_SERVICE_VARIABLE = re.compile(
    r"GPU_TRIAGE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


ScenarioOptions = Callable[[str], "Mapping[str, Given]"]
"""Tells the options that a scenario brings, by its name or path."""


def no_options(_scenario: str) -> Mapping[str, Given]:
    """No options, whatever the scenario."""
    return {}


def build_config(
    options: Sequence[Option],
    flags: Mapping[str, Given],
    environment: Mapping[str, str],
    of_scenario: ScenarioOptions = no_options,
) -> Config:
    """The checked configuration: flag beats environment variable beats file key beats scenario beats default.

    Args:
        options: every option there is.
        flags: what the command line gave, by option name.
        environment: the process's environment; an empty variable counts as not set.
        of_scenario: tells the options of the scenario that is to be simulated, if one is.

    Raises:
        ConfigError: a value, key or variable that cannot be used, or a combination that makes no sense. The
            message is one line that names the source and says what would be right.
    """
    given = {**options_in_environment(environment, options), **flags}
    if CONFIG_FILE in given:
        by_name = {option.name: option for option in options}
        path = str(_parsed(by_name[CONFIG_FILE], given[CONFIG_FILE]))
        given = {**options_in_file(path, options), **given}
    if SIMULATE in given:
        given = {**known_options(of_scenario(given[SIMULATE].texts[-1]), options), **given}
    return config_of(options, given)


def known_options(given: Mapping[str, Given], options: Sequence[Option]) -> Mapping[str, Given]:
    """What a scenario gives, as it is.

    Raises:
        ConfigError: something in it is no option that a scenario can set.
    """
    names = [option.name for option in options if option.field is not None and option.name != SIMULATE]
    for name, value in given.items():
        if name not in names:
            close = get_close_matches(name, names, n=1)
            right = f"did you mean {close[0]}?" if close else "gpu-triage serve --help lists them"
            raise ConfigError(f"{value.source}: is no option that a scenario can set; {right}")
    return given


def config_of(options: Sequence[Option], given: Mapping[str, Given], base: Config | None = None) -> Config:
    """The checked configuration: `base` (the defaults, if None) with what was given.

    Raises:
        ConfigError: as `build_config`.
    """
    config = _config_of(options, given, base or Config())
    refuse_useless_combinations(config, given, options)
    return config


def options_in_environment(environment: Mapping[str, str], options: Sequence[Option]) -> dict[str, Given]:
    """What the environment gives, by option name; several values of one option are separated by commas.

    Raises:
        ConfigError: a variable with the program's prefix is no option and none of Kubernetes' making.
    """
    by_variable = {option.variable: option for option in options}
    given: dict[str, Given] = {}
    for variable, text in sorted(environment.items()):
        option = by_variable.get(variable)
        if option is not None:
            if text:
                texts = tuple(part.strip() for part in text.split(",")) if option.many else (text,)
                given[option.name] = Given(texts, f"environment variable {variable}")
        elif variable.startswith(VARIABLE_PREFIX) and not _belongs_to_others(variable):
            close = get_close_matches(variable, by_variable, n=1)
            right = f"did you mean {close[0]}?" if close else "--help lists them"
            raise ConfigError(f"unknown environment variable {variable}; {right}")
    return given


def _belongs_to_others(variable: str) -> bool:
    return variable.startswith(_OTHERS_PREFIX) or _SERVICE_VARIABLE.fullmatch(variable) is not None


def _config_of(options: Sequence[Option], given: Mapping[str, Given], base: Config) -> Config:
    chosen: dict[str, Any] = {}  # each value's type is its option's kind's; a test compares them with Config's
    collectors: dict[str, bool] = {}
    for option in options:
        if option.name not in given or option.field is None:
            continue
        value = _parsed(option, given[option.name])
        if option.collector is not None:
            collectors[option.collector] = bool(value)
        else:
            chosen[option.field] = value
    return replace(base, collectors={**base.collectors, **collectors}, **chosen)


def _parsed(option: Option, given: Given) -> object:
    try:
        parsed = tuple(option.kind.parse(text) for text in given.texts)
    except ValueError as error:
        raise ConfigError(f"{given.source}: {error}") from error
    return parsed if option.many else parsed[0]
