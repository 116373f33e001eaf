"""Requests and latency of the host's NFS mounts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from gpu_triage.driver.kernel.files import HostInquiry, parse_count, parsing, read_text, required_text
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.metrics.bounds import Bound
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rendering import each

MOST_MOUNTS: Final = 64
"""Maximum mounts published. Each has about 20 series, and a Kubernetes node has a mount per volume of every pod."""

_MOST_REMEMBERED: Final = 4 * MOST_MOUNTS
_MOST_BYTES: Final = 8 << 20
"""Maximum size of mountstats: a mount takes about 6 KiB."""

_MILLISECONDS_PER_SECOND: Final = 1000
_FILE_SYSTEMS: Final = frozenset({"nfs", "nfs4"})
_VERSIONS: Final = frozenset({"1.0", "1.1"})
_MOUNT: Final = re.compile(
    r"(?:device \S*|no device) mounted on (?P<point>\S+) with fstype (?P<fstype>\S+)(?: statvers=(?P<version>\S+))?"
)
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
_ALWAYS: Final = frozenset({"READ", "WRITE"})
_COLUMNS: Final = 8
_REQUESTS, _SENT, _TIMEOUTS, _MILLISECONDS = 0, 1, 2, 7
_BYTES_READ, _BYTES_WRITTEN = 4, 5

_nfs_counter = partial(host_counter, source="/proc/1/mountstats, else /proc/self/mountstats")

GPU_HOST_NFS_OPERATIONS_TOTAL = _nfs_counter(
    "Completed requests of the NFS mount since it was mounted, by protocol operation: READ, WRITE and any that was "
    "used. Mounts of one export may share counts: do not sum over mount.",
    labels=("mount", "operation"),
)
GPU_HOST_NFS_OPERATION_SECONDS_TOTAL = _nfs_counter(
    "Time from request to answer of the NFS mount's requests, summed; divided by operations, their mean latency. "
    "Unanswered requests are not included.",
    labels=("mount", "operation"),
)
GPU_HOST_NFS_BYTES_TOTAL = _nfs_counter(
    "Bytes the NFS mount read from and wrote to its server since it was mounted, without page cache hits.",
    labels={"mount": ANY, "direction": ("read", "write")},
)
_failure_counter = partial(_nfs_counter, labels=("mount",), default_samples=lambda sample: sample.value > 0)

GPU_HOST_NFS_RETRANSMISSIONS_TOTAL = _failure_counter(
    "Resent requests of the NFS mount since it was mounted, after a lost packet or connection. Absent while 0, "
    "except in profile full."
)
GPU_HOST_NFS_MAJOR_TIMEOUTS_TOTAL = _failure_counter(
    "Requests of the NFS mount not answered within all retries (timeo, retrans) since it was mounted. Absent while 0, "
    "except in profile full."
)


@dataclass(frozen=True, slots=True)
class NfsMount:
    """Monotonic counters of one NFS mount point since it was mounted; operations that were used, READ and WRITE."""

    mount: str
    operations: Annotated[Mapping[str, int], GPU_HOST_NFS_OPERATIONS_TOTAL]
    operation_seconds: Annotated[Mapping[str, float], GPU_HOST_NFS_OPERATION_SECONDS_TOTAL]
    read_bytes: Annotated[int, GPU_HOST_NFS_BYTES_TOTAL, "read"]
    written_bytes: Annotated[int, GPU_HOST_NFS_BYTES_TOTAL, "write"]
    retransmissions: Annotated[int, GPU_HOST_NFS_RETRANSMISSIONS_TOTAL] = 0
    major_timeouts: Annotated[int, GPU_HOST_NFS_MAJOR_TIMEOUTS_TOTAL] = 0


class HostNfsReader:
    """Reads NFS statistics; continues the counters of each mount, which restart at 0 when it is remounted."""

    def __init__(self) -> None:
        # By mount, least recently seen first, to bound memory: mount points named after pods keep changing.
        self._counters: dict[str, MonotoneCounters] = {}
        self._bound = Bound(MOST_MOUNTS, "too_many_mounts")

    def read(self, round_: HostRound) -> tuple[NfsMount, ...]:
        """Read the host's NFS mounts. Never accesses the mounts themselves, which hangs with a dead server."""
        inquiry = HostInquiry(round_.failures)
        text = _mountstats(round_.machine.procfs)
        found: dict[str, NfsMount] = {}
        for mount, version, lines in nfs_sections(text):
            counts = inquiry.ask(partial(_counts, mount, version, lines))
            if counts is not None:
                # Of two mounts at one mount point, only the later is visible; it is listed last.
                found[mount] = counts
        inquiry.finish()
        return tuple(self._continued(found[mount]) for mount in self._bound.kept(list(found), round_.failures))

    def _continued(self, now: NfsMount) -> NfsMount:
        counters = self._counters.pop(now.mount, None) or MonotoneCounters()
        self._counters[now.mount] = counters
        while len(self._counters) > _MOST_REMEMBERED:
            del self._counters[next(iter(self._counters))]
        return counters.continued(now)


def nfs_sections(text: str) -> list[tuple[str, str, list[str]]]:
    """Mount point, statistics version and lines of each NFS mount in a mountstats file.

    A section begins with ``device server:/export mounted on /data with fstype nfs4 statvers=1.1``; other file
    systems only have this line, without the version.
    """
    sections: list[tuple[str, str, list[str]]] = []
    inside = False
    for line in text.split("\n"):
        match = _MOUNT.match(line)
        if match is not None:
            inside = match["fstype"] in _FILE_SYSTEMS
            if inside:
                sections.append((unescape(match["point"]), match["version"] or "", []))
        elif inside:
            sections[-1][2].append(line)
    return sections


def parse_section(mount: str, version: str, lines: list[str]) -> NfsMount:
    """Parse the counters of an NFS mount from the lines after its first; the version is ``1.0`` or ``1.1``.

    Of the eight numbers in ``bytes:`` the fifth and sixth are used; of each operation (``READ: 8 8 0 1 2 3 4 5``) the
    first three and the eighth: requests, transmissions, major timeouts and milliseconds. Version 1.1 appends an error
    count. Source: ``rpc_count_iostats_metrics`` of net/sunrpc/stats.c.
    """
    if version not in _VERSIONS:
        raise ValueError(f"statvers {version[:20]!r} is not known")
    moved: list[int] | None = None
    operations: dict[str, list[int]] | None = None
    for line in filter(None, map(str.strip, lines)):
        name, _, rest = line.partition(":")
        if operations is not None:
            operations[name] = _numbers(rest)
        elif name == "bytes":
            moved = _numbers(rest)
        elif name == "per-op statistics":
            operations = {}
    if moved is None or operations is None:
        raise ValueError("the section is cut short")
    used = {name: counts for name, counts in operations.items() if counts[_REQUESTS] or name in _ALWAYS}
    return NfsMount(
        mount,
        operations={name: counts[_REQUESTS] for name, counts in used.items()},
        operation_seconds={name: counts[_MILLISECONDS] / _MILLISECONDS_PER_SECOND for name, counts in used.items()},
        read_bytes=moved[_BYTES_READ],
        written_bytes=moved[_BYTES_WRITTEN],
        retransmissions=sum(max(0, counts[_SENT] - counts[_REQUESTS]) for counts in used.values()),
        major_timeouts=sum(counts[_TIMEOUTS] for counts in used.values()),
    )


def _numbers(text: str) -> list[int]:
    numbers = [parse_count(number) for number in text.split()]
    if len(numbers) < _COLUMNS:
        raise ValueError(f"{text[:80]!r} is cut short")
    return numbers


def unescape(path: str) -> str:
    """Decode a path from the kernel, which writes space, tab, newline and backslash as three octal digits."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8) & 0x7F), path)


def _counts(mount: str, version: str, lines: list[str]) -> NfsMount:
    with parsing("mountstats"):
        return parse_section(mount, version, lines)


def _mountstats(procfs: Path) -> str:
    # self is the exporter's own mount namespace, such as a container's; 1 is the host's.
    try:
        text = read_text(procfs / "1" / "mountstats", _MOST_BYTES)
    except HostReadFailed as failed:
        if failed.reason != "no_permission":
            raise
        text = None
    return required_text(procfs / "self" / "mountstats", _MOST_BYTES) if text is None else text


# The kernel takes the namespace's mount lock, which a hung mount may hold.
HOST_NFS = HostCollector("NFS mounts", Tier.MEDIUM, lambda _config: HostNfsReader().read, each("mount"), own_lane=True)
