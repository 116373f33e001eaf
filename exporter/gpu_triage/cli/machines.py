"""The machine that a configuration names: this host, a recording, or a scenario.

The modules for the latter two are imported lazily: on a real host they would only take memory.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_triage.cli.simulation import simulated, stepped, virtual_clock
from gpu_triage.driver.nvml.probe import ProbeProcess
from gpu_triage.log import fields
from gpu_triage.machine import real_machine
from gpu_triage.read.processes.container_names import ContainerLinks
from gpu_triage.read.processes.pods import PodDirectory, kubelet
from gpu_triage.read.processes.slurm_jobs import JobDirectory

if TYPE_CHECKING:
    from contextlib import ExitStack

    from gpu_triage.machine import Machine, PodNames, SlurmJobs
    from gpu_triage.options.config import Config

log = logging.getLogger(__name__)


def live_machine(config: Config, stack: ExitStack) -> Machine:
    """The machine of a configuration: a recording, a scenario, or this host."""
    if config.replay is not None:
        from gpu_triage.record.replay import replayed_machine  # noqa: PLC0415 - see above

        log.warning("this host is a RECORDING", extra=fields(path=str(config.replay)))
        return stack.enter_context(replayed_machine(config.replay))
    if config.simulate is None:
        visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
        machine = real_machine(config.path_sysfs, config.path_procfs, config.path_kmsg, visible)
        logs = config.kubernetes_container_logs
        containers = None if logs is None else ContainerLinks(logs)
        pods, slurm = _pods(config), _slurm(config)
        return replace(machine, pods=pods, containers=containers, slurm=slurm, probe=ProbeProcess())
    return simulated(config, stack)


def stepped_machine(config: Config, stack: ExitStack, last_seconds: float = 0.0) -> Machine:
    """The machine for a one-shot command; scenarios and recordings use a virtual clock, so that there is no waiting.

    `last_seconds` is how long before the end of a recording to start; 0 for its beginning.
    """
    if config.simulate is not None:
        return stepped(config, stack)
    if config.replay is None:
        return live_machine(config, stack)
    from gpu_triage.record.replay import replayed_machine  # noqa: PLC0415 - see above

    clock = virtual_clock()
    return stack.enter_context(replayed_machine(config.replay, clock=clock, last_seconds=last_seconds or None))


def _pods(config: Config) -> PodNames | None:
    socket = config.kubernetes_pod_resources_socket
    if socket is None:
        return None
    return PodDirectory(kubelet(socket), config.stale_after * config.sample_medium_seconds)


def _slurm(config: Config) -> SlurmJobs | None:
    if config.slurm_jobs_directory is None:
        return None
    fresh_for = config.stale_after * config.sample_medium_seconds
    return JobDirectory(config.slurm_jobs_directory, config.slurm_gpu_numbers, fresh_for)
