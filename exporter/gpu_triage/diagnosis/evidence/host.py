"""A host's evidence: its GPUs, and what of the host is scarce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gpu_triage.diagnosis.evidence import thresholds
from gpu_triage.diagnosis.evidence.cgroups import pressure
from gpu_triage.diagnosis.evidence.gpu import GpuEvidence
from gpu_triage.diagnosis.evidence.series import Evidence
from gpu_triage.diagnosis.evidence.storage import (
    full_disks,
    silent_mounts,
    slow_lustre,
    slow_mounts,
    unfinished_transfers,
)
from gpu_triage.diagnosis.evidence.threads import full_thread, knows_threads, sees_waits, waits_for_storage
from gpu_triage.gpu.presence import GPU_DRIVER_ERROR_INFO, GPU_UP
from gpu_triage.gpu.topology import GPU_TOPOLOGY_INFO
from gpu_triage.host.cpu import (
    GPU_HOST_CPU_BUSIEST_RATIO,
    GPU_HOST_CPU_SECONDS_TOTAL,
    GPU_HOST_CPU_SHARED_BUSY_RATIO,
    GPU_HOST_CPUS,
    GPU_HOST_PROCESSES_BLOCKED,
)
from gpu_triage.host.disk import (
    GPU_HOST_DISK_BUSY_SECONDS_TOTAL,
    GPU_HOST_DISK_READ_BYTES_TOTAL,
    GPU_HOST_DISK_WRITTEN_BYTES_TOTAL,
)
from gpu_triage.host.file_systems import (
    GPU_HOST_LUSTRE_BYTES_TOTAL,
)
from gpu_triage.host.infiniband import (
    GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL,
    GPU_HOST_INFINIBAND_RATE_BYTES_PER_SECOND,
    GPU_HOST_INFINIBAND_RECEIVE_BYTES_TOTAL,
    GPU_HOST_INFINIBAND_TIMEOUTS_TOTAL,
    GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL,
)
from gpu_triage.host.kernel_log import GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS
from gpu_triage.host.kernel_messages import Trouble
from gpu_triage.host.memory import GPU_HOST_SWAP_IN_BYTES_TOTAL
from gpu_triage.host.network import (
    GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL,
    GPU_HOST_NETWORK_TRANSMIT_BYTES_TOTAL,
)
from gpu_triage.host.network_link import GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND
from gpu_triage.host.nfs import GPU_HOST_NFS_BYTES_TOTAL
from gpu_triage.host.pressure import GPU_HOST_PRESSURE_SECONDS_TOTAL
from gpu_triage.subjects.exporter import GPU_EXPORTER_GPUS_RELEASED

_ADAPTERS = (
    (
        GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND,
        GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL,
        GPU_HOST_NETWORK_TRANSMIT_BYTES_TOTAL,
    ),
    (
        GPU_HOST_INFINIBAND_RATE_BYTES_PER_SECOND,
        GPU_HOST_INFINIBAND_RECEIVE_BYTES_TOTAL,
        GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL,
    ),
)
"""Line rate, bytes received and bytes sent, of either kind."""

_SERVERS = {
    Trouble.NFS_NOT_RESPONDING: "NFS server {} does not respond",
    Trouble.LUSTRE_LOST: "the connection to Lustre target {} is lost",
}
"""What the kernel says of file servers, until it says that they are back."""


def _tasks(of_job: float | None) -> str:
    return "tasks" if of_job is None else "tasks of the job"


def length_of_time(seconds: float) -> str:
    """A length of time for people, with one unit: ``4 s``, ``3 min``, ``2 h``, ``5 days``."""
    # Two of a unit before it is used: "90 min" says more than "2 h".
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


@dataclass(frozen=True, eq=False)
class HostEvidence(Evidence):
    """All series of a host.

    What is scarce is asked of the last part of the window (`recent`), and answered with what was measured; None while
    there is enough. `ease` is what thresholds are multiplied by: below 1 for a class that a GPU is in already.

    Attributes:
        told_times: of events whose time is not known to the second, how to tell it, by the time that stands for it.
    """

    told_times: Mapping[float, str] = field(default_factory=dict)

    @cached_property
    def gpus(self) -> tuple[GpuEvidence, ...]:
        """In the order of their indices; from files, of their addresses where the index is not known."""
        labels = sorted(self.labels_of(GPU_UP), key=lambda each: (len(each["gpu"]), each["gpu"]))
        shared = (self.seconds, self.at, self.index, self.memory)
        return tuple(GpuEvidence(*shared, each["gpu"], each["uuid"], settings=self.settings) for each in labels)

    @cached_property
    def recent(self) -> HostEvidence:
        """The same host over the last part of the window: what starves a GPU is told by what is scarce now."""
        return self.over(thresholds.RECENT_SECONDS)

    @cached_property
    def answering(self) -> tuple[GpuEvidence, ...]:
        """The GPUs that answer."""
        return tuple(gpu for gpu in self.gpus if gpu.up)

    def when(self, wall: float) -> str:
        """When something happened, Unix seconds, for people: ``5 min ago``."""
        return self.told_times.get(wall) or f"{length_of_time(max(0.0, self.at.wall - wall))} ago"

    @property
    def was_read(self) -> bool:
        """Whether anything was read of any GPU."""
        return any(gpu.was_read for gpu in self.gpus)

    @property
    def driver_error(self) -> str | None:
        """Why NVML cannot be used; None when it can."""
        return self.label(GPU_DRIVER_ERROR_INFO, "error") or None

    @property
    def released(self) -> bool:
        """Whether the exporter holds no GPU because it was told to let go."""
        return self.last(GPU_EXPORTER_GPUS_RELEASED) == 1

    def topology_levels(self) -> dict[frozenset[str], str]:
        """The nearest common ancestor of each pair of GPUs, by their UUIDs."""
        labels = self.labels_of(GPU_TOPOLOGY_INFO)
        return {frozenset((each["uuid"], each["peer_uuid"])): each["level"] for each in labels}

    def cpu_share(self, *modes: str, node: str | None = None) -> float | None:
        """Share of the CPU time of a NUMA node, or of the host, that was spent in these modes."""
        labels = {} if node is None else {"numa_node": node}
        counters = self.series(GPU_HOST_CPU_SECONDS_TOTAL, **labels)
        total = sum(each.increase for each in counters)
        spent = sum(each.increase for each in counters if each.labels["mode"] in modes)
        return spent / total if total > 0 else None

    def cpu_busy_share(self, node: str | None = None) -> float | None:
        """Share of the CPU time of a NUMA node, or of the host, that was neither idle nor iowait."""
        at_rest = self.cpu_share("idle", "iowait", node=node)
        return None if at_rest is None else 1.0 - at_rest

    def pressure(self, resource: str) -> float | None:
        """Share of the window in which some task waited for the resource (PSI); None without PSI."""
        return self.rate(GPU_HOST_PRESSURE_SECONDS_TOTAL, resource=resource, kind="some")

    def scarce_memory(self, ease: float = 1.0, *, waiting: GpuEvidence | None = None) -> str | None:
        """Why memory is scarce: swapping in, or tasks that stall for memory, on hosts without swap too.

        Of a GPU that is `waiting`, its job's own tasks count, where their pressure is known, and nobody else's.
        """
        swapped = self.rate(GPU_HOST_SWAP_IN_BYTES_TOTAL) or 0.0
        if swapped >= self.limit("memory.starved", "rate") * ease:
            return f"{swapped / 1024**2:.1f} MiB/s read back from swap"
        of_job = self._of_job(waiting, "memory")
        stalled = (self.pressure("memory") if of_job is None else of_job) or 0.0
        if stalled >= self.limit("memory.starved", "pressure") * ease:
            return f"{_tasks(of_job)} stalled for memory {stalled:.0%} of the time"
        return None

    def scarce_storage(
        self, ease: float = 1.0, *, measured: bool = False, waiting: GpuEvidence | None = None
    ) -> str | None:
        """Why storage is scarce: everything that says so, in one line.

        Args:
            ease: what thresholds are multiplied by.
            measured: leaves out what the kernel log says.
            waiting: the GPU that may wait for it. If its job's own tasks hardly wait for I/O, busy disks, slow NFS and
                other tasks that wait are somebody else's, such as a backup's; where that is not known, they count.
        """
        blocked = None if waiting is None else waits_for_storage(waiting.over(self.seconds), ease)
        reasons = [*filter(None, (blocked,)), *self._slow_storage(ease, waiting)]
        reasons += () if measured else self._silent_servers()
        return "; ".join(reasons) or None

    def _of_job(self, gpu: GpuEvidence | None, resource: str) -> float | None:
        """Share of the same time in which tasks of a GPU's own job waited for a resource; None where unknown."""
        return None if gpu is None else pressure(gpu.over(self.seconds), resource)

    def mostly_writes(self) -> bool:
        """Whether more is written to disks, NFS and Lustre than read from them, as while a checkpoint is saved."""
        read = self.rate(GPU_HOST_DISK_READ_BYTES_TOTAL) or 0.0
        written = self.rate(GPU_HOST_DISK_WRITTEN_BYTES_TOTAL) or 0.0
        read += self.rate(GPU_HOST_NFS_BYTES_TOTAL, direction="read") or 0.0
        written += self.rate(GPU_HOST_NFS_BYTES_TOTAL, direction="write") or 0.0
        read += self.rate(GPU_HOST_LUSTRE_BYTES_TOTAL, direction="read") or 0.0
        written += self.rate(GPU_HOST_LUSTRE_BYTES_TOTAL, direction="write") or 0.0
        return written > read

    def scarce_cpu_of(self, gpu: GpuEvidence, ease: float = 1.0, *, single: bool) -> str | None:
        """Why CPUs are scarce for a GPU; `single`: one CPU is enough that a thread of its job fills.

        Where the job's threads are not known, any busy CPU of the node counts that may be theirs.
        """
        if not knows_threads(gpu):
            return self.scarce_cpu(gpu.node, ease, single=single)
        full = full_thread(gpu.over(self.seconds), ease) if single else None
        return self.scarce_cpu(gpu.node, ease, single=False) or full

    def scarce_cpu(self, node: str | None, ease: float = 1.0, *, single: bool) -> str | None:
        """Why the CPUs of a NUMA node (of every node, without one) are scarce; `single`: one busy CPU is enough."""
        if node is None:
            nodes = sorted({each.labels["numa_node"] for each in self.series(GPU_HOST_CPUS)})
            reasons = [self.scarce_cpu(each, ease, single=single) for each in nodes]
            return "; ".join(filter(None, reasons)) if reasons and all(reasons) else None
        shared = self.one(GPU_HOST_CPU_SHARED_BUSY_RATIO, numa_node=node)
        busy = (self.cpu_busy_share(node) if shared is None else shared.mean) or 0.0
        if busy >= self.limit("cpu.starved", "node") * ease:
            return f"CPUs of NUMA node {node} busy {busy:.0%} of the time"
        busiest = max((each.mean for each in self.series(GPU_HOST_CPU_BUSIEST_RATIO, numa_node=node)), default=0.0)
        if single and busiest >= self.limit("cpu.starved", "busiest") * ease:
            return f"one CPU of NUMA node {node} busy {busiest:.0%} of the time"
        return None

    def scarce_network(self, ease: float = 1.0, *, receiving: bool = False) -> str | None:
        """Which adapter is near its line rate; `receiving`: only what it receives counts."""
        near = [
            f"{name} {direction} at {share:.0%} of its line rate"
            for name, direction, share in self.line_rates()
            if share >= self.limit("network.starved", "line_rate") * ease
            and not (receiving and direction != "receives")
        ]
        return "; ".join(near) or None

    def broken_network(self) -> str | None:
        """Which port of the host lost its link or loses packets, so that whoever uses it waits for their return."""
        downs = (
            f"{':'.join(each.values)} went down {each.increase:.0f} times"
            if each.increase > 1
            else f"{':'.join(each.values)} went down"
            for each in self.series(GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL)
            if each.increase >= 1
        )
        lost = (f"{port} had {count:.0f} requests that nobody acknowledged" for port, count in self.timeouts())
        return "; ".join((*downs, *lost)) or None

    def timeouts(self) -> Iterator[tuple[str, float]]:
        """Ports with requests of RDMA that nobody acknowledged, more than now and then, and how many in the window."""
        for each in self.series(GPU_HOST_INFINIBAND_TIMEOUTS_TOTAL):
            rising = self.rising(
                GPU_HOST_INFINIBAND_TIMEOUTS_TOTAL, self.limit("network.timeouts", "count"), **each.labels
            )
            if rising is not None:
                yield ":".join(each.values), rising

    def line_rates(self) -> Iterator[tuple[str, str, float]]:
        """Adapter, direction, and traffic as a share of the line rate, of every adapter whose rate is known."""
        for speed_of, received, sent in _ADAPTERS:
            for speed in self.series(speed_of):
                for direction, spec in (("receives", received), ("sends", sent)):
                    traffic = self.rate(spec, **speed.labels)
                    if traffic is not None and speed.last > 0:
                        yield ":".join(speed.values), direction, traffic / speed.last

    def _slow_storage(self, ease: float, waiting: GpuEvidence | None) -> Iterator[str]:
        of_job = self._of_job(waiting, "io")
        at_ease = of_job is not None and of_job < self.limit("storage.starved", "pressure") * ease
        if not at_ease:
            yield from self._slow_devices(ease, of_job)
        # PSI counts who waits for data in the page cache, and neither lookups of NFS nor clients of other file systems.
        if not at_ease or waiting is None or not sees_waits(waiting.over(self.seconds)):
            yield from slow_mounts(self, ease)
            yield from self._silent_mounts()
        yield from slow_lustre(self, ease)
        yield from unfinished_transfers(self)

    def _slow_devices(self, ease: float, of_job: float | None) -> Iterator[str]:
        iowait = self.cpu_share("iowait") or 0.0
        if iowait >= self.limit("storage.starved", "iowait") * ease:
            yield f"{iowait:.0%} of the CPU time is iowait"
        stalled = (self.pressure("io") if of_job is None else of_job) or 0.0
        if stalled >= self.limit("storage.starved", "pressure") * ease:
            yield f"{_tasks(of_job)} stalled for I/O {stalled:.0%} of the time"
        yield from full_disks(self, ease)

    def _silent_mounts(self) -> Iterator[str]:
        """NFS mounts that complete nothing while tasks wait for I/O."""
        if stalled_tasks := self._io_without_disks():
            silent = silent_mounts(self)
            yield from (f"NFS {mount} answers nothing, {stalled_tasks:.0f} tasks wait for I/O" for mount in silent)

    def _silent_servers(self) -> Iterator[str]:
        """File servers that do not answer, as the kernel log has it: of Lustre's nothing else tells."""
        for kind, words in _SERVERS.items():
            for each in self.series(GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS, kind=kind.value):
                if self.age_seconds(each.last) <= thresholds.KERNEL_RECENT_SECONDS:
                    yield words.format(each.labels["subject"])

    def _io_without_disks(self) -> float:
        """How many tasks wait for I/O while no disk works, on a host whose kernel has no PSI; 0 elsewhere.

        What waits for a dead server is in no counter of NFS, and one task that waits is little iowait on many CPUs.
        """
        blocked = self.one(GPU_HOST_PROCESSES_BLOCKED)
        if self.pressure("io") is not None or blocked is None or not blocked.seconds or blocked.low < 1:
            return 0.0
        disks = self.series(GPU_HOST_DISK_BUSY_SECONDS_TOTAL)
        return 0.0 if any((disk.rate or 0.0) >= thresholds.DISK_WORKS_SHARE for disk in disks) else blocked.last
