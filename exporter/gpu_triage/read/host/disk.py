"""Disk throughput and latency, and file systems not covered by disk or NFS counters: Lustre, GPUDirect Storage."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from gpu_triage.driver.kernel.files import HostInquiry, is_present, names_in, parse_count, refuse_unmounted
from gpu_triage.read.metrics.bounds import MOST_DEVICES, Bound
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter, host_gauge
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rendering import Each, each

_BYTES_PER_SECTOR = 512  # unit of /proc/diskstats for all devices, regardless of their sector size
_MILLISECONDS_PER_SECOND = 1000
_COLUMNS = 14
_NO_DISK = re.compile(r"(?:loop|ram|zram|sr|scd|fd)[0-9]+")

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


def read_host_disks(counters: MonotoneCounters, bound: Bound, round_: HostRound) -> tuple[Disk, ...]:
    """Read the host's disks: physical ones, and the md and dm devices built on them.

    Sysfs identifies whole disks; even in a container, it lists all block devices of the host. Counters of 32 bits wrap
    after 49 days of I/O.
    """
    inquiry = HostInquiry(round_.failures)
    lines = inquiry.lines(round_.machine.procfs / "diskstats", parse_disk, required=True)
    inquiry.finish()
    blocks = round_.machine.sysfs / "class" / "block"
    disks = {disk.device: disk for disk in lines or ()}
    whole = [name for name in sorted(disks) if _is_whole(blocks, name)]
    if not whole:
        refuse_unmounted(round_.machine.sysfs)
    return tuple(counters.continued(disks[name], name) for name in bound.kept(whole, round_.failures))


def parse_disk(line: str) -> Disk:
    """Parse a line of /proc/diskstats; newer kernels append columns for discards and flushes."""
    columns = line.split()
    if len(columns) < _COLUMNS:
        raise ValueError(f"{line[:80]!r} has {len(columns)} columns")
    reads, _, read, read_ms, writes, _, written, write_ms, _, busy_ms, queue_ms = map(parse_count, columns[3:_COLUMNS])
    seconds = (each / _MILLISECONDS_PER_SECOND for each in (read_ms, write_ms, busy_ms, queue_ms))
    return Disk(columns[2], read * _BYTES_PER_SECTOR, written * _BYTES_PER_SECTOR, reads, writes, *seconds)


def _is_whole(blocks: Path, name: str) -> bool:
    if _NO_DISK.fullmatch(name):
        return False
    block = blocks / name.replace("/", "!")  # sysfs writes cciss/c0d0 as cciss!c0d0
    return is_present(block) and not is_present(block / "partition")


HOST_DISK = HostCollector(
    about="disks",
    tier=Tier.MEDIUM,
    reader=lambda _config: partial(read_host_disks, MonotoneCounters(), Bound(MOST_DEVICES, "too_many_disks")),
    render=each("device"),
)

_MOST_MOUNTS: Final = 16
_MICROSECONDS: Final = 1e6
_BYTES_PER_MIB: Final = 1 << 20
_DIRECTIONS: Final = ("read", "write")
_MOUNT: Final = re.compile(r"(?P<name>[\w.-]{1,16}?)-[0-9a-f]{8,16}")
"""File system name, followed by the address of the kernel's superblock."""
_LINE: Final = re.compile(r"(\w+) +([0-9]{1,20}) samples \[(\w+)\](?: [0-9]+ [0-9]+ ([0-9]{1,20}))?.*")
_GDS_LINE: Final = re.compile(r"(Reads|Writes|Ops)\s*: (.*)")
_GDS_VALUE: Final = re.compile(r"(\w+)=([0-9]{1,20})")
_GDS_FIELDS: Final = {
    "ok": "operations",
    "err": "errors",
    "readMiB": "moved_bytes",
    "writeMiB": "moved_bytes",
    "Read": "in_flight",
    "Write": "in_flight",
}
"""The field of the reading that has a value of a line."""

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


def read_file_systems(counters: MonotoneCounters, round_: HostRound) -> FileSystemsReading:
    """Read I/O totals of Lustre (``llite.*.stats``) and GDS (nvfs-stat.c of github.com/NVIDIA/gds-nvidia-fs)."""
    machine, inquiry = round_.machine, HostInquiry(round_.failures, round_.machine.procfs)
    mounts: dict[str, LustreMount] = {}
    for name, path in _lustre_stats(machine.procfs, machine.sysfs):
        mount = inquiry.parse(path, partial(parse_lustre_stats, name=name))
        if mount is not None and name not in mounts and len(mounts) < _MOST_MOUNTS:
            mounts[name] = counters.continued(mount, name)
    gds = inquiry.parse(machine.procfs / "driver" / "nvidia-fs" / "stats", parse_gds_stats)
    inquiry.finish()
    lustre = tuple(mounts[name] for name in sorted(mounts))
    return FileSystemsReading(lustre, None if gds is None else counters.continued(gds))


def _lustre_stats(procfs: Path, sysfs: Path) -> Iterator[tuple[str, Path]]:
    for root in (procfs / "fs" / "lustre" / "llite", sysfs / "kernel" / "debug" / "lustre" / "llite"):
        for folder in names_in(root):
            mount = _MOUNT.fullmatch(folder)
            if mount is not None:
                yield mount["name"], root / folder / "stats"


def parse_lustre_stats(text: str, name: str) -> LustreMount:
    """Parse ``llite.*.stats`` of the file system with this name.

    Lines look like ``read_bytes 25673 samples [bytes] 1 3366225 145121869``, where the numbers are minimum, maximum and
    sum. Clients from 2.13 on also time calls: ``read 12 samples [usecs] 3 190 611 55011``. No transfers: no line.
    """
    lines = {line[1]: line for each in text.split("\n") if (line := _LINE.fullmatch(each.strip())) is not None}
    if not lines and "snapshot_time" not in text:
        raise ValueError(f"{text[:80]!r} is not Lustre's statistics")
    moved = {direction: lines.get(f"{direction}_bytes") for direction in _DIRECTIONS}
    timed = {direction: line for direction in _DIRECTIONS if (line := lines.get(direction)) is not None}
    return LustreMount(
        name,
        moved_bytes={direction: int(line[4] or 0) if line else 0 for direction, line in moved.items()},
        operations={direction: int(line[2]) if line else 0 for direction, line in moved.items()},
        seconds={
            direction: int(line[4]) / _MICROSECONDS
            for direction, line in timed.items()
            if line[3] in ("usec", "usecs") and line[4]
        },
    )


def parse_gds_stats(text: str) -> GpuDirectStorage:
    """Parse ``/proc/driver/nvidia-fs/stats``.

    Lines look like ``Reads : n=2 ok=2 err=0 readMiB=8 io_state_err=0`` (without ``n``, ``ok`` and ``readMiB`` if
    these are not counted) and ``Ops : Read=0 Write=0 BatchIO=0``.
    """
    found: dict[str, dict[str, int]] = {"moved_bytes": {}, "operations": {}, "errors": {}, "in_flight": {}}
    for line in filter(None, map(_GDS_LINE.match, text.split("\n"))):
        for name, value in _GDS_VALUE.findall(line[2]):
            if field := _GDS_FIELDS.get(name):
                direction = (name if line[1] == "Ops" else line[1]).lower().removesuffix("s")
                found[field][direction] = parse_count(value) * (_BYTES_PER_MIB if field == "moved_bytes" else 1)
    if not any(found.values()):
        raise ValueError(f"{text[:80]!r} is not the statistics of nvidia-fs")
    return GpuDirectStorage(**found)


def hides_lustre(procfs: Path, sysfs: Path) -> bool:
    """Whether Lustre is mounted but its statistics are unreadable, because only root may access debugfs."""
    mounted = any(_MOUNT.fullmatch(name) for name in names_in(sysfs / "fs" / "lustre" / "llite"))
    return mounted and not any(_lustre_stats(procfs, sysfs))


HOST_FILE_SYSTEMS = HostCollector(
    about="Lustre, and GPUDirect Storage",
    tier=Tier.MEDIUM,
    reader=lambda _config: partial(read_file_systems, MonotoneCounters()),
    own_lane=True,
)
