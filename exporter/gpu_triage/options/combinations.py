"""Rejects combinations of options that are valid individually but make no sense together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, pairwise
from typing import TYPE_CHECKING

from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config, collector_enabled
from gpu_triage.options.values import show_duration, split_listen_address, unix_socket_path

if TYPE_CHECKING:
    from gpu_triage.options.option import Option


def refuse_useless_combinations(config: Config, sources: Mapping[str, str], options: Sequence[Option]) -> None:
    """Check what can't be checked per option; `sources` has where each option was set, by its key.

    Raises:
        ConfigError: two options contradict each other, or one has no effect with another.
    """
    origin = defaultdict(lambda: "the default", sources)
    checks = (_intervals, _addresses, _expectations, _baseline, _simulation, _kubernetes, _slurm)
    for problem in chain(*(check(config, origin) for check in checks), _collectors(config, options)):
        raise ConfigError(problem)


def _intervals(config: Config, origin: Mapping[str, str]) -> Iterator[str]:
    intervals = (
        ("sample.fast", config.sample_fast_seconds),
        ("sample.medium", config.sample_medium_seconds),
        ("sample.slow", config.sample_slow_seconds),
    )
    for (shorter, least), (longer, seconds) in pairwise(intervals):
        if seconds < least:
            yield (
                f"{longer} ({show_duration(seconds)}, {origin[longer]}) is shorter than {shorter} "
                f"({show_duration(least)}, {origin[shorter]}); set --{longer} to {show_duration(least)} or more"
            )


def _addresses(config: Config, origin: Mapping[str, str]) -> Iterator[str]:
    source = origin["web.listen-address"]
    if config.web_systemd_socket and source != "the default":
        yield (
            f"{source} has no effect beside web.systemd-socket ({origin['web.systemd-socket']}), "
            "which takes the sockets of systemd's unit; leave one of them out"
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


def _expectations(config: Config, origin: Mapping[str, str]) -> Iterator[str]:
    count = config.expect_gpu_count
    needed = (
        ("expect.pcie-generation", config.expect_pcie_generation, 1),
        ("expect.pcie-width", config.expect_pcie_width, 1),
        ("expect.p2p", config.expect_p2p, 2),
    )
    for name, value, least in needed:
        if value is not None and count is not None and count < least:
            yield (
                f"{name} ({origin[name]}) has no effect with {count} GPUs ({origin['expect.gpu-count']}); "
                f"leave it out, or set --expect.gpu-count to {least} or more"
            )


def _baseline(config: Config, origin: Mapping[str, str]) -> Iterator[str]:
    learns = f"baseline.from-host ({origin['baseline.from-host']})"
    if config.baseline_from_host and config.baseline_file is not None:
        brings = f"baseline.file ({origin['baseline.file']})"
        yield f"{learns} records a baseline where {brings} brings one; leave one of them out"
    if config.baseline_from_host and config.state_directory is None and config.simulate is None:
        yield f"{learns} has nowhere to keep what it learns; set --state.directory as well"


def _simulation(config: Config, origin: Mapping[str, str]) -> Iterator[str]:
    for name, changed in (
        ("simulate-at", config.simulate_at_seconds > 0),
        ("simulate-pace", config.simulate_pace != 1),
    ):
        if config.simulate is None and changed:
            yield (
                f"{name} ({origin[name]}) has no effect on a real host; "
                "name a scenario with --simulate, or leave it out"
            )
    if config.simulate is None and config.replay is None:
        return
    if config.simulate is not None and config.replay is not None:
        yield (f"simulate ({origin['simulate']}) and replay ({origin['replay']}) are two hosts; leave one of them out")
    host, source = ("simulated", origin["simulate"]) if config.replay is None else ("recorded", origin["replay"])
    real = Config()
    paths = (
        ("path.procfs", config.path_procfs, real.path_procfs),
        ("path.sysfs", config.path_sysfs, real.path_sysfs),
        ("path.kmsg", config.path_kmsg, real.path_kmsg),
        ("kubernetes.pod-resources-socket", config.kubernetes_pod_resources_socket, None),
        ("kubernetes.container-logs", config.kubernetes_container_logs, None),
        ("slurm.jobs-directory", config.slurm_jobs_directory, None),
    )
    if config.replay is not None and config.flight_recorder_directory is not None:
        yield (
            f"flight-recorder.directory ({origin['flight-recorder.directory']}) would record a recording "
            f"({origin['replay']}); leave one of them out"
        )
    for name, path, default in paths:
        if path != default:
            yield (
                f"{name} ({origin[name]}) has no effect on a {host} host ({source}), "
                "which brings its own; leave one of them out"
            )


def _kubernetes(config: Config, origin: Mapping[str, str]) -> Iterator[str]:
    names_pods = config.kubernetes_pod_resources_socket is not None
    dependent = ("processes", "allocation")
    if names_pods and not any(collector_enabled(config, name, default=True) for name in dependent):
        yield (
            f"kubernetes.pod-resources-socket ({origin['kubernetes.pod-resources-socket']}) names processes and "
            f"allocations, which are not collected ({origin['collector.processes']}, "
            f"{origin['collector.allocation']}); leave one of them out"
        )
    names_containers = config.kubernetes_container_logs is not None
    if names_containers and not collector_enabled(config, "processes", default=True):
        yield (
            f"kubernetes.container-logs ({origin['kubernetes.container-logs']}) names processes, which are not "
            f"collected ({origin['collector.processes']}); leave one of them out"
        )


def _slurm(config: Config, origin: Mapping[str, str]) -> Iterator[str]:
    directory = config.slurm_jobs_directory
    if directory is not None and not collector_enabled(config, "allocation", default=True):
        yield (
            f"slurm.jobs-directory ({origin['slurm.jobs-directory']}) tells allocations, which are not collected "
            f"({origin['collector.allocation']}); leave one of them out"
        )
    if directory is None and config.slurm_gpu_numbers != Config().slurm_gpu_numbers:
        yield (
            f"slurm.gpu-numbers ({origin['slurm.gpu-numbers']}) has no effect without jobs; set "
            "--slurm.jobs-directory, or leave it out"
        )


def _collectors(config: Config, options: Sequence[Option]) -> Iterator[str]:
    switches = [option for option in options if option.collector is not None and option.preset in ("true", "false")]
    running = (collector_enabled(config, str(each.collector), each.preset == "true") for each in switches)
    if switches and not any(running):
        yield "every collector is switched off; leave at least one on"
