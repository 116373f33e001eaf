"""NUMA locality of processes: their allowed CPUs, and the share of their memory that is on or near the GPU's node."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from gpu_triage.driver.kernel.files import parse_count, parse_file
from gpu_triage.driver.kernel.numa import near_nodes, read_distances, read_numa_nodes
from gpu_triage.driver.kernel.pci_bus import numa_node_of
from gpu_triage.driver.kernel.procfs import read_process_stat
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.metrics.contract import GpuCollector, GpuRound
from gpu_triage.read.metrics.metric import Tier, gpu_gauge
from gpu_triage.read.metrics.rendering import Each
from gpu_triage.read.processes.facts import ProcessFacts, driver_pids
from gpu_triage.read.processes.listing import list_processes


class Placement(NamedTuple):
    """Where a process may run, seen from its GPU. By default it is unknown, or all nodes are about as near."""

    local: float | None = None  # 1 on the GPU's NUMA node or one about as near, 0 on clearly farther ones; None on both
    distance: int | None = None  # if it is not local and that is known
    unpinned: bool = False  # on every CPU of the host


class GpuLocality:
    def __init__(self, gpu: GpuRound) -> None:
        try:
            self._nodes, self._distances, near = _near_nodes(gpu)
        except HostReadFailed as failed:
            gpu.inquiry.failures.append(failed.reason)
            self._nodes, self._distances, near = {}, {}, frozenset()
        self._local_cpus = frozenset().union(*(self._nodes[each] for each in near))
        self._all_cpus = frozenset().union(*self._nodes.values())
        self.can_tell = bool(self._local_cpus) and self._local_cpus != self._all_cpus

    def of(self, facts: ProcessFacts | None) -> Placement:
        allowed = ((facts and facts.allowed_cpus) or frozenset()) & self._all_cpus
        if not self.can_tell or not allowed:
            return Placement()
        if allowed & self._local_cpus:
            return Placement(1.0 if allowed <= self._local_cpus else None, unpinned=allowed == self._all_cpus)
        reached = (node for node, cpus in self._nodes.items() if cpus & allowed)
        return Placement(0.0, min((self._distances[node] for node in reached if node in self._distances), default=None))


def _near_nodes(gpu: GpuRound) -> tuple[Mapping[int, frozenset[int]], Mapping[int, int], frozenset[int]]:
    """CPUs and distances by node, and the nodes near the GPU; empty if unknown. Nodes of memory only do not count."""
    sysfs, bus_id = gpu.machine.sysfs, gpu.inquiry.device.pci_bus_id
    node = numa_node_of(sysfs, bus_id) if bus_id else None
    nodes = read_numa_nodes(sysfs)
    if node is None or node < 0:
        return nodes, {}, frozenset()
    distances = read_distances(sysfs, node) if len(nodes) > 1 else {}
    return nodes, distances, near_nodes(node, nodes, distances)


_MOST_BYTES: Final = 4 << 20  # per numa_maps file: about 30,000 mappings
_PAGES: Final = re.compile(r"(?<= )N([0-9]{1,5})=([0-9]{1,20})(?= |$)")
_PAGE_KIB: Final = re.compile(r" kernelpagesize_kB=(\S+)")

GPU_PROCESS_NUMA_MEMORY_LOCAL_RATIO = gpu_gauge(
    "Share of the process's resident memory on the GPU's NUMA node or one about as near, 0-1. Absent if all nodes "
    "are about as near, if unknown, and if /proc/PID/numa_maps is not readable. Off by default.",
    labels=("pid", "process"),
    source="/proc/PID/numa_maps",
)


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Share of the memory of one process that is on the GPU's NUMA node or one at a similar distance, 0-1."""

    pid: int
    name: str
    local_ratio: Annotated[float, GPU_PROCESS_NUMA_MEMORY_LOCAL_RATIO]


@dataclass(frozen=True, slots=True)
class ProcessMemoryLocalityReading:
    """Processes of one GPU with a readable numa_maps; empty on single-node hosts."""

    processes: Annotated[tuple[ProcessMemory, ...], Each("pid", "name")]


def read_memory_locality(gpu: GpuRound, most: int, within_seconds: float) -> ProcessMemoryLocalityReading:
    """Read where the memory of a GPU's processes is (nvmlDeviceGet*RunningProcesses, /proc/PID/numa_maps).

    At most `most` processes are read, and no further one is begun after `within_seconds`. To produce numa_maps, the
    kernel walks the process's page tables (about 40 ms per GiB of 4 KiB pages) while holding the process's mmap lock:
    page faults proceed, but mmap and munmap block. Each distinct failure, ``out_of_time`` too, is recorded once.
    """
    nodes, _, near = _near_nodes(gpu)
    machine, failures, found = gpu.machine, set[str](), list[ProcessMemory]()
    all_near = not near or len(near) == len(nodes)
    if all_near or not driver_pids(machine.procfs, gpu.versions.driver).procfs:
        return ProcessMemoryLocalityReading(())
    for process in list_processes(gpu.inquiry).processes[:most]:
        folder = machine.procfs / str(process.pid)
        if machine.clock.now().monotonic - gpu.at.monotonic > within_seconds:
            failures.add("out_of_time")
            break
        try:
            ratio = _local_ratio(folder / "numa_maps", near)
        except HostReadFailed as failed:
            failures.add(failed.reason)
            continue
        if ratio is not None and (stat := read_process_stat(folder)) is not None:
            found.append(ProcessMemory(process.pid, stat.name, ratio))
    gpu.inquiry.failures.extend(sorted(failures))
    return ProcessMemoryLocalityReading(tuple(found))


def parse_numa_maps(text: str) -> Mapping[int, int]:
    """Parse /proc/PID/numa_maps into resident bytes by NUMA node.

    One mapping per line: ``7f0c2c000000 default anon=512 dirty=512 N0=500 N1=12 kernelpagesize_kB=4``. Page counts are
    in units of that page size, 2048 or 1048576 KiB for hugetlbfs; transparent huge pages count as 4 KiB pages.
    """
    nodes: Counter[int] = Counter()
    for line in text.split("\n"):
        size = _PAGE_KIB.search(line)
        for node, count in _PAGES.findall(line):
            nodes[int(node)] += int(count) * (parse_count(size[1]) if size else 4) * 1024
    return nodes


def _local_ratio(numa_maps: Path, near: frozenset[int]) -> float | None:
    """Share of memory on these nodes; None if the process ended or has no resident memory."""
    resident = parse_file(numa_maps, parse_numa_maps, _MOST_BYTES) or {}
    total = sum(resident.values())
    return sum(resident.get(node, 0) for node in near) / total if total else None


PROCESS_MEMORY_LOCALITY = GpuCollector(
    about="share of processes' memory on the GPU's NUMA node; walks their page tables under their memory lock",
    tier=Tier.SLOW,
    # Half of the deadline: reading the last process may take past the time limit.
    reader=lambda config: partial(
        read_memory_locality, most=config.process_max, within_seconds=config.sample_deadline_seconds / 2
    ),
    default=False,
)
