"""Options that are right one by one and useless together."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from gpu_triage.config import Config, collector_enabled
from gpu_triage.errors import ConfigError
from gpu_triage.options.values import show_duration, split_listen_address, unix_socket_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_triage.given import Given
    from gpu_triage.options.table import Option


def refuse_useless_combinations(config: Config, given: Mapping[str, Given], options: Sequence[Option]) -> None:
    """Check what no single value can tell.

    Raises:
        ConfigError: two options contradict each other, or one has no effect beside another.
    """
    _check_intervals(config, given)
    _check_addresses(config, given)
    _check_expectations(config, given)
    _check_baseline(config, given)
    _check_simulation(config, given)
    _check_kubernetes(config, given)
    _check_collectors(config, options)


def _origin(name: str, given: Mapping[str, Given]) -> str:
    return given[name].source if name in given else "the default"


def _check_intervals(config: Config, given: Mapping[str, Given]) -> None:
    intervals = (
        ("sample.fast", config.sample_fast_seconds),
        ("sample.medium", config.sample_medium_seconds),
        ("sample.slow", config.sample_slow_seconds),
    )
    for (shorter, least), (longer, seconds) in pairwise(intervals):
        if seconds < least:
            raise ConfigError(
                f"{longer} ({show_duration(seconds)}, {_origin(longer, given)}) is shorter than "
                f"{shorter} ({show_duration(least)}, {_origin(shorter, given)}); "
                f"set --{longer} to {show_duration(least)} or more"
            )


def _check_addresses(config: Config, given: Mapping[str, Given]) -> None:
    source = _origin("web.listen-address", given)
    if config.web_systemd_socket and "web.listen-address" in given:
        raise ConfigError(
            f"{source} has no effect beside web.systemd-socket ({_origin('web.systemd-socket', given)}), "
            "which takes the sockets of systemd's unit; leave one of them out"
        )
    for one, other in combinations(config.web_listen_addresses, 2):
        if unix_socket_path(one) is not None or unix_socket_path(other) is not None:
            if one == other:
                raise ConfigError(f"{source}: {one} is written twice; write it once")
            continue
        (host, port), (other_host, other_port) = split_listen_address(one), split_listen_address(other)
        if port != other_port:
            continue
        if host.lower() == other_host.lower():
            raise ConfigError(f"{source}: {one} and {other} are the same address; write it once")
        if port and "" in (host, other_host):
            every, single = (one, other) if not host else (other, one)
            raise ConfigError(f"{source}: {every} covers every interface, so {single} is taken; keep one of them")


def _check_expectations(config: Config, given: Mapping[str, Given]) -> None:
    count = config.expect_gpu_count
    if count is None:
        return
    needed = (
        ("expect.pcie-generation", config.expect_pcie_generation, 1),
        ("expect.pcie-width", config.expect_pcie_width, 1),
        ("expect.p2p", config.expect_p2p, 2),
    )
    for name, value, least in needed:
        if value is not None and count < least:
            raise ConfigError(
                f"{name} ({_origin(name, given)}) says nothing about {count} GPUs "
                f"({_origin('expect.gpu-count', given)}); "
                f"leave it out, or set --expect.gpu-count to {least} or more"
            )


def _check_baseline(config: Config, given: Mapping[str, Given]) -> None:
    learns = f"baseline.from-host ({_origin('baseline.from-host', given)})"
    if config.baseline_from_host and config.baseline_file is not None:
        raise ConfigError(
            f"{learns} records a baseline where baseline.file ({_origin('baseline.file', given)}) brings one; "
            "leave one of them out"
        )
    if config.baseline_from_host and config.state_directory is None and config.simulate is None:
        raise ConfigError(f"{learns} has nowhere to keep what it learns; set --state.directory as well")


def _check_simulation(config: Config, given: Mapping[str, Given]) -> None:
    if config.simulate is None and config.simulate_pace != 1:
        raise ConfigError(
            f"simulate-pace ({_origin('simulate-pace', given)}) has no effect on a real host; "
            "name a scenario with --simulate, or leave it out"
        )
    if config.simulate is None and config.replay is None:
        return
    if config.simulate is not None and config.replay is not None:
        raise ConfigError(
            f"simulate ({_origin('simulate', given)}) and replay ({_origin('replay', given)}) are two hosts; "
            "leave one of them out"
        )
    host = f"a {'simulated' if config.replay is None else 'recorded'} host"
    source = _origin("simulate" if config.replay is None else "replay", given)
    real = Config()
    paths = (
        ("path.procfs", config.path_procfs, real.path_procfs),
        ("path.sysfs", config.path_sysfs, real.path_sysfs),
        ("path.kmsg", config.path_kmsg, real.path_kmsg),
        ("kubernetes.pod-resources-socket", config.kubernetes_pod_resources_socket, None),
    )
    for name, path, default in paths:
        if path != default:
            raise ConfigError(
                f"{name} ({_origin(name, given)}) has no effect on {host} ({source}), "
                "which brings its own; leave one of them out"
            )


def _check_kubernetes(config: Config, given: Mapping[str, Given]) -> None:
    if config.kubernetes_pod_resources_socket is None:
        return
    name = "kubernetes.pod-resources-socket"
    if not collector_enabled(config, "processes", default=True):
        raise ConfigError(
            f"{name} ({_origin(name, given)}) names processes, which are not collected "
            f"({_origin('collector.processes', given)}); leave one of them out"
        )


def _check_collectors(config: Config, options: Sequence[Option]) -> None:
    switches = [option for option in options if option.collector is not None and option.preset in ("true", "false")]
    running = (collector_enabled(config, str(each.collector), each.preset == "true") for each in switches)
    if switches and not any(running):
        raise ConfigError("every collector is switched off; leave at least one on")
