"""Owners of the GPUs on a simulated host: pods from the kubelet, and jobs recorded by the Slurm prolog."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gpu_triage.machine import Holder, Moment, index_name
from gpu_triage_simulator.allocation import Allocation
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.scenario import Gpu, Scenario


class SimulatedScheduler:
    def __init__(self, host: SimulatedHost, held: Collection[tuple[str, Allocation, Holder]]) -> None:
        """`held` are devices, when they are held, and by whom."""
        self._host = host
        self._held = held

    def refresh(self, at: Moment) -> tuple[str, ...]:  # noqa: ARG002 - HolderSource
        return ()

    def holders(self, devices: Collection[str], at: Moment) -> frozenset[Holder]:  # noqa: ARG002 - HolderSource
        seconds = self._host.seconds()
        return frozenset(
            holder for device, allocation, holder in self._held if device in devices and allocation.active(seconds)
        )

    def known(self, at: Moment) -> bool:  # noqa: ARG002 - HolderSource
        return True


def pods_of(host: SimulatedHost) -> SimulatedScheduler | None:
    """The pods of processes and allocations, without those on MIG instances; None if a host never has any."""
    processes = (each for each in host.scenario.processes if each.pod is not None and each.gi is None)
    given = (*(Allocation(process.gpu, process.pod) for process in processes), *host.scenario.allocations)
    held = [
        (card.uuid, each, Holder(each.pod.name, each.pod.namespace, each.pod.container))
        for each in dict.fromkeys(given)  # a pod with many processes holds the GPU once
        if each.pod is not None
        for card in _cards(host.scenario, each.gpu)
    ]
    return SimulatedScheduler(host, held) if held else None


def slurm_jobs_of(host: SimulatedHost) -> SimulatedScheduler | None:
    """The Slurm jobs of allocations; None if a host never has any."""
    held = [
        (index_name(each.gpu), each, Holder("", "", "", each.slurm.job, each.slurm.user, each.slurm.account))
        for each in host.scenario.allocations
        if each.slurm is not None
    ]
    return SimulatedScheduler(host, held) if held else None


def _cards(scenario: Scenario, index: int) -> Iterator[Gpu]:
    yield scenario.gpus[index]
    yield from (card.gpu for card in scenario.replacements if card.index == index)
