"""NUMA locality of a process: its allowed CPUs compared with the NUMA node of the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from gpu_triage.driver.kernel.numa import near_nodes, read_distances, read_numa_nodes
from gpu_triage.driver.kernel.pci_bus import numa_node_of
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.metrics.rounds import GpuRound
from gpu_triage.read.processes.pids import ProcessFacts


class Locality(Enum):
    """Where a process may run, relative to its GPU."""

    LOCAL = "every allowed CPU is on the GPU's NUMA node, or on one about as near"
    REMOTE = "every allowed CPU is on a node that is clearly farther"
    SPANNING = "some allowed CPUs are near, some are not"
    UNPINNED = "every CPU of the host is allowed"
    UNKNOWN = "the GPU's node or the process's CPUs are not known, or all nodes of the host are about as near"


class GpuLocality:
    """Classifies CPU affinities relative to one GPU's NUMA node.

    It `can_tell` if some of the host's CPUs are farther from the GPU than others.
    """

    def __init__(self, gpu: GpuRound) -> None:
        bus_id = gpu.inquiry.device.pci_bus_id
        sysfs = gpu.machine.sysfs
        node = numa_node_of(sysfs, bus_id) if bus_id else None
        self._distances: Mapping[int, int] = {}
        try:
            self._nodes = read_numa_nodes(sysfs)
            if node is not None and node >= 0 and len(self._nodes) > 1:
                self._distances = read_distances(sysfs, node)
        except HostReadFailed as failed:
            gpu.inquiry.failures.append(failed.reason)
            self._nodes = {}
        near = near_nodes(-1 if node is None else node, self._nodes, self._distances)
        self._local_cpus = frozenset().union(*(self._nodes[each] for each in near))
        self._all_cpus = frozenset().union(*self._nodes.values())
        self.can_tell = bool(self._local_cpus) and self._local_cpus != self._all_cpus

    def distance(self, facts: ProcessFacts | None) -> int | None:
        """NUMA distance to a remote process; None for other processes or if unknown."""
        if self.locality(facts) is not Locality.REMOTE:
            return None
        allowed = self._allowed(facts)
        reached = (node for node, cpus in self._nodes.items() if cpus & allowed)
        return min((self._distances[node] for node in reached if node in self._distances), default=None)

    def locality(self, facts: ProcessFacts | None) -> Locality:
        """Classify where a process may run; `facts` is None if nothing is known about it."""
        allowed = self._allowed(facts)
        if not self.can_tell or not allowed:
            return Locality.UNKNOWN
        if allowed == self._all_cpus:
            return Locality.UNPINNED
        if allowed <= self._local_cpus:
            return Locality.LOCAL
        return Locality.SPANNING if allowed & self._local_cpus else Locality.REMOTE

    def _allowed(self, facts: ProcessFacts | None) -> frozenset[int]:
        return (facts.allowed_cpus or frozenset()) & self._all_cpus if facts else frozenset()
