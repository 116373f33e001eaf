"""A host's evidence: its GPUs, and which resources are scarce."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

from gpu_triage.judge.evidence import limited_jobs, thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence, LimitedClock
from gpu_triage.judge.evidence.past import Amount
from gpu_triage.judge.evidence.pcie_paths import (
    LesserSlot,
    MissingLanes,
    ShortUplink,
    lesser_slots,
    missing_lanes,
    short_uplinks,
)
from gpu_triage.judge.evidence.series import Evidence, Series, many
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.finding import KnownGpus
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_GPUS_RELEASED
from gpu_triage.read.gpu.modes import GPU_VIRTUALIZATION_MODE, IN_VIRTUAL_MACHINES
from gpu_triage.read.gpu.power import GPU_CLOCK_HERTZ
from gpu_triage.read.gpu.presence import GPU_DEVICES, GPU_DRIVER_ERROR_INFO, GPU_UP
from gpu_triage.read.gpu.topology import GPU_TOPOLOGY_INFO
from gpu_triage.read.host import cpu, disk, infiniband, network_interfaces, nfs
from gpu_triage.read.host.cpu import GPU_HOST_PRESSURE_SECONDS_TOTAL
from gpu_triage.read.host.host_memory import GPU_HOST_SWAP_IN_BYTES_TOTAL
from gpu_triage.read.host.kernel_log import GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS
from gpu_triage.read.host.kernel_messages import ProblemKind
from gpu_triage.read.host.platform import GPU_HOST_VIRTUAL_MACHINE
from gpu_triage.read.metrics.contract import known


def slower(peers: Mapping[GpuEvidence, float], drop: float) -> Iterator[tuple[GpuEvidence, float, str]]:
    """Yield those with a clock below the median by more than this share of it, with its share of that, and in words."""
    usual = median(peers.values())
    for gpu, hertz in peers.items():
        if hertz < usual * (1 - drop):
            own = f"SM clock {hertz / 1e6:.0f} MHz"
            yield gpu, hertz / usual, f"{own}, its busy siblings' median {usual / 1e6:.0f} MHz"


def set_lower(peers: Mapping[GpuEvidence, float], drop: float) -> Iterator[tuple[GpuEvidence, LimitedClock]]:
    """Yield the slower ones that their clock setting holds, unless that of their peers does too."""
    held = {gpu: gpu.throttled("applications_clocks") for gpu in peers}
    if median(held.values()) > thresholds.SET_CLOCK_PEERS_SHARE:
        return
    for gpu, share, words in slower(peers, drop):
        if held[gpu] >= thresholds.SET_CLOCK_SHARE:
            yield gpu, LimitedClock(f"held by its clock setting: {words}", share)


def median(values: Iterable[float]) -> float:
    """Return the median; done by hand because the statistics module would import fractions and decimal."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


_OPERATIONS: Final = {"READ": "a READ", "WRITE": "a WRITE", "COMMIT": "a WRITE"}
"""Labels for operations that carry data; all others are lookups and are reported together."""
_LOOKUP: Final = "a lookup"
_DISK_COUNTERS: Final = (
    *(disk.GPU_HOST_DISK_READS_TOTAL, disk.GPU_HOST_DISK_WRITES_TOTAL),
    *(disk.GPU_HOST_DISK_READ_SECONDS_TOTAL, disk.GPU_HOST_DISK_WRITE_SECONDS_TOTAL),
    disk.GPU_HOST_DISK_QUEUE_SECONDS_TOTAL,
)
"""Requests that a disk completed, how long these took, and how many were in flight on average."""


def full_disks(evidence: Evidence, ease: float) -> Iterator[str]:
    """Yield disks that are busy all the time and saturated: slow requests, a long queue, or stalled tasks.

    A disk that serves many requests in parallel counts as busy with a single one, so busy alone proves nothing.
    Source: https://docs.kernel.org/admin-guide/iostats.html, field 10.
    """
    for counter in evidence.series(disk.GPU_HOST_DISK_BUSY_SECONDS_TOTAL):
        device, busy = counter.labels["device"], min(1.0, counter.rate or 0.0)
        reads, writes, reading, writing, queue = (evidence.rate(spec, device=device) or 0.0 for spec in _DISK_COUNTERS)
        requests, served = reads + writes, reading + writing
        if requests:
            # The kernel counts a full tick (1 to 4 ms) as busy even for a request of a few microseconds. If the disk
            # completed nothing, the time of its pending requests has not been counted yet.
            busy = min(busy, served)
        if busy < evidence.limit("storage.starved", "disk") * ease:
            continue
        if requests and served / requests >= thresholds.SLOW_REQUEST_SECONDS * ease:
            sign = f"{served / requests * 1000:.0f} ms a request"
        elif requests and queue >= thresholds.LONG_QUEUE * ease:
            sign = f"{queue:.0f} requests under way"
        else:
            sign = _stalled_by_disks(evidence, ease, completes=requests > 0)
        if sign:
            yield f"disk {device} busy {busy:.0%} of the time, {sign}"


def _stalled_by_disks(evidence: Evidence, ease: float, *, completes: bool) -> str:
    """Describe how tasks stall for I/O; without PSI, tasks that wait for a disk that completes nothing. "" if none."""
    stalled = evidence.rate(GPU_HOST_PRESSURE_SECONDS_TOTAL, resource="io", kind="some")
    if stalled is not None:
        waits = stalled >= thresholds.STALLED_BY_DISK_SHARE * ease
        return f"tasks stalled for I/O {stalled:.0%} of the time" if waits else ""
    blocked = evidence.one(cpu.GPU_HOST_PROCESSES_BLOCKED)
    hangs = not completes and blocked is not None and blocked.low >= 1
    return f"nothing completed, {blocked.last:.0f} tasks wait for I/O" if hangs and blocked is not None else ""


def slow_mounts(evidence: Evidence, ease: float) -> Iterator[str]:
    """Yield NFS mounts with slow reads, writes or lookups and, on average, at least one in flight.

    Each kind is judged separately: a job looks up a hundred files in the time of one read.
    """
    for mount, kinds in _nfs_operations(evidence).items():
        slow = [
            f"{seconds / operations * 1000:.0f} ms {kind}, {seconds:.1f} under way"
            for kind, (operations, seconds) in kinds.items()
            if _is_slow(evidence, operations, seconds, ease)
        ]
        if slow:
            yield f"NFS {mount} takes {', '.join(slow)}{_lost(evidence, mount)}"


def slow_lustre(evidence: Evidence, ease: float) -> Iterator[str]:
    """Yield Lustre file systems with slow reads and, on average, at least one in flight."""
    for calls in evidence.series(disk.GPU_HOST_LUSTRE_OPERATIONS_TOTAL, direction="read"):
        operations = calls.rate or 0.0
        seconds = evidence.rate(disk.GPU_HOST_LUSTRE_OPERATION_SECONDS_TOTAL, **calls.labels) or 0.0
        if _is_slow(evidence, operations, seconds, ease):
            yield f"Lustre {calls.labels['file_system']} takes {seconds / operations * 1000:.0f} ms a read"


def unfinished_transfers(evidence: Evidence) -> Iterator[str]:
    """Yield GPUDirect Storage reads that stay in flight while none completes."""
    for begun in evidence.series(disk.GPU_HOST_GDS_OPERATIONS_IN_FLIGHT, direction="read"):
        ended = evidence.rate(disk.GPU_HOST_GDS_OPERATIONS_TOTAL, direction="read")
        if begun.seconds and begun.low >= 1 and ended == 0:
            yield f"{begun.last:.0f} reads of GPUDirect Storage do not end"


def _nfs_operations(evidence: Evidence) -> dict[str, dict[str, list[float]]]:
    """Return [operations per second, seconds spent on them per second (= in flight)] by mount and kind."""
    mounts: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for index, spec in enumerate((nfs.GPU_HOST_NFS_OPERATIONS_TOTAL, nfs.GPU_HOST_NFS_OPERATION_SECONDS_TOTAL)):
        for each in evidence.series(spec):
            kind = _OPERATIONS.get(each.labels["operation"], _LOOKUP)
            mounts[each.labels["mount"]][kind][index] += each.rate or 0.0
    return mounts


def _is_slow(evidence: Evidence, operations: float, seconds: float, ease: float) -> bool:
    """Whether file server requests are slow, given their rate and the seconds per second spent on them."""
    if not operations or seconds < thresholds.OUTSTANDING_REQUESTS * ease:
        return False
    return seconds / operations >= evidence.limit("storage.starved", "nfs") * ease


def _lost(evidence: Evidence, mount: str) -> str:
    """Describe requests that were lost rather than answered late; "" if there were none."""
    resent, late = (
        sum(each.increase for each in evidence.series(spec, mount=mount))
        for spec in (nfs.GPU_HOST_NFS_RETRANSMISSIONS_TOTAL, nfs.GPU_HOST_NFS_MAJOR_TIMEOUTS_TOTAL)
    )
    parts = [f"{resent:.0f} requests sent again"] if resent else []
    parts += [f"{late:.0f} timed out"] if late else []
    return f" ({', '.join(parts)})" if parts else ""


_ADAPTERS: Final = {
    network_interfaces.GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND: {
        "receives": network_interfaces.GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL,
        "sends": network_interfaces.GPU_HOST_NETWORK_TRANSMIT_BYTES_TOTAL,
    },
    infiniband.GPU_HOST_INFINIBAND_RATE_BYTES_PER_SECOND: {
        "receives": infiniband.GPU_HOST_INFINIBAND_RECEIVE_BYTES_TOTAL,
        "sends": infiniband.GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL,
    },
}
"""Line rate of each kind of adapter, and its traffic by direction."""

_SERVERS = {
    ProblemKind.NFS_NOT_RESPONDING: "NFS server {} does not respond",
    ProblemKind.LUSTRE_LOST: "the connection to Lustre target {} is lost",
}
"""Kernel messages about file servers; they apply until the kernel logs that the server is back."""


def _tasks(of_job: float | None) -> str:
    return "tasks" if of_job is None else "tasks of the job"


@dataclass(frozen=True, eq=False)
class HostEvidence(Evidence):
    """All series of a host.

    Call the `scarce_*` methods on the last part of the window (`recent`), with that of a GPU: they return what was
    measured, or None if the resource is not scarce. `ease` multiplies the thresholds: below 1 for a class that a GPU is
    already in (hysteresis). `time_texts` has what to show for events without an exact time, by the timestamp used in
    place of that time. `ended` has, of files, the timestamps of Xids that a later load of the driver ended; None on a
    live host.
    """

    time_texts: Mapping[float, str] = field(default_factory=dict)
    ended: frozenset[float] | None = None

    @cached_property
    def gpus(self) -> tuple[GpuEvidence, ...]:
        """GPUs in order of index; from files, in order of PCI address if the index is unknown."""
        labels = sorted(self.labels_of(GPU_UP), key=lambda each: (len(each["gpu"]), each["gpu"]))
        shared = (self.seconds, self.at, self.index, self.memory)
        return tuple(GpuEvidence(*shared, each["gpu"], each["uuid"], settings=self.settings) for each in labels)

    @cached_property
    def known_gpus(self) -> KnownGpus[GpuEvidence]:
        return KnownGpus(sorted(self.gpus, key=lambda gpu: gpu.up))

    @cached_property
    def silent_gpus(self) -> KnownGpus[GpuEvidence]:
        """Those that do not respond: what is only known to be about a slot is about the GPU there."""
        return KnownGpus(gpu for gpu in self.gpus if not gpu.up)

    @cached_property
    def soon(self) -> HostEvidence:
        """The same host over `SOON_SECONDS`: strong evidence needs no more."""
        return self.over(thresholds.SOON_SECONDS)

    def same(self, gpu: GpuEvidence) -> GpuEvidence:
        """Return a GPU of the same host with this evidence of it."""
        return next(each for each in self.gpus if each.gpu_labels == gpu.gpu_labels)

    @cached_property
    def answering(self) -> tuple[GpuEvidence, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.up)

    @cached_property
    def missing_lanes(self) -> Mapping[GpuEvidence, MissingLanes]:
        """The GPUs that respond with links that lack lanes."""
        return known({gpu: missing_lanes(gpu, self.gpus) for gpu in self.answering})

    @cached_property
    def lesser_slots(self) -> Mapping[GpuEvidence, LesserSlot]:
        """The GPUs with slots that give less than others."""
        return lesser_slots(self.answering)

    @cached_property
    def busy_models(self) -> tuple[Mapping[GpuEvidence, float], ...]:
        """The SM clocks, in hertz, of the busy GPUs of each model with enough of them for a comparison."""
        models: dict[str, dict[GpuEvidence, float]] = defaultdict(dict)
        for gpu in self.answering:
            clock = gpu.one(GPU_CLOCK_HERTZ, clock="sm")
            if clock is not None and gpu.name and gpu.busy:
                models[gpu.name][gpu] = clock.mean
        return tuple(peers for peers in models.values() if len(peers) >= self.limit("clock.straggler", "peers"))

    @cached_property
    def limited_clocks(self) -> Mapping[GpuEvidence, LimitedClock]:
        """The GPUs with a clock that is held down, by themselves or below their peers: for class and finding alike."""
        drop = self.limit("clock.straggler", "drop")
        lower = dict(each for peers in self.busy_models for each in set_lower(peers, drop))
        return {**lower, **known({gpu: gpu.limited_clock for gpu in self.answering})}

    @cached_property
    def short_uplinks(self) -> tuple[ShortUplink, ...]:
        """The uplinks slower than both ends allow."""
        return tuple(short_uplinks(self.recent, self.answering))

    def when(self, wall: float) -> str:
        """Describe when something happened (Unix seconds), relative to now: ``5 min ago``."""
        return self.time_texts.get(wall) or f"{length_of_time(max(0.0, self.at.wall - wall))} ago"

    @property
    def was_read(self) -> bool:
        return any(gpu.was_read for gpu in self.gpus)

    @property
    def driver_error(self) -> str | None:
        """Why NVML cannot be used; None if it can."""
        return self.label(GPU_DRIVER_ERROR_INFO, "error") or None

    @property
    def wanted_gpus(self) -> Mapping[str, float]:
        """GPUs that the driver should show: as configured, else since boot (virtual machines may take some)."""
        sources = {"expected": "expected", "pci": "on the PCI bus", "boot": "since the host booted"}
        counts = {words: self.last(GPU_DEVICES, source=source) for source, words in sources.items()}
        if counts["expected"] is not None:
            del counts["since the host booted"]
        return {words: count for words, count in counts.items() if count is not None}

    @property
    def missing_gpus(self) -> float:
        """How many GPUs the driver does not show."""
        return max((0.0, *self.wanted_gpus.values())) - (self.last(GPU_DEVICES, source="nvml") or 0)

    @property
    def is_starting(self) -> bool:
        """Whether no GPU was initialized earlier than minutes ago: the host booted, or the driver was loaded."""
        initialized = [gpu.reset_at for gpu in self.gpus if gpu.reset_at]
        return bool(initialized) and self.at.wall - min(initialized) < thresholds.STARTING_SECONDS

    @cached_property
    def is_virtual(self) -> bool:
        """Whether it is known to be a virtual machine, by what the driver reports of its GPUs, else by the kernel."""
        modes = self.lasts(GPU_VIRTUALIZATION_MODE)
        return any(mode in IN_VIRTUAL_MACHINES for mode in modes) if modes else self.last(GPU_HOST_VIRTUAL_MACHINE) == 1

    @property
    def released(self) -> bool:
        """Whether the exporter has released its GPUs on request."""
        return self.last(GPU_EXPORTER_GPUS_RELEASED) == 1

    def topology_levels(self) -> dict[frozenset[str], str]:
        """Return the nearest common ancestor of each pair of GPUs, keyed by their UUIDs."""
        labels = self.labels_of(GPU_TOPOLOGY_INFO)
        return {frozenset((each["uuid"], each["peer_uuid"])): each["level"] for each in labels}

    def cpu_share(self, *modes: str, node: str | None = None) -> float | None:
        """Return the share of a NUMA node's (or the host's) CPU time spent in these modes; None if unknown."""
        labels = {} if node is None else {"numa_node": node}
        counters = self.series(cpu.GPU_HOST_CPU_SECONDS_TOTAL, **labels)
        total = sum(each.increase for each in counters)
        spent = sum(each.increase for each in counters if each.labels["mode"] in modes)
        return spent / total if total > 0 else None

    def cpu_busy_share(self, node: str | None = None) -> float | None:
        """Return the share of a NUMA node's (or the host's) CPU time that was neither idle nor iowait."""
        at_rest = self.cpu_share("idle", "iowait", node=node)
        return None if at_rest is None else 1.0 - at_rest

    def pressure(self, resource: str) -> float | None:
        """Return the share of the window in which some task waited for the resource (PSI); None without PSI."""
        return self.rate(GPU_HOST_PRESSURE_SECONDS_TOTAL, resource=resource, kind="some")

    def scarce_memory(self, ease: float = 1.0, *, waiting: GpuEvidence | None = None) -> str | None:
        """Return why memory is scarce: swap-in, or stalls (for a `waiting` GPU, only its job's, if those are known)."""
        swapped = self.rate(GPU_HOST_SWAP_IN_BYTES_TOTAL) or 0.0
        if swapped >= self.limit("memory.starved", "rate") * ease:
            return f"{swapped / 1024**2:.1f} MiB/s read back from swap"
        of_job = limited_jobs.pressure(waiting, "memory")
        stalled = (self.pressure("memory") if of_job is None else of_job) or 0.0
        if stalled >= self.limit("memory.starved", "pressure") * ease:
            return f"{_tasks(of_job)} stalled for memory {stalled:.0%} of the time"
        return None

    def scarce_storage(
        self, ease: float = 1.0, *, measured: bool = False, waiting: GpuEvidence | None = None
    ) -> str | None:
        """Return why storage is scarce: all reasons, on one line; of what is `measured`, without the log.

        If the own tasks of the job on the `waiting` GPU hardly wait for I/O, busy disks, slow NFS and waiting tasks are
        ignored: they belong to another workload, such as a backup. If the job's waits are unknown, they count.
        """
        return "; ".join((*self._slow_storage(ease, waiting), *(() if measured else self.silent_servers()))) or None

    def mostly_writes(self) -> bool:
        """Whether disks, NFS and Lustre write more than they read, as while a checkpoint is saved."""
        return self.bytes_per_second("write") > self.bytes_per_second("read")

    def bytes_per_second(self, direction: Literal["read", "write"], *, disks: bool = True) -> float:
        """What it reads from file servers or writes to them, and with `disks` what it does of that on its own disks."""
        local = disk.GPU_HOST_DISK_READ_BYTES_TOTAL if direction == "read" else disk.GPU_HOST_DISK_WRITTEN_BYTES_TOTAL
        remote = (nfs.GPU_HOST_NFS_BYTES_TOTAL, disk.GPU_HOST_LUSTRE_BYTES_TOTAL)
        rates = (self.rate(local) if disks else None, *(self.rate(spec, direction=direction) for spec in remote))
        return sum(rate for rate in rates if rate is not None)

    def scarce_cpu_of(self, gpu: GpuEvidence, ease: float = 1.0, *, single: bool) -> str | None:
        """Return why CPUs are scarce for a GPU; if `single`, one CPU that its job (any, if unknown) fills is enough."""
        if not limited_jobs.knows_threads(gpu):
            return self.scarce_cpu(gpu.node, ease, single=single)
        full = limited_jobs.full_thread(gpu, ease) if single else None
        return self.scarce_cpu(gpu.node, ease, single=False) or full

    def scarce_cpu(self, node: str | None, ease: float = 1.0, *, single: bool) -> str | None:
        """Return why the CPUs of a NUMA node (None: of all nodes) are scarce; with `single`, one busy CPU suffices."""
        if node is None:
            nodes = sorted({each.labels["numa_node"] for each in self.series(cpu.GPU_HOST_CPUS)})
            reasons = [self.scarce_cpu(each, ease, single=single) for each in nodes]
            return "; ".join(filter(None, reasons)) if reasons and all(reasons) else None
        if self.has(cpu.GPU_HOST_CPUS, numa_node=""):
            node = ""  # files may not tell which CPUs a node has
        where = f" of NUMA node {node}" if node else ""
        shared = self.one(cpu.GPU_HOST_CPU_SHARED_BUSY_RATIO, numa_node=node)
        busy = (self.cpu_busy_share(node) if shared is None else shared.mean) or 0.0
        if busy >= self.limit("cpu.starved", "node") * ease:
            return f"CPUs{where} busy {busy:.0%} of the time"
        busiest = max((each.mean for each in self.series(cpu.GPU_HOST_CPU_BUSIEST_RATIO, numa_node=node)), default=0.0)
        if single and busiest >= self.limit("cpu.starved", "busiest") * ease:
            return f"one CPU{where} busy {busiest:.0%} of the time"
        return None

    def scarce_network(self, ease: float = 1.0, *, receiving: bool = False) -> str | None:
        """Return which adapters are close to line rate; with `receiving`, only received traffic counts."""
        near = [
            f"{name} {direction} at {share:.0%} of its line rate"
            for name, direction, share in self.line_rates()
            if share >= self.limit("network.starved", "line_rate") * ease
            and not (receiving and direction != "receives")
        ]
        return "; ".join(near) or None

    def network_losses(self, ease: float = 1.0) -> Iterator[str]:
        """Yield which ports lose their link, RDMA requests or packets, and how much TCP loses: their users wait."""
        for each in self.series(infiniband.GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL):
            if each.increase >= 1:
                yield f"{each.name} went down" + (f" {each.increase:.0f} times" if each.increase > 1 else "")
        for each in self.series(infiniband.GPU_HOST_INFINIBAND_TIMEOUTS_TOTAL):
            if count := many(Amount(each.increase, each.seconds), self.limit("network.timeouts", "count")):
                yield f"{each.name} had {count:.0f} requests not acknowledged"
        for each in self.series(network_interfaces.GPU_HOST_NETWORK_DROPS_TOTAL):
            if (rate := each.rate or 0.0) >= thresholds.DROPPED_PER_SECOND * ease:
                yield f"{each.name} {rate:.0f} packets a second dropped"
        sent = self.rate(network_interfaces.GPU_HOST_TCP_SEGMENTS_SENT_TOTAL) or 0.0
        again = self.rate(network_interfaces.GPU_HOST_TCP_SEGMENTS_RETRANSMITTED_TOTAL) or 0.0
        if sent >= thresholds.FEWEST_SEGMENTS and again >= thresholds.RETRANSMITTED_SHARE * ease * sent:
            yield f"TCP sends {again / sent:.1%} of its segments again"

    def line_rates(self) -> Iterator[tuple[str, str, float]]:
        """Yield adapter, direction, and traffic as a share of line rate, for every adapter with a known rate.

        A RoCE port carries RDMA and what its interface counts, so the two are judged as one adapter.
        """
        lines = {}
        for rate_of, traffic_of in _ADAPTERS.items():
            for line in self.series(rate_of):
                rates = {way: self.rate(spec, **line.labels) for way, spec in traffic_of.items()}
                lines[line.name] = line.last, known(rates)
        for shared in self.series(infiniband.GPU_HOST_INFINIBAND_INTERFACE_EXCLUDES_RDMA):
            interface, port = shared.labels["interface"], ":".join(shared.values[:2])
            if interface in lines and port in lines:
                port_rate, rdma = lines.pop(port)
                if shared.last:
                    rate, own = lines.pop(interface)
                    both = {way: own.get(way, 0.0) + rdma.get(way, 0.0) for way in own | rdma}
                    lines[f"{interface} with {port}"] = min(rate, port_rate), both
        for name, (rate, traffic) in lines.items():
            yield from ((name, way, carried / rate) for way, carried in traffic.items() if rate > 0)

    def _slow_storage(self, ease: float, waiting: GpuEvidence | None) -> Iterator[str]:
        if waiting is not None and (blocked := limited_jobs.waits_for_storage(waiting, ease)) is not None:
            yield blocked
        of_job = limited_jobs.pressure(waiting, "io")
        at_ease = of_job is not None and of_job < self.limit("storage.starved", "pressure") * ease
        runs = of_job is None and waiting is not None and not limited_jobs.blocks(waiting, ease)
        if not (at_ease or runs):
            yield from self._slow_devices(ease, of_job)
        # PSI counts waits for page cache data, but not NFS lookups or the clients of other file systems.
        if not at_ease or waiting is None or not limited_jobs.sees_waits(waiting):
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
        """Yield NFS mounts that complete nothing while tasks wait for I/O and no disk works, on a kernel without PSI.

        NFS counters do not show requests to a dead server, and one waiting task is little iowait on many CPUs.
        """
        blocked = self.one(cpu.GPU_HOST_PROCESSES_BLOCKED)
        if self.pressure("io") is not None or blocked is None or not blocked.seconds or blocked.low < 1:
            return
        disks = self.series(disk.GPU_HOST_DISK_BUSY_SECONDS_TOTAL)
        if any((each.rate or 0.0) >= thresholds.DISK_WORKS_SHARE for each in disks):
            return
        for mount, kinds in _nfs_operations(self).items():
            if not any(operations for operations, _ in kinds.values()):
                yield f"NFS {mount} answers nothing, {blocked.last:.0f} tasks wait for I/O"

    def silent_servers(self) -> Iterator[str]:
        """Yield unresponsive file servers from the kernel log, the only source for Lustre servers."""
        for kind, words in _SERVERS.items():
            for each in self.kernel_events(kind):
                yield words.format(each.labels["subject"])

    def kernel_events(self, kind: ProblemKind) -> Sequence[Series]:
        """Return when there was such a message last, by subject.

        If the processes that waited for an NFS server were killed, the kernel never logs that it is back. It answers,
        if each NFS mount had requests completed since: which server a mount has is not known.
        """
        events = self.series(GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS, kind=kind.value)
        if kind is not ProblemKind.NFS_NOT_RESPONDING or not events:
            return events
        mounts = _nfs_operations(self).values()
        if not mounts or not all(any(done for done, _ in kinds.values()) for kinds in mounts):
            return events
        return [each for each in events if self.age_seconds(each.last) <= self.seconds]
