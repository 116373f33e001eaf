"""Disks, file servers and transfers that are too slow for their load."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.series import Evidence
from gpu_triage.read.host.cpu import GPU_HOST_PROCESSES_BLOCKED
from gpu_triage.read.host.disk import (
    GPU_HOST_DISK_BUSY_SECONDS_TOTAL,
    GPU_HOST_DISK_QUEUE_SECONDS_TOTAL,
    GPU_HOST_DISK_READ_SECONDS_TOTAL,
    GPU_HOST_DISK_READS_TOTAL,
    GPU_HOST_DISK_WRITE_SECONDS_TOTAL,
    GPU_HOST_DISK_WRITES_TOTAL,
    GPU_HOST_GDS_OPERATIONS_IN_FLIGHT,
    GPU_HOST_GDS_OPERATIONS_TOTAL,
    GPU_HOST_LUSTRE_OPERATION_SECONDS_TOTAL,
    GPU_HOST_LUSTRE_OPERATIONS_TOTAL,
)
from gpu_triage.read.host.nfs import (
    GPU_HOST_NFS_MAJOR_TIMEOUTS_TOTAL,
    GPU_HOST_NFS_OPERATION_SECONDS_TOTAL,
    GPU_HOST_NFS_OPERATIONS_TOTAL,
    GPU_HOST_NFS_RETRANSMISSIONS_TOTAL,
)
from gpu_triage.read.host.pressure import GPU_HOST_PRESSURE_SECONDS_TOTAL
from gpu_triage.read.metrics.metric import MetricSpec

_OPERATIONS: Final = {"READ": "a READ", "WRITE": "a WRITE", "COMMIT": "a WRITE"}
"""Labels for operations that carry data; all others are lookups and are reported together."""
_LOOKUP: Final = "a lookup"


class DiskLoad(NamedTuple):
    """Load on a disk, per second."""

    requests: float  # requests completed
    served: float  # total seconds that these took
    busy: float  # share of the time with a request in flight, 0-1, at most `served`
    queue: float  # average number of requests in flight


def full_disks(evidence: Evidence, ease: float) -> Iterator[str]:
    """Yield disks that are busy all the time and saturated: slow requests, a long queue, or stalled tasks.

    A disk that serves many requests in parallel counts as busy with a single one, so busy alone proves nothing.
    Source: https://docs.kernel.org/admin-guide/iostats.html, field 10.
    """
    for disk in evidence.series(GPU_HOST_DISK_BUSY_SECONDS_TOTAL):
        load = disk_load(evidence, disk.labels["device"], disk.rate or 0.0)
        if load.busy < evidence.limit("storage.starved", "disk") * ease:
            continue
        if sign := _sign(evidence, load, ease):
            yield f"disk {disk.labels['device']} busy {load.busy:.0%} of the time, {sign}"


def disk_load(evidence: Evidence, device: str, busy: float) -> DiskLoad:
    """Return a disk's load; `busy` is the kernel's figure."""

    def rate(*specs: MetricSpec) -> float:
        return sum(evidence.rate(spec, device=device) or 0.0 for spec in specs)

    requests = rate(GPU_HOST_DISK_READS_TOTAL, GPU_HOST_DISK_WRITES_TOTAL)
    served = rate(GPU_HOST_DISK_READ_SECONDS_TOTAL, GPU_HOST_DISK_WRITE_SECONDS_TOTAL)
    # The kernel counts a full tick (1 to 4 ms) as busy even for a request of a few microseconds. If the disk completed
    # nothing, the time of its pending requests has not been counted yet.
    busy = min(1.0, busy, served) if requests else min(1.0, busy)
    return DiskLoad(requests, served, busy, rate(GPU_HOST_DISK_QUEUE_SECONDS_TOTAL))


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
    for calls in evidence.series(GPU_HOST_LUSTRE_OPERATIONS_TOTAL, direction="read"):
        operations = calls.rate or 0.0
        seconds = evidence.rate(GPU_HOST_LUSTRE_OPERATION_SECONDS_TOTAL, **calls.labels) or 0.0
        if _is_slow(evidence, operations, seconds, ease):
            yield f"Lustre {calls.labels['file_system']} takes {seconds / operations * 1000:.0f} ms a read"


def unfinished_transfers(evidence: Evidence) -> Iterator[str]:
    """Yield GPUDirect Storage reads that stay in flight while none completes."""
    for begun in evidence.series(GPU_HOST_GDS_OPERATIONS_IN_FLIGHT, direction="read"):
        ended = evidence.rate(GPU_HOST_GDS_OPERATIONS_TOTAL, direction="read")
        if begun.seconds and begun.low >= 1 and ended == 0:
            yield f"{begun.last:.0f} reads of GPUDirect Storage do not end"


def silent_mounts(evidence: Evidence) -> Iterator[str]:
    """Yield NFS mounts that complete no operations."""
    for mount, kinds in _nfs_operations(evidence).items():
        if not any(operations for operations, _ in kinds.values()):
            yield mount


def _nfs_operations(evidence: Evidence) -> dict[str, dict[str, list[float]]]:
    """Return [operations per second, seconds spent on them per second (= in flight)] by mount and kind."""
    mounts: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for index, spec in enumerate((GPU_HOST_NFS_OPERATIONS_TOTAL, GPU_HOST_NFS_OPERATION_SECONDS_TOTAL)):
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
        for spec in (GPU_HOST_NFS_RETRANSMISSIONS_TOTAL, GPU_HOST_NFS_MAJOR_TIMEOUTS_TOTAL)
    )
    parts = [f"{resent:.0f} requests sent again"] if resent else []
    parts += [f"{late:.0f} timed out"] if late else []
    return f" ({', '.join(parts)})" if parts else ""


def _sign(evidence: Evidence, load: DiskLoad, ease: float) -> str:
    """Describe what else shows that a busy disk is saturated; "" if nothing does."""
    if load.requests and load.served / load.requests >= thresholds.SLOW_REQUEST_SECONDS * ease:
        return f"{load.served / load.requests * 1000:.0f} ms a request"
    if load.requests and load.queue >= thresholds.LONG_QUEUE * ease:
        return f"{load.queue:.0f} requests under way"
    stalled = evidence.rate(GPU_HOST_PRESSURE_SECONDS_TOTAL, resource="io", kind="some")
    if stalled is not None:
        waits = stalled >= thresholds.STALLED_BY_DISK_SHARE * ease
        return f"tasks stalled for I/O {stalled:.0%} of the time" if waits else ""
    blocked = evidence.one(GPU_HOST_PROCESSES_BLOCKED)
    hangs = not load.requests and blocked is not None and blocked.low >= 1
    return f"nothing completed, {blocked.last:.0f} tasks wait for I/O" if hangs and blocked is not None else ""
