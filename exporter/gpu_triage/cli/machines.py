"""The host that a configuration names: this one, a recording, or a scenario.

The modules for the latter two are imported lazily: on a real host they would only take memory. Only here is a host
made up: what runs on it cannot tell.
"""

import logging
import os
import platform
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Final, NamedTuple

from gpu_triage.cli.simulation import simulated, virtual_clock
from gpu_triage.driver.nvml.probe import ProbeProcess
from gpu_triage.judge.report.report import JudgedHost
from gpu_triage.log import fields
from gpu_triage.machine import Machine, SteppedClock, real_machine
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_SIMULATED
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes.pods import ContainerLinks, PodDirectory, kubelet
from gpu_triage.read.processes.slurm_jobs import JobDirectory

log = logging.getLogger(__name__)

_APART: Final = "simulated"
"""Folder in the state directory for a host that is made up: its history does not mix with this host's."""


class Host(NamedTuple):
    """What a configuration names, and the configuration of what runs there."""

    machine: Machine
    config: Config
    progress: Callable[[], str] | None = None  # what happens next in a scenario, as a sentence


def live_host(config: Config, stack: ExitStack) -> Host:
    """The host of a configuration: a recording, a scenario, or this one.

    Raises ConfigError if the scenario would start long after its last event, StateError if its state isn't writable.
    """
    if is_made_up(config):
        apart = kept_apart(config)
        if apart.state_directory is not None:
            with suppress(OSError):
                apart.state_directory.mkdir(exist_ok=True)
        if config.replay is not None:
            log.warning("this host is a RECORDING", extra=fields(path=str(config.replay)))
        return _made_up(_by_its_clock(apart), stack)
    visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    fresh_for = config.stale_after * config.sample_medium_seconds
    socket, logs = config.kubernetes_pod_resources_socket, config.kubernetes_container_logs
    machine = replace(
        real_machine(config.path_sysfs, config.path_procfs, config.path_kmsg, visible),
        pods=None if socket is None else PodDirectory(kubelet(socket), fresh_for),
        containers=None if logs is None else ContainerLinks(logs),
        probe=ProbeProcess(),
    )
    return Host(_with_jobs(machine, config), config)


def stepped_host(config: Config, stack: ExitStack, last_seconds: float = 0.0) -> Host:
    """The host for a one-shot command; scenarios and recordings use a virtual clock, so that there is no waiting.

    The exporter's state is by another clock, and not read. `last_seconds`: where in a recording to start; 0: its begin.
    """
    if not is_made_up(config):
        return live_host(config, stack)
    return _made_up(replace(config, state_directory=None), stack, virtual_clock(), last_seconds or None)


def _made_up(
    config: Config, stack: ExitStack, clock: SteppedClock | None = None, last_seconds: float | None = None
) -> Host:
    if config.replay is not None:
        from gpu_triage.record.replay import replayed_machine  # noqa: PLC0415 - see above

        replayed = replayed_machine(config.replay, clock=clock, last_seconds=last_seconds)
        return Host(stack.enter_context(replayed), config)
    made = simulated(config, stack, clock)
    return Host(_with_jobs(made.machine, config), made.remembering(config), made.progress)


def _with_jobs(machine: Machine, config: Config) -> Machine:
    if (jobs := config.slurm_jobs_directory) is None:
        return machine
    fresh_for = config.stale_after * config.sample_medium_seconds
    return replace(machine, slurm=JobDirectory(jobs, config.slurm_gpu_numbers, fresh_for, machine.procfs))


def is_made_up(config: Config) -> bool:
    return config.simulate is not None or config.replay is not None


def kept_apart(config: Config) -> Config:
    """The configuration, with the state directory of a host that is made up beside that of this host."""
    if config.state_directory is None or not is_made_up(config):
        return config
    return replace(config, state_directory=config.state_directory / _APART)


def judged_host(config: Config, *, continuous: bool) -> JudgedHost:
    if config.replay is not None:
        return JudgedHost(str(config.replay), str(config.replay), continuous)
    name = config.simulate or platform.node() or "this host"
    return JudgedHost(name, None, continuous, simulated=config.simulate is not None)


def constants(config: Config) -> tuple[Sample, ...]:
    """What is published of the host under this configuration, and never changes."""
    return (GPU_EXPORTER_SIMULATED.sample(is_made_up(config)),)


def _by_its_clock(config: Config) -> Config:
    """The configuration for a clock that runs faster: a round of the exporter takes as long as in real time."""
    pace = config.simulate_pace
    return replace(
        config,
        sample_fast_seconds=config.sample_fast_seconds * pace,
        sample_medium_seconds=config.sample_medium_seconds * pace,
        sample_slow_seconds=config.sample_slow_seconds * pace,
        sample_deadline_seconds=config.sample_deadline_seconds * pace,
    )
