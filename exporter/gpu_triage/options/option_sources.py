"""Combines flags, environment variables, file and scenario into one valid Config; useless combinations are rejected."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, pairwise
from typing import Annotated, Any, Final

import click

from gpu_triage.documents import Keyed, Parsed, Place, parse_yaml, raised_as, read_file, read_value, suggestion
from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config, JudgeOption, Origin, Setting, collector_enabled
from gpu_triage.options.option import VARIABLE_PREFIX, Option
from gpu_triage.options.option_table import CONFIG_FILE, JUDGE, SIMULATE
from gpu_triage.options.values import show_duration, split_listen_address, unix_socket_path

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
            table: Any = tree
            for section in sections:
                table = table.setdefault(section, Keyed({})).hints
            texts = getattr(option.kind, "in_file", None) or partial(_texts, many=option.multiple)
            table[last] = Annotated[tuple[str, ...], Parsed(texts)]
    with raised_as(ConfigError):
        found = read_value(Keyed(tree), parse_yaml(read_file(path), path), Place(path))
    return {key: Setting(texts, f"{path}: {key}", Origin.FILE) for key, texts in _flat(found)}


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
    path = _read(CONFIG_FILE, options, {**variables, **flags})
    file = _settings_in_file(named, options) if (named := ctx.meta.get(FILE, path)) else {}
    simulated = _read(SIMULATE, options, {**file, **variables, **flags})
    scenario = of_scenario(simulated) if simulated else {}
    return combined(options, Config(config_file=path), scenario, file, variables, flags)


def _read(key: str, options: Sequence[Option], settings: _Settings) -> str | None:
    """The value of an option that names another source."""
    option = next(each for each in options if each.key == key)
    return str(option.read(settings[key])) if key in settings else None


def judge_options_now(config: Config, options: Sequence[Option]) -> tuple[JudgeOption, ...]:
    """The judge's settings, with the file read again. Raises ConfigError if it is unreadable, or a key is unknown."""
    if config.config_file is None:
        return config.judge
    in_file = _judge_options(options, _settings_in_file(config.config_file, options))
    others = (each for each in config.judge if each.origin is not Origin.FILE)
    return tuple(sorted((*others, *in_file), key=lambda each: each.origin))


def combined(options: Sequence[Option], base: Config, scenario: _Settings, *others: _Settings) -> Config:
    """`base` with the settings of all sources, validated; the sources are in ascending order of precedence."""
    _refuse_unknown_settings(scenario, options)
    layers = (scenario, *others)
    chosen = _Chosen({key: setting for layer in layers for key, setting in layer.items()})
    # Alternatives of each other: if the user names a file, a scenario's setting is ignored.
    learns = chosen.get("baseline.from-host")
    if "baseline.file" in chosen and learns is not None and learns.origin is Origin.SCENARIO:
        del chosen["baseline.from-host"]
    values = {option: option.read(chosen[option.key]) for option in options if option.key in chosen}
    chosen.changed = frozenset(option.key for option, value in values.items() if value != option.preset)
    collectors = {option.collector: value for option, value in values.items() if option.collector is not None}
    fields = {each.field: value for each, value in values.items() if each.collector is None and each.field is not None}
    fields["judge"] = tuple(chain.from_iterable(_judge_options(options, layer) for layer in layers))
    config = replace(base, collectors={**base.collectors, **collectors}, **fields)
    _refuse_useless_combinations(config, chosen, options)
    return config


def _judge_options(options: Sequence[Option], settings: _Settings) -> Iterator[JudgeOption]:
    """Judge settings of a source; each overrides only what it names."""
    option = next(each for each in options if each.key == JUDGE)
    if setting := settings.get(JUDGE):
        yield from (replace(each, origin=setting.origin, place=setting.source) for each in option.read(setting))


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


class _Chosen(dict[str, Setting]):
    """The setting of each option that some source sets, by its key."""

    changed: frozenset[str] = frozenset()  # those with another value than the default

    def source(self, key: str) -> str:
        return self[key].source if key in self else "the default"

    def of(self, key: str) -> str:
        """The option with where it was set: ``simulate (--simulate)``."""
        return f"{key} ({self.source(key)})"


def _refuse_useless_combinations(config: Config, chosen: _Chosen, options: Sequence[Option]) -> None:
    """Raise ConfigError if options contradict each other or have no effect."""
    checks = (_intervals, _addresses, _expectations, _baseline, _simulation, _schedulers)
    for problem in chain(*(check(config, chosen) for check in checks), _collectors(config, options)):
        raise ConfigError(problem)


def _intervals(config: Config, chosen: _Chosen) -> Iterator[str]:
    intervals = (
        ("sample.fast", config.sample_fast_seconds),
        ("sample.medium", config.sample_medium_seconds),
        ("sample.slow", config.sample_slow_seconds),
    )
    for (shorter, least), (longer, seconds) in pairwise(intervals):
        if seconds < least:
            yield (
                f"{longer} ({show_duration(seconds)}, {chosen.source(longer)}) is shorter than {shorter} "
                f"({show_duration(least)}, {chosen.source(shorter)}); set --{longer} to {show_duration(least)} or more"
            )


def _addresses(config: Config, chosen: _Chosen) -> Iterator[str]:
    source = chosen.source("web.listen-address")
    if config.web_systemd_socket and "web.listen-address" in chosen:
        yield (
            f"{source} has no effect beside {chosen.of('web.systemd-socket')}, which takes the sockets of systemd's "
            "unit; leave one of them out"
        )
    for one, other in combinations(config.web_listen_addresses, 2):
        if unix_socket_path(one) is not None or unix_socket_path(other) is not None:
            if one == other:
                yield f"{source}: {one} is written twice; write it once"
            continue
        (host, port), (other_host, other_port) = split_listen_address(one), split_listen_address(other)
        if port != other_port:
            continue
        if host.lower() == other_host.lower():
            yield f"{source}: {one} and {other} are the same address; write it once"
        elif port and "" in (host, other_host):
            every, single = (one, other) if not host else (other, one)
            yield f"{source}: {every} covers every interface, so {single} is taken; keep one of them"


def _expectations(config: Config, chosen: _Chosen) -> Iterator[str]:
    count = config.expect_gpu_count
    for name, least in (("expect.pcie-generation", 1), ("expect.pcie-width", 1), ("expect.p2p", 2)):
        if name in chosen and count is not None and count < least:
            yield (
                f"{chosen.of(name)} has no effect with {count} GPUs ({chosen.source('expect.gpu-count')}); "
                f"leave it out, or set --expect.gpu-count to {least} or more"
            )


def _baseline(config: Config, chosen: _Chosen) -> Iterator[str]:
    learns = chosen.of("baseline.from-host")
    if config.baseline_from_host and config.baseline_file is not None:
        yield f"{learns} records a baseline where {chosen.of('baseline.file')} brings one; leave one of them out"
    if config.baseline_from_host and config.state_directory is None and config.simulate is None:
        yield f"{learns} has nowhere to keep what it learns; set --state.directory as well"


def _simulation(config: Config, chosen: _Chosen) -> Iterator[str]:
    if config.simulate is None:
        for name in sorted(chosen.changed & {"simulate-at", "simulate-pace"}):
            only = "name a scenario with --simulate, or leave it out"
            yield f"{chosen.of(name)} has no effect on a real host; {only}"
    elif config.replay is not None:
        yield f"{chosen.of('simulate')} and {chosen.of('replay')} are two hosts; leave one of them out"
    if config.simulate is None and config.replay is None:
        return
    host, source = (
        ("simulated", chosen.source("simulate")) if config.replay is None else ("recorded", chosen.source("replay"))
    )
    if config.replay is not None and config.flight_recorder_directory is not None:
        yield f"{chosen.of('flight-recorder.directory')} would record a recording ({source}); leave one of them out"
    for name in (
        *("path.procfs", "path.sysfs", "path.kmsg"),
        *("kubernetes.pod-resources-socket", "kubernetes.container-logs", "nccl.ras-address"),
        # A real Slurm's jobs may get the GPUs of a scenario, to rehearse its prolog.
        *(() if config.replay is None else ("slurm.jobs-directory",)),
    ):
        if name in chosen.changed:
            own = f"has no effect on a {host} host ({source}), which brings its own"
            yield f"{chosen.of(name)} {own}; leave one of them out"


def _schedulers(config: Config, chosen: _Chosen) -> Iterator[str]:
    processes, allocation = (collector_enabled(config, name, default=True) for name in ("processes", "allocation"))
    pods, allocated = chosen.source("collector.processes"), chosen.source("collector.allocation")
    jobs = chosen.get("slurm.jobs-directory")
    by_package = jobs is not None and jobs.origin is Origin.VARIABLE  # where there is slurmd
    for name, read, what in (
        (
            "kubernetes.pod-resources-socket",
            processes or allocation,
            f"names processes and allocations, which are not collected ({pods}, {allocated})",
        ),
        ("kubernetes.container-logs", processes, f"names processes, which are not collected ({pods})"),
        ("slurm.jobs-directory", allocation or by_package, f"tells allocations, which are not collected ({allocated})"),
    ):
        if name in chosen.changed and not read:
            yield f"{chosen.of(name)} {what}; leave one of them out"
    if config.slurm_jobs_directory is None and "slurm.gpu-numbers" in chosen.changed:
        without = "has no effect without jobs; set --slurm.jobs-directory, or leave it out"
        yield f"{chosen.of('slurm.gpu-numbers')} {without}"


def _collectors(config: Config, options: Sequence[Option]) -> Iterator[str]:
    switches = [option for option in options if option.collector is not None and option.preset in ("true", "false")]
    running = (collector_enabled(config, str(each.collector), each.preset == "true") for each in switches)
    if switches and not any(running):
        yield "every collector is switched off; leave at least one on"
