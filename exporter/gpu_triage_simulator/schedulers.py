"""Owners of the GPUs on a simulated host: pods from the kubelet, and jobs recorded by the Slurm prolog."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gpu_triage.machine import Moment, SlurmJob, Workload, index_name
from gpu_triage_simulator.allocation import Allocation
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.scenario import Gpu, Scenario


class SimulatedPods:
    """The pods of the scenario's processes and allocations, without those on MIG instances.

    Attributes:
        any: whether there are any at any time.
    """

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        processes = (each for each in host.scenario.processes if each.pod is not None and each.gi is None)
        given = (*(Allocation(process.gpu, process.pod) for process in processes), *host.scenario.allocations)
        self._by_uuid: dict[str, list[tuple[Allocation, Workload]]] = {}
        # A pod with many processes holds the GPU once.
        for each in dict.fromkeys(given):
            if each.pod is not None:
                workload = Workload(each.pod.name, each.pod.namespace, each.pod.container)
                for card in _cards(host.scenario, each.gpu):
                    self._by_uuid.setdefault(card.uuid, []).append((each, workload))
        self.any = bool(self._by_uuid)

    @classmethod
    def of(cls, host: SimulatedHost) -> SimulatedPods | None:
        """The pods of a host; None if it has none and so is not a Kubernetes node."""
        pods = cls(host)
        return pods if pods.any else None

    def refresh(self, at: Moment) -> None: ...

    def allocations(self, devices: Collection[str], at: Moment) -> frozenset[Workload]:  # noqa: ARG002 - PodNames
        seconds = self._host.seconds()
        given = (each for device in devices for each in self._by_uuid.get(device, ()))
        return frozenset(workload for allocation, workload in given if allocation.active(seconds))

    def known(self, at: Moment) -> bool:  # noqa: ARG002 - PodNames
        return True


class SimulatedSlurm:
    """The jobs of the scenario's allocations; attributes as in SimulatedPods."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self._allocations = tuple(each for each in host.scenario.allocations if each.slurm is not None)
        self.any = bool(self._allocations)

    @classmethod
    def of(cls, host: SimulatedHost) -> SimulatedSlurm | None:
        """The jobs of a host; None if it has none and so is not a Slurm node."""
        jobs = cls(host)
        return jobs if jobs.any else None

    def refresh(self, at: Moment, booted_at: float | None) -> tuple[str, ...]:  # noqa: ARG002 - SlurmJobs
        return ()

    def allocations(self, devices: Collection[str], at: Moment) -> frozenset[SlurmJob]:  # noqa: ARG002 - SlurmJobs
        seconds = self._host.seconds()
        return frozenset(
            SlurmJob(each.slurm.job, each.slurm.user, each.slurm.account)
            for each in self._allocations
            if each.slurm is not None and each.active(seconds) and index_name(each.gpu) in devices
        )

    def known(self, at: Moment) -> bool:  # noqa: ARG002 - SlurmJobs
        return True


def _cards(scenario: Scenario, index: int) -> Iterator[Gpu]:
    yield scenario.gpus[index]
    yield from (card.gpu for card in scenario.replacements if card.index == index)
