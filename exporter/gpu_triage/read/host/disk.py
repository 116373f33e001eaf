"""Disk throughput and latency, and file systems not covered by disk or NFS counters: Lustre, GPUDirect Storage."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from gpu_triage.driver.kernel.files import HostInquiry, is_present, names_in, parse_count
from gpu_triage.read.metrics.bounds import MOST_DEVICES, Bound
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter, host_gauge
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rendering import Each, each

_BYTES_PER_SECTOR = 512  # unit of /proc/diskstats for all devices, regardless of their sector size
_MILLISECONDS_PER_SECOND = 1000
_COLUMNS = 14
_NO_DISK = re.compile(r"(?:loop|ram|zram|sr|scd|fd)[0-9]+")
_PARTITION = re.compile(r"(?:(?:sd|hd|vd|xvd)[a-z]+|(?:nvme[0-9]+n|mmcblk|nbd|md)[0-9]+p)[0-9]+")

_disk_counter = partial(host_counter, labels=("device",), source="/proc/diskstats")

GPU_HOST_DISK_READ_BYTES_TOTAL = _disk_counter(
    "Bytes read from the whole device since it appeared. md and dm devices appear beside their disks: do not sum over "
    "device."
)
GPU_HOST_DISK_WRITTEN_BYTES_TOTAL = _disk_counter("Bytes written to the whole device since it appeared.")
GPU_HOST_DISK_READS_TOTAL = _disk_counter("Completed read requests since the device appeared.")
GPU_HOST_DISK_WRITES_TOTAL = _disk_counter("Completed write requests since the device appeared.")
GPU_HOST_DISK_READ_SECONDS_TOTAL = _disk_counter("Time of read requests, summed; divided by reads, their mean latency.")
GPU_HOST_DISK_WRITE_SECONDS_TOTAL = _disk_counter(
    "Time of write requests, summed; divided by writes, their mean latency."
)
GPU_HOST_DISK_BUSY_SECONDS_TOTAL = _disk_counter(
    "Time with at least one request in flight. Since Linux 5.0 a request counts at least a tick (1 to 4 ms)."
)
GPU_HOST_DISK_QUEUE_SECONDS_TOTAL = _disk_counter(
    "Time of requests in flight, summed; its rate is the mean queue length."
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


class HostDiskReader:
    """Reads disk statistics; continues counters over wraps: 32-bit ones wrap after 49 days of I/O."""

    def __init__(self) -> None:
        self._counters: MonotoneCounters[str] = MonotoneCounters()
        self._bound = Bound(MOST_DEVICES, "too_many_disks")

    def read(self, round_: HostRound) -> tuple[Disk, ...]:
        """Read the host's disks: physical ones, and the md and dm devices built on them."""
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
        return tuple(self._disk(*disk) for disk in self._bound.kept(disks, round_.failures))

    def _disk(self, name: str, counts: tuple[int, ...]) -> Disk:
        reads, sectors_read, read_ms, writes, sectors_written, write_ms, busy_ms, queue_ms = self._counters.row(
            name, counts
        )
        moved = sectors_read * _BYTES_PER_SECTOR, sectors_written * _BYTES_PER_SECTOR
        seconds = (each / _MILLISECONDS_PER_SECOND for each in (read_ms, write_ms, busy_ms, queue_ms))
        return Disk(name, *moved, reads, writes, *seconds)


def parse_disk(line: str) -> tuple[str, tuple[int, ...]]:
    """Parse a line of /proc/diskstats into name and counts; newer kernels append columns for discards and flushes.

    The counts are reads, sectors, milliseconds; writes, sectors, milliseconds; milliseconds busy and queued.
    """
    columns = line.split()
    if len(columns) < _COLUMNS:
        raise ValueError(f"{line[:80]!r} has {len(columns)} columns")
    reads, _, *read, writes, _, sectors, milliseconds, _, busy, queue = map(parse_count, columns[3:_COLUMNS])
    return columns[2], (reads, *read, writes, sectors, milliseconds, busy, queue)


def is_named_like_a_disk(name: str) -> bool:
    """Whether this is the name of a whole disk, rather than a partition, loop, RAM, CD or floppy device."""
    return not (_NO_DISK.fullmatch(name) or _PARTITION.fullmatch(name))


def _is_whole(blocks: Path, name: str) -> bool:
    if _NO_DISK.fullmatch(name):
        return False
    block = blocks / name.replace("/", "!")  # sysfs writes cciss/c0d0 as cciss!c0d0
    return is_present(block) and not is_present(block / "partition")


HOST_DISK = HostCollector("disks", Tier.MEDIUM, lambda _config: HostDiskReader().read, each("device"))

_MOST_MOUNTS: Final = 16
_MICROSECONDS: Final = 1e6
_BYTES_PER_MIB: Final = 1 << 20
_DIRECTIONS: Final = ("read", "write")
_MOUNT: Final = re.compile(r"(?P<name>[\w.-]{1,16}?)-[0-9a-f]{8,16}")
"""File system name, followed by the address of the kernel's superblock."""
_LINE: Final = re.compile(r"(\w+) +([0-9]{1,20}) samples \[(\w+)\](?: [0-9]+ [0-9]+ ([0-9]{1,20}))?.*")
_GDS_LINE: Final = re.compile(r"(Reads|Writes|Ops)\s*: (.*)")
_GDS_VALUE: Final = re.compile(r"(\w+)=([0-9]{1,20})")
_GDS_PLACES: Final = {
    ("Reads", "ok"): ("ok", "read"),
    ("Reads", "err"): ("err", "read"),
    ("Reads", "readMiB"): ("mib", "read"),
    ("Writes", "ok"): ("ok", "write"),
    ("Writes", "err"): ("err", "write"),
    ("Writes", "writeMiB"): ("mib", "write"),
    ("Ops", "Read"): ("in_flight", "read"),
    ("Ops", "Write"): ("in_flight", "write"),
}
"""What a value of a line counts, and in which direction."""

_Counts = Mapping[str, Mapping[str, int]]  # by what is counted, then by direction

_lustre_counter = partial(host_counter, labels={"file_system": ANY, "direction": _DIRECTIONS})

GPU_HOST_LUSTRE_BYTES_TOTAL = _lustre_counter(
    "Bytes that programs read from and wrote to a Lustre file system since it was mounted, including the client's "
    "cache. From client 2.12 on only root can read the counters.",
    source="/proc/fs/lustre/llite/*/stats, /sys/kernel/debug/lustre/llite/*/stats {read,write}_bytes",
)
GPU_HOST_LUSTRE_OPERATIONS_TOTAL = _lustre_counter(
    "Read and write calls of programs on a Lustre file system.", source="as gpu_host_lustre_bytes_total"
)
GPU_HOST_LUSTRE_OPERATION_SECONDS_TOTAL = _lustre_counter(
    "Time of these calls, summed; absent before client 2.13.",
    source="/sys/kernel/debug/lustre/llite/*/stats {read,write} [usecs]",
)
_gds_counter = partial(host_counter, labels={"direction": _DIRECTIONS})

GPU_HOST_GDS_BYTES_TOTAL = _gds_counter(
    "Bytes that GPUDirect Storage read into and wrote from GPU memory, in steps of a MiB; absent unless nvidia-fs "
    "counts them (module parameter rw_stats_enabled).",
    source="/proc/driver/nvidia-fs/stats",
)
GPU_HOST_GDS_OPERATIONS_TOTAL = _gds_counter(
    "Successful GPUDirect Storage transfers; absent when gpu_host_gds_bytes_total is.",
    source="/proc/driver/nvidia-fs/stats ok",
)
GPU_HOST_GDS_ERRORS_TOTAL = _gds_counter(
    "Failed GPUDirect Storage transfers.", source="/proc/driver/nvidia-fs/stats err"
)
GPU_HOST_GDS_OPERATIONS_IN_FLIGHT = host_gauge(
    "GPUDirect Storage transfers in flight.",
    labels={"direction": _DIRECTIONS},
    source="/proc/driver/nvidia-fs/stats Ops",
)


@dataclass(frozen=True, slots=True)
class LustreMount:
    """A Lustre file system; several mounts of the same one count as one."""

    name: str
    moved_bytes: Annotated[Mapping[str, int], GPU_HOST_LUSTRE_BYTES_TOTAL]
    operations: Annotated[Mapping[str, int], GPU_HOST_LUSTRE_OPERATIONS_TOTAL]
    seconds: Annotated[Mapping[str, float], GPU_HOST_LUSTRE_OPERATION_SECONDS_TOTAL]


@dataclass(frozen=True, slots=True)
class GpuDirectStorage:
    moved_bytes: Annotated[Mapping[str, int], GPU_HOST_GDS_BYTES_TOTAL]
    operations: Annotated[Mapping[str, int], GPU_HOST_GDS_OPERATIONS_TOTAL]
    errors: Annotated[Mapping[str, int], GPU_HOST_GDS_ERRORS_TOTAL]
    in_flight: Annotated[Mapping[str, int], GPU_HOST_GDS_OPERATIONS_IN_FLIGHT]


@dataclass(frozen=True, slots=True)
class FileSystemsReading:
    """Statistics of Lustre and GPUDirect Storage; empty and None if not in use."""

    lustre: Annotated[tuple[LustreMount, ...], Each("name")]
    gds: Annotated[GpuDirectStorage | None, Each()]


class FileSystemsReader:
    def __init__(self) -> None:
        self._counters: MonotoneCounters[tuple[str, str, str]] = MonotoneCounters()

    def read(self, round_: HostRound) -> FileSystemsReading:
        """Read I/O totals of Lustre (``llite.*.stats``) and GDS (nvfs-stat.c of github.com/NVIDIA/gds-nvidia-fs)."""
        machine, inquiry = round_.machine, HostInquiry(round_.failures, round_.machine.procfs)
        mounts: dict[str, _Counts] = {}
        for name, path in _lustre_stats(machine.procfs, machine.sysfs):
            stats = inquiry.parse(path, parse_lustre_stats)
            if stats is not None and name not in mounts and len(mounts) < _MOST_MOUNTS:
                mounts[name] = stats
        gds = inquiry.parse(machine.procfs / "driver" / "nvidia-fs" / "stats", parse_gds_stats)
        inquiry.finish()
        lustre = tuple(self._mount(name, stats) for name, stats in sorted(mounts.items()))
        return FileSystemsReading(lustre, None if gds is None else self._gds(gds))

    def _mount(self, name: str, stats: _Counts) -> LustreMount:
        microseconds = self._published(name, "microseconds", stats)
        return LustreMount(
            name=name,
            moved_bytes=self._published(name, "bytes", stats),
            operations=self._published(name, "operations", stats),
            seconds={direction: value / _MICROSECONDS for direction, value in microseconds.items()},
        )

    def _gds(self, stats: _Counts) -> GpuDirectStorage:
        mebibytes = self._published("gds", "mib", stats)
        return GpuDirectStorage(
            moved_bytes={direction: value * _BYTES_PER_MIB for direction, value in mebibytes.items()},
            operations=self._published("gds", "ok", stats),
            errors=self._published("gds", "err", stats),
            in_flight=stats.get("in_flight", {}),
        )

    def _published(self, source: str, what: str, stats: _Counts) -> dict[str, int]:
        return {
            direction: self._counters.published((source, what, direction), value)
            for direction, value in stats.get(what, {}).items()
        }


def _lustre_stats(procfs: Path, sysfs: Path) -> Iterator[tuple[str, Path]]:
    for root in (procfs / "fs" / "lustre" / "llite", sysfs / "kernel" / "debug" / "lustre" / "llite"):
        for folder in names_in(root):
            mount = _MOUNT.fullmatch(folder)
            if mount is not None:
                yield mount["name"], root / folder / "stats"


def parse_lustre_stats(text: str) -> _Counts:
    """Parse ``llite.*.stats`` into ``bytes``, ``operations`` and ``microseconds`` (if timed).

    Lines look like ``read_bytes 25673 samples [bytes] 1 3366225 145121869``, where the numbers are minimum, maximum and
    sum. Clients from 2.13 on also time calls: ``read 12 samples [usecs] 3 190 611 55011``. No transfers: no line.
    """
    lines = {line[1]: line for each in text.split("\n") if (line := _LINE.fullmatch(each.strip())) is not None}
    if not lines and "snapshot_time" not in text:
        raise ValueError(f"{text[:80]!r} is not Lustre's statistics")
    moved = {direction: lines.get(f"{direction}_bytes") for direction in _DIRECTIONS}
    timed = {direction: line for direction in _DIRECTIONS if (line := lines.get(direction)) is not None}
    return {
        "bytes": {direction: int(line[4] or 0) if line else 0 for direction, line in moved.items()},
        "operations": {direction: int(line[2]) if line else 0 for direction, line in moved.items()},
        "microseconds": {
            direction: int(line[4]) for direction, line in timed.items() if line[3] in ("usec", "usecs") and line[4]
        },
    }


def parse_gds_stats(text: str) -> _Counts:
    """Parse ``/proc/driver/nvidia-fs/stats`` into ``ok``, ``err``, ``mib`` and ``in_flight``.

    Lines look like ``Reads : n=2 ok=2 err=0 readMiB=8 io_state_err=0`` (without ``n``, ``ok`` and ``readMiB`` if
    these are not counted) and ``Ops : Read=0 Write=0 BatchIO=0``.
    """
    found: dict[str, dict[str, int]] = {}
    for line in filter(None, map(_GDS_LINE.match, text.split("\n"))):
        for name, value in _GDS_VALUE.findall(line[2]):
            if place := _GDS_PLACES.get((line[1], name)):
                what, direction = place
                found.setdefault(what, {})[direction] = parse_count(value)
    if not found:
        raise ValueError(f"{text[:80]!r} is not the statistics of nvidia-fs")
    return found


def hides_lustre(procfs: Path, sysfs: Path) -> bool:
    """Whether Lustre is mounted but its statistics are unreadable, because only root may access debugfs."""
    mounted = any(_MOUNT.fullmatch(name) for name in names_in(sysfs / "fs" / "lustre" / "llite"))
    return mounted and not any(_lustre_stats(procfs, sysfs))


HOST_FILE_SYSTEMS = HostCollector(
    about="Lustre, and GPUDirect Storage",
    tier=Tier.MEDIUM,
    reader=lambda _config: FileSystemsReader().read,
    own_lane=True,
)
