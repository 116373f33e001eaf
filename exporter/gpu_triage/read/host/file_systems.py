"""File systems not covered by disk or NFS counters: Lustre clients and GPUDirect Storage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from gpu_triage.driver.kernel.files import names_in, parse_count
from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter, host_gauge
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rendering import Each
from gpu_triage.read.metrics.rounds import HostRound

_MOST_MOUNTS: Final = 16
_MICROSECONDS: Final = 1e6
_BYTES_PER_MIB: Final = 1 << 20
_DIRECTIONS: Final = ("read", "write")
_MOUNT: Final = re.compile(r"(?P<name>[\w.-]{1,16}?)-[0-9a-f]{8,16}")
"""File system name, followed by the address of the kernel's superblock."""
_LINE: Final = re.compile(r"(\w+) +([0-9]{1,20}) samples \[(\w+)\](?: [0-9]+ [0-9]+ ([0-9]{1,20}))?.*")
_GDS_LINE: Final = re.compile(r"(Reads|Writes|Ops)\s*: (.*)")
_GDS_VALUE: Final = re.compile(r"(\w+)=([0-9]{1,20})")

GPU_HOST_LUSTRE_BYTES_TOTAL = host_counter(
    "gpu_host_lustre_bytes_total",
    "Bytes that programs read from a Lustre file system and wrote to it since it was mounted, those in the client's "
    "cache included. Clients of 2.12 and later keep the counters where only user 0 can read them.",
    labels={"file_system": ANY, "direction": _DIRECTIONS},
    source="/proc/fs/lustre/llite/*/stats, /sys/kernel/debug/lustre/llite/*/stats {read,write}_bytes",
)
GPU_HOST_LUSTRE_OPERATIONS_TOTAL = host_counter(
    "gpu_host_lustre_operations_total",
    "Calls of programs that read from a Lustre file system, or wrote to it.",
    labels={"file_system": ANY, "direction": _DIRECTIONS},
    source="as gpu_host_lustre_bytes_total",
)
GPU_HOST_LUSTRE_OPERATION_SECONDS_TOTAL = host_counter(
    "gpu_host_lustre_operation_seconds_total",
    "Time that these calls took, summed up; absent for clients older than 2.13.",
    labels={"file_system": ANY, "direction": _DIRECTIONS},
    source="/sys/kernel/debug/lustre/llite/*/stats {read,write} [usecs]",
)
GPU_HOST_GDS_BYTES_TOTAL = host_counter(
    "gpu_host_gds_bytes_total",
    "Bytes that GPUDirect Storage read into GPUs' memory and wrote from it, in steps of a MiB; absent unless nvidia-fs "
    "counts them (module parameter rw_stats_enabled).",
    labels={"direction": _DIRECTIONS},
    source="/proc/driver/nvidia-fs/stats",
)
GPU_HOST_GDS_OPERATIONS_TOTAL = host_counter(
    "gpu_host_gds_operations_total",
    "Transfers of GPUDirect Storage that completed successfully; also absent unless counted.",
    labels={"direction": _DIRECTIONS},
    source="/proc/driver/nvidia-fs/stats ok",
)
GPU_HOST_GDS_ERRORS_TOTAL = host_counter(
    "gpu_host_gds_errors_total",
    "Transfers of GPUDirect Storage that failed.",
    labels={"direction": _DIRECTIONS},
    source="/proc/driver/nvidia-fs/stats err",
)
GPU_HOST_GDS_OPERATIONS_IN_FLIGHT = host_gauge(
    "gpu_host_gds_operations_in_flight",
    "Transfers of GPUDirect Storage that have begun and not ended.",
    labels={"direction": _DIRECTIONS},
    source="/proc/driver/nvidia-fs/stats Ops",
)


class Transfers(NamedTuple):
    """I/O totals of one direction; None for what is not counted."""

    moved_bytes: int | None = None
    operations: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LustreMount:
    """A Lustre file system; several mounts of the same one count as one."""

    name: str
    moved_bytes: Annotated[Mapping[str, int], GPU_HOST_LUSTRE_BYTES_TOTAL]
    operations: Annotated[Mapping[str, int], GPU_HOST_LUSTRE_OPERATIONS_TOTAL]
    seconds: Annotated[Mapping[str, float], GPU_HOST_LUSTRE_OPERATION_SECONDS_TOTAL]


@dataclass(frozen=True, slots=True)
class GpuDirectStorage:
    """I/O totals of GPUDirect Storage."""

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
    """Reads file system statistics; keeps their counters monotonic."""

    def __init__(self) -> None:
        self._counters: MonotoneCounters[tuple[str, str, str]] = MonotoneCounters()

    def read(self, round_: HostRound) -> FileSystemsReading:
        """Read I/O totals.

        Source: ``llite.*.stats`` of Lustre, ``nvfs-stat.c`` of https://github.com/NVIDIA/gds-nvidia-fs

        Raises:
            HostReadFailed: such files exist, but none can be read or parsed.
        """
        machine, inquiry = round_.machine, HostInquiry(round_.failures, round_.machine.procfs)
        mounts: dict[str, dict[str, Transfers]] = {}
        for name, path in _lustre_stats(machine.procfs, machine.sysfs):
            stats = inquiry.parse(path, parse_lustre_stats)
            if stats is not None and name not in mounts and len(mounts) < _MOST_MOUNTS:
                mounts[name] = dict(stats)
        gds = inquiry.parse(machine.procfs / "driver" / "nvidia-fs" / "stats", parse_gds_stats)
        inquiry.finish()
        lustre = tuple(self._mount(name, stats) for name, stats in sorted(mounts.items()))
        return FileSystemsReading(lustre, None if gds is None else self._gds(gds))

    def _mount(self, name: str, stats: Mapping[str, Transfers]) -> LustreMount:
        def kept(what: str, values: Mapping[str, int | None]) -> dict[str, int]:
            return {
                direction: self._counters.published((name, what, direction), value)
                for direction, value in values.items()
                if value is not None
            }

        microseconds = {
            direction: None if each.seconds is None else round(each.seconds * _MICROSECONDS)
            for direction, each in stats.items()
        }
        return LustreMount(
            name=name,
            moved_bytes=kept("bytes", {direction: each.moved_bytes for direction, each in stats.items()}),
            operations=kept("operations", {direction: each.operations for direction, each in stats.items()}),
            seconds={each: value / _MICROSECONDS for each, value in kept("seconds", microseconds).items()},
        )

    def _gds(self, counts: Mapping[str, Mapping[str, int]]) -> GpuDirectStorage:
        def kept(name: str, factor: int = 1) -> dict[str, int]:
            return {
                direction: self._counters.published(("gds", name, direction), of[name]) * factor
                for direction, of in counts.items()
                if name in of
            }

        in_flight = {direction: of["in_flight"] for direction, of in counts.items() if "in_flight" in of}
        return GpuDirectStorage(kept("mib", _BYTES_PER_MIB), kept("ok"), kept("err"), in_flight)


def _lustre_stats(procfs: Path, sysfs: Path) -> Iterator[tuple[str, Path]]:
    for root in (procfs / "fs" / "lustre" / "llite", sysfs / "kernel" / "debug" / "lustre" / "llite"):
        for folder in names_in(root):
            mount = _MOUNT.fullmatch(folder)
            if mount is not None:
                yield mount["name"], root / folder / "stats"


def parse_lustre_stats(text: str) -> Mapping[str, Transfers]:
    """Parse ``llite.*.stats`` into I/O totals by direction.

    Lines look like ``read_bytes 25673 samples [bytes] 1 3366225 145121869``, where the numbers are minimum, maximum and
    sum. Clients of 2.13 and later also time calls: ``read 12 samples [usecs] 3 190 611 55011``. A direction without
    transfers has no line.

    Raises:
        ValueError: there is no such line.
    """
    lines = {line[1]: line for each in text.split("\n") if (line := _LINE.fullmatch(each.strip())) is not None}
    if not lines and "snapshot_time" not in text:
        raise ValueError(f"{text[:80]!r} is not Lustre's statistics")
    found: dict[str, Transfers] = {}
    for direction in _DIRECTIONS:
        moved, timed = lines.get(f"{direction}_bytes"), lines.get(direction)
        took = timed is not None and timed[3] in ("usec", "usecs") and timed[4]
        found[direction] = Transfers(
            moved_bytes=int(moved[4]) if moved is not None and moved[4] else 0,
            operations=int(moved[2]) if moved is not None else 0,
            seconds=int(took) / _MICROSECONDS if took else None,
        )
    return found


def parse_gds_stats(text: str) -> Mapping[str, Mapping[str, int]]:
    """Parse ``/proc/driver/nvidia-fs/stats`` into ``ok``, ``err``, ``mib`` and ``in_flight`` by direction.

    Lines look like ``Reads : n=2 ok=2 err=0 readMiB=8 io_state_err=0`` (without ``n``, ``ok`` and ``readMiB`` if
    these are not counted) and ``Ops : Read=0 Write=0 BatchIO=0``.

    Raises:
        ValueError: there is no such line.
    """
    found: dict[str, dict[str, int]] = {direction: {} for direction in _DIRECTIONS}
    for each in text.split("\n"):
        line = _GDS_LINE.match(each)
        if line is None:
            continue
        values = {name: parse_count(value) for name, value in _GDS_VALUE.findall(line[2])}
        if line[1] == "Ops":
            for direction in _DIRECTIONS:
                if direction.capitalize() in values:
                    found[direction]["in_flight"] = values[direction.capitalize()]
            continue
        direction = "read" if line[1] == "Reads" else "write"
        names = {"ok": "ok", "err": "err", f"{direction}MiB": "mib"}
        found[direction] |= {names[name]: value for name, value in values.items() if name in names}
    if not any(found.values()):
        raise ValueError(f"{text[:80]!r} is not the statistics of nvidia-fs")
    return found


def hides_lustre(procfs: Path, sysfs: Path) -> bool:
    """Whether Lustre is mounted but its statistics are unreadable, because only root may access debugfs."""
    mounted = any(_MOUNT.fullmatch(name) for name in names_in(sysfs / "fs" / "lustre" / "llite"))
    return mounted and not any(_lustre_stats(procfs, sysfs))


HOST_FILE_SYSTEMS = HostCollector(
    name="host_file_systems",
    about="Lustre, and GPUDirect Storage",
    tier=Tier.MEDIUM,
    reader=lambda _config: FileSystemsReader().read,
    own_lane=True,
)
