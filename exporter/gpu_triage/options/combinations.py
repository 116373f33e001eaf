"""Rejects combinations of options that are valid individually but make no sense together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, pairwise
from typing import TYPE_CHECKING

from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config, collector_enabled
from gpu_triage.options.values import show_duration, split_listen_address, unix_socket_path

if TYPE_CHECKING:
    from gpu_triage.options.option import Option


class _Origin(dict[str, str]):
    """Where each option was set, by its key."""

    def __missing__(self, _key: str) -> str:
        return "the default"

    def of(self, key: str) -> str:
        """The option with where it was set: ``simulate (--simulate)``."""
        return f"{key} ({self[key]})"


def refuse_useless_combinations(config: Config, sources: Mapping[str, str], options: Sequence[Option]) -> None:
    """Raise ConfigError if options contradict each other or have no effect; `sources` has where each was set."""
    origin = _Origin(sources)
    checks = (_intervals, _addresses, _expectations, _baseline, _simulation, _schedulers)
    for problem in chain(*(check(config, origin) for check in checks), _collectors(config, options)):
        raise ConfigError(problem)


def _intervals(config: Config, origin: _Origin) -> Iterator[str]:
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


def _addresses(config: Config, origin: _Origin) -> Iterator[str]:
    source = origin["web.listen-address"]
    if config.web_systemd_socket and "web.listen-address" in origin:
        yield (
            f"{source} has no effect beside {origin.of('web.systemd-socket')}, which takes the sockets of systemd's "
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


def _expectations(config: Config, origin: _Origin) -> Iterator[str]:
    count = config.expect_gpu_count
    for name, value, least in (
        ("expect.pcie-generation", config.expect_pcie_generation, 1),
        ("expect.pcie-width", config.expect_pcie_width, 1),
        ("expect.p2p", config.expect_p2p, 2),
    ):
        if value is not None and count is not None and count < least:
            yield (
                f"{origin.of(name)} has no effect with {count} GPUs ({origin['expect.gpu-count']}); "
                f"leave it out, or set --expect.gpu-count to {least} or more"
            )


def _baseline(config: Config, origin: _Origin) -> Iterator[str]:
    learns = origin.of("baseline.from-host")
    if config.baseline_from_host and config.baseline_file is not None:
        yield f"{learns} records a baseline where {origin.of('baseline.file')} brings one; leave one of them out"
    if config.baseline_from_host and config.state_directory is None and config.simulate is None:
        yield f"{learns} has nowhere to keep what it learns; set --state.directory as well"


def _simulation(config: Config, origin: _Origin) -> Iterator[str]:
    if config.simulate is None:
        paced = (("simulate-at", config.simulate_at_seconds > 0), ("simulate-pace", config.simulate_pace != 1))
        for name, changed in paced:
            if changed:
                only = "name a scenario with --simulate, or leave it out"
                yield f"{origin.of(name)} has no effect on a real host; {only}"
    elif config.replay is not None:
        yield f"{origin.of('simulate')} and {origin.of('replay')} are two hosts; leave one of them out"
    if config.simulate is None and config.replay is None:
        return
    host, source = ("simulated", origin["simulate"]) if config.replay is None else ("recorded", origin["replay"])
    if config.replay is not None and config.flight_recorder_directory is not None:
        yield f"{origin.of('flight-recorder.directory')} would record a recording ({source}); leave one of them out"
    for name in (
        *("path.procfs", "path.sysfs", "path.kmsg"),
        *("kubernetes.pod-resources-socket", "kubernetes.container-logs", "nccl.ras-address"),
        # A real Slurm's jobs may get the GPUs of a scenario, to rehearse its prolog.
        *(() if config.replay is None else ("slurm.jobs-directory",)),
    ):
        if _changed(config, name):
            own = f"has no effect on a {host} host ({source}), which brings its own"
            yield f"{origin.of(name)} {own}; leave one of them out"


def _schedulers(config: Config, origin: _Origin) -> Iterator[str]:
    processes, allocation = (collector_enabled(config, name, default=True) for name in ("processes", "allocation"))
    pods, allocated = origin["collector.processes"], origin["collector.allocation"]
    for name, read, what in (
        (
            "kubernetes.pod-resources-socket",
            processes or allocation,
            f"names processes and allocations, which are not collected ({pods}, {allocated})",
        ),
        ("kubernetes.container-logs", processes, f"names processes, which are not collected ({pods})"),
        ("slurm.jobs-directory", allocation, f"tells allocations, which are not collected ({allocated})"),
    ):
        if _changed(config, name) and not read:
            yield f"{origin.of(name)} {what}; leave one of them out"
    if config.slurm_jobs_directory is None and _changed(config, "slurm.gpu-numbers"):
        without = "has no effect without jobs; set --slurm.jobs-directory, or leave it out"
        yield f"{origin.of('slurm.gpu-numbers')} {without}"


def _changed(config: Config, key: str) -> bool:
    """Whether an option other than a duration differs from its default."""
    field = key.replace(".", "_").replace("-", "_")
    return bool(getattr(config, field) != getattr(Config(), field))


def _collectors(config: Config, options: Sequence[Option]) -> Iterator[str]:
    switches = [option for option in options if option.collector is not None and option.preset in ("true", "false")]
    running = (collector_enabled(config, str(each.collector), each.preset == "true") for each in switches)
    if switches and not any(running):
        yield "every collector is switched off; leave at least one on"
