"""Disk throughput and latency."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

from gpu_triage.driver.kernel.files import is_present, parse_count
from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.read.metrics.bounds import MOST_DEVICES, Bound
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import Tier, host_counter
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rendering import Each
from gpu_triage.read.metrics.rounds import HostRound

_BYTES_PER_SECTOR = 512
"""Unit of /proc/diskstats for all devices, regardless of their sector size."""

_MILLISECONDS_PER_SECOND = 1000
_COLUMNS = 14
_NO_DISK = re.compile(r"(?:loop|ram|zram|sr|scd|fd)[0-9]+")
_PARTITION = re.compile(r"(?:(?:sd|hd|vd|xvd)[a-z]+|(?:nvme[0-9]+n|mmcblk|nbd|md)[0-9]+p)[0-9]+")

_disk_counter = partial(host_counter, labels=("device",), source="/proc/diskstats")

GPU_HOST_DISK_READ_BYTES_TOTAL = _disk_counter(
    "gpu_host_disk_read_bytes_total",
    "Bytes read from the whole device since it appeared. md and dm devices are listed beside the disks they are "
    "built on: do not sum over device.",
)
GPU_HOST_DISK_WRITTEN_BYTES_TOTAL = _disk_counter(
    "gpu_host_disk_written_bytes_total",
    "Bytes written to the whole device since it appeared. md and dm devices are listed beside the disks they are "
    "built on: do not sum over device.",
)
GPU_HOST_DISK_READS_TOTAL = _disk_counter(
    "gpu_host_disk_reads_total", "Read requests the device completed since it appeared."
)
GPU_HOST_DISK_WRITES_TOTAL = _disk_counter(
    "gpu_host_disk_writes_total", "Write requests the device completed since it appeared."
)
GPU_HOST_DISK_READ_SECONDS_TOTAL = _disk_counter(
    "gpu_host_disk_read_seconds_total",
    "Time read requests took, summed over requests; over reads it is their mean latency.",
)
GPU_HOST_DISK_WRITE_SECONDS_TOTAL = _disk_counter(
    "gpu_host_disk_write_seconds_total",
    "Time write requests took, summed over requests; over writes it is their mean latency.",
)
GPU_HOST_DISK_BUSY_SECONDS_TOTAL = _disk_counter(
    "gpu_host_disk_busy_seconds_total",
    "Time with at least one request under way; a device that serves many at once can be busy all the time and have "
    "room. Since Linux 5.0 a tick of the kernel (1 to 4 ms) for each request, however short: compare it with the time "
    "that reads and writes took.",
)
GPU_HOST_DISK_QUEUE_SECONDS_TOTAL = _disk_counter(
    "gpu_host_disk_queue_seconds_total",
    "Time requests were under way, summed over requests; its rate is the mean queue length.",
)


@dataclass(frozen=True, slots=True)
class Disk:
    """Monotonic counters of one whole block device (``nvme0n1``, ``md0``, ``dm-0``) since boot."""

    device: str
    read_bytes: Annotated[int, GPU_HOST_DISK_READ_BYTES_TOTAL]
    written_bytes: Annotated[int, GPU_HOST_DISK_WRITTEN_BYTES_TOTAL]
    reads: Annotated[int, GPU_HOST_DISK_READS_TOTAL]
    writes: Annotated[int, GPU_HOST_DISK_WRITES_TOTAL]
    read_seconds: Annotated[float, GPU_HOST_DISK_READ_SECONDS_TOTAL]
    write_seconds: Annotated[float, GPU_HOST_DISK_WRITE_SECONDS_TOTAL]
    busy_seconds: Annotated[float, GPU_HOST_DISK_BUSY_SECONDS_TOTAL]
    queue_seconds: Annotated[float, GPU_HOST_DISK_QUEUE_SECONDS_TOTAL]


@dataclass(frozen=True, slots=True)
class HostDiskReading:
    """Disks of the host, by name."""

    disks: Annotated[tuple[Disk, ...], Each("device")]


class DiskCounts(NamedTuple):
    """The values used from one line of /proc/diskstats, in the kernel's units."""

    reads: int
    sectors_read: int
    read_milliseconds: int
    writes: int
    sectors_written: int
    write_milliseconds: int
    busy_milliseconds: int
    queue_milliseconds: int


class HostDiskReader:
    """Reads disk statistics; continues counters over wraps: 32-bit ones wrap after 49 days of I/O."""

    def __init__(self) -> None:
        self._counters: MonotoneCounters[tuple[str, str]] = MonotoneCounters()
        self._bound = Bound(MOST_DEVICES, "too_many_disks")

    def read(self, round_: HostRound) -> HostDiskReading:
        """Read the host's disks: physical ones, and the md and dm devices built on them.

        Source: ``/proc/diskstats``, https://docs.kernel.org/admin-guide/iostats.html

        Raises:
            HostReadFailed: the file is missing, or cannot be read or parsed.
        """
        inquiry = HostInquiry(round_.failures)
        lines = inquiry.lines(round_.machine.procfs / "diskstats", parse_disk, required=True)
        inquiry.finish()
        blocks = round_.machine.sysfs / "class" / "block"
        known_to_sysfs = is_present(blocks)
        disks = [
            (name, counts)
            for name, counts in sorted(dict(lines or ()).items())
            if (_is_whole(blocks, name) if known_to_sysfs else is_named_like_a_disk(name))
        ]
        return HostDiskReading(tuple(self._disk(*disk) for disk in self._bound.kept(disks, round_.failures)))

    def _disk(self, name: str, counts: DiskCounts) -> Disk:
        now = DiskCounts(*(self._counters.published((name, field), value) for field, value in counts._asdict().items()))
        return Disk(
            device=name,
            reads=now.reads,
            writes=now.writes,
            read_bytes=now.sectors_read * _BYTES_PER_SECTOR,
            written_bytes=now.sectors_written * _BYTES_PER_SECTOR,
            read_seconds=now.read_milliseconds / _MILLISECONDS_PER_SECOND,
            write_seconds=now.write_milliseconds / _MILLISECONDS_PER_SECOND,
            busy_seconds=now.busy_milliseconds / _MILLISECONDS_PER_SECOND,
            queue_seconds=now.queue_milliseconds / _MILLISECONDS_PER_SECOND,
        )


def parse_disk(line: str) -> tuple[str, DiskCounts]:
    """Parse a line of /proc/diskstats into name and counts; newer kernels append columns for discards and flushes.

    Raises:
        ValueError: a column used is missing or not a count.
    """
    columns = line.split()
    if len(columns) < _COLUMNS:
        raise ValueError(f"{line[:80]!r} has {len(columns)} columns")
    counts = [parse_count(column) for column in columns[3:_COLUMNS]]
    reads, _, sectors_read, read_ms, writes, _, sectors_written, write_ms, _, busy_ms, queue_ms = counts
    return columns[2], DiskCounts(reads, sectors_read, read_ms, writes, sectors_written, write_ms, busy_ms, queue_ms)


def is_named_like_a_disk(name: str) -> bool:
    """Whether this is the name of a whole disk, rather than a partition, loop, RAM, CD or floppy device."""
    return not (_NO_DISK.fullmatch(name) or _PARTITION.fullmatch(name))


def _is_whole(blocks: Path, name: str) -> bool:
    if _NO_DISK.fullmatch(name):
        return False
    block = blocks / name.replace("/", "!")  # sysfs writes cciss/c0d0 as cciss!c0d0
    return is_present(block) and not is_present(block / "partition")


HOST_DISK = HostCollector("host_disk", "disks", Tier.MEDIUM, lambda _config: HostDiskReader().read)
