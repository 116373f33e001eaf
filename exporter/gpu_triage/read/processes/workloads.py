"""The pod and container of a process on a GPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Final

from gpu_triage.machine import PodNames, Workload, dra_name
from gpu_triage.read.gpu.identity import read_minor_number
from gpu_triage.read.gpu.mig import read_mig_uuids
from gpu_triage.read.metrics.rounds import GpuRound
from gpu_triage.read.processes.listing import ListedProcess
from gpu_triage.read.processes.pids import ProcessFacts

NO_WORKLOAD: Final = Workload("", "", "")
"""For a process outside any pod, or in a pod with unknown name."""


class WorkloadFinder:
    """Finds the pods and containers of one GPU's processes."""

    def __init__(self, gpu: GpuRound) -> None:
        self._gpu = gpu
        # By MIG instances: processes on the same instances share the result.
        self._of_instances: dict[frozenset[tuple[int, int]], Workload] = {}

    def workload(self, process: ListedProcess, facts: ProcessFacts | None) -> Workload:
        """Find a process's pod and container; names that are not certain are empty.

        The process's cgroup contains its container ID, which the log symlinks map to names. Without these links, the
        kubelet only provides pod names and the cgroup only UIDs, with no mapping between them; then the result is what
        all allocations of the device have in common.
        """
        machine = self._gpu.machine
        if facts is None or not facts.owner.pod_uid:
            return NO_WORKLOAD
        known = machine.containers.workload(facts.owner.container_id) if machine.containers is not None else None
        if known is not None or machine.pods is None:
            return known or NO_WORKLOAD
        held = self._of_instances.get(process.instances)
        if held is None:
            held = self._of_instances[process.instances] = self._held(process.instances, machine.pods)
        return held

    def _held(self, instances: frozenset[tuple[int, int]], pods: PodNames) -> Workload:
        """What all allocations of the GPU, or of these MIG instances, have in common."""
        at = self._gpu.at
        return in_common(pods.allocations(self._devices(instances), at) or pods.allocations(self._claimed, at))

    @cached_property
    def _claimed(self) -> frozenset[str]:
        """The GPU's DRA name, based on its device minor number."""
        minor = read_minor_number(self._gpu.inquiry)
        return frozenset() if minor is None else frozenset({dra_name(minor)})

    def _devices(self, instances: frozenset[tuple[int, int]]) -> frozenset[str]:
        """UUIDs of the MIG instances, or of the GPU if there are none."""
        if not instances:
            return frozenset({self._gpu.inquiry.device.uuid})
        return frozenset(self._mig_uuids[each] for each in instances if each in self._mig_uuids)

    @cached_property
    def _mig_uuids(self) -> Mapping[tuple[int, int], str]:
        return read_mig_uuids(self._gpu.inquiry)


def in_common(workloads: Collection[Workload]) -> Workload:
    """What all workloads have in common: the container, else the pod, else nothing."""
    if len(workloads) == 1:
        return next(iter(workloads))
    pods = {(workload.pod, workload.namespace) for workload in workloads}
    return Workload(*pods.pop(), container="") if len(pods) == 1 else NO_WORKLOAD
