"""What of the host is scarce: a question a resource, answered with what was measured; None while there is enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import MetricSpec
from gpu_triage.diagnosis import thresholds
from gpu_triage.diagnosis.view import HostView

_IOWAIT = frozenset({"iowait"})


def scarce_memory(host: HostView, ease: float = 1.0) -> str | None:
    """Why memory is scarce: swapping in, or tasks that stall for memory, on hosts without swap too.

    Args:
        host: over the last part of the window, as for the other questions.
        ease: what the thresholds are multiplied by; below 1 for a class that a GPU is in already.
    """
    swapped = host.evidence.rate(catalogue.HOST_SWAP_IN_BYTES) or 0.0
    if swapped >= thresholds.SWAP_IN_BYTES_PER_SECOND * ease:
        return f"{swapped / 1024**2:.1f} MiB/s read back from swap"
    stalled = host.pressure("memory") or 0.0
    if stalled >= thresholds.MEMORY_PRESSURE_SHARE * ease:
        return f"tasks stalled for memory {stalled:.0%} of the time"
    return None


def scarce_storage(host: HostView, ease: float = 1.0) -> str | None:
    """Why storage is scarce: everything that says so, in one line."""
    return "; ".join(_slow_storage(host, ease)) or None


def mostly_writes(host: HostView) -> bool:
    """Whether more is written to disks and NFS than read from them, as while a checkpoint is saved."""
    read = host.evidence.rate(catalogue.HOST_DISK_READ_BYTES) or 0.0
    written = host.evidence.rate(catalogue.HOST_DISK_WRITTEN_BYTES) or 0.0
    read += host.evidence.rate(catalogue.HOST_NFS_BYTES, direction="read") or 0.0
    written += host.evidence.rate(catalogue.HOST_NFS_BYTES, direction="write") or 0.0
    return written > read


def _slow_storage(host: HostView, ease: float) -> Iterator[str]:
    iowait = host.cpu_share(_IOWAIT) or 0.0
    if iowait >= thresholds.IOWAIT_SHARE * ease:
        yield f"{iowait:.0%} of the CPU time is iowait"
    stalled = host.pressure("io") or 0.0
    if stalled >= thresholds.IO_PRESSURE_SHARE * ease:
        yield f"tasks stalled for I/O {stalled:.0%} of the time"
    for disk in host.evidence.series(catalogue.HOST_DISK_BUSY_SECONDS):
        busy = min(1.0, disk.rate or 0.0)
        if busy >= thresholds.DISK_BUSY_SHARE * ease:
            yield f"disk {disk.labels['device']} busy {busy:.0%} of the time"
    for mount, operations, seconds in _nfs(host):
        if operations < thresholds.NFS_OPERATIONS_PER_SECOND * ease:
            continue
        if seconds / operations >= thresholds.NFS_SECONDS * ease:
            yield f"NFS {mount} takes {seconds / operations * 1000:.0f} ms an operation"
    yield from _silent_nfs(host)


def _silent_nfs(host: HostView) -> Iterator[str]:
    """NFS mounts of which no server answers while tasks wait for I/O, on hosts whose kernel has no PSI.

    What waits for a dead server is in no counter of NFS, and one task that waits is little iowait on many CPUs.
    """
    blocked = host.evidence.one(catalogue.HOST_PROCESSES_BLOCKED)
    if host.pressure("io") is not None or blocked is None or not blocked.seconds or blocked.low < 1:
        return
    disks = host.evidence.series(catalogue.HOST_DISK_BUSY_SECONDS)
    if any((disk.rate or 0.0) >= thresholds.DISK_WORKS_SHARE for disk in disks):
        return
    for mount, operations, _ in _nfs(host):
        if operations == 0:
            yield f"NFS {mount} answers nothing, {blocked.last:.0f} tasks wait for I/O"


def _nfs(host: HostView) -> Iterator[tuple[str, float, float]]:
    """Mount, operations a second, and seconds spent on them a second."""
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for index, spec in enumerate((catalogue.HOST_NFS_OPERATIONS, catalogue.HOST_NFS_OPERATION_SECONDS)):
        for track in host.evidence.series(spec):
            totals[track.labels["mount"]][index] += track.rate or 0.0
    yield from ((mount, operations, seconds) for mount, (operations, seconds) in totals.items())


def scarce_cpu(host: HostView, node: str | None, ease: float = 1.0, *, single: bool) -> str | None:
    """Why the CPUs of a NUMA node (of every node, without one) are scarce; `single`: one busy CPU is enough."""
    if node is None:
        nodes = sorted({track.labels["numa_node"] for track in host.evidence.series(catalogue.HOST_CPUS)})
        reasons = [scarce_cpu(host, each, ease, single=single) for each in nodes]
        return "; ".join(filter(None, reasons)) if reasons and all(reasons) else None
    busy = host.cpu_busy_share(node) or 0.0
    if busy >= thresholds.NODE_CPU_SHARE * ease:
        return f"CPUs of NUMA node {node} busy {busy:.0%} of the time"
    busiest = host.busiest_cpu_share(node) or 0.0
    if single and busiest >= thresholds.BUSIEST_CPU_SHARE * ease:
        return f"one CPU of NUMA node {node} busy {busiest:.0%} of the time"
    return None


def scarce_network(host: HostView, ease: float = 1.0, *, receiving: bool = False) -> str | None:
    """Which adapter is near its line rate; `receiving`: only what it receives counts."""
    near = [
        f"{name} {direction} at {share:.0%} of its line rate"
        for name, direction, share in line_rates(host)
        if share >= thresholds.LINE_RATE_SHARE * ease and not (receiving and direction != "receives")
    ]
    return "; ".join(near) or None


def line_rates(host: HostView) -> Iterator[tuple[str, str, float]]:
    """Adapter, direction, and traffic as a share of the line rate, of every adapter whose rate is known."""
    families: tuple[tuple[MetricSpec, MetricSpec, MetricSpec], ...] = (
        (
            catalogue.HOST_NETWORK_SPEED,
            catalogue.HOST_NETWORK_RECEIVE_BYTES,
            catalogue.HOST_NETWORK_TRANSMIT_BYTES,
        ),
        (
            catalogue.HOST_INFINIBAND_RATE,
            catalogue.HOST_INFINIBAND_RECEIVE_BYTES,
            catalogue.HOST_INFINIBAND_TRANSMIT_BYTES,
        ),
    )
    for speed_of, received_of, sent_of in families:
        for speed in host.evidence.series(speed_of):
            for direction, spec in (("receives", received_of), ("sends", sent_of)):
                traffic = host.evidence.rate(spec, **speed.labels)
                if traffic is not None and speed.last > 0:
                    yield ":".join(speed.labels.values()), direction, traffic / speed.last
