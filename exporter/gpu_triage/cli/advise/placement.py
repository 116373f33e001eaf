"""The GPUs of a host that are closest to each other, and the paths between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from enum import IntEnum
from itertools import combinations
from typing import Final, NamedTuple

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.read.gpu.topology import GPU_P2P_STATUS, GPU_TOPOLOGY_INFO

_LEVELS: Final = GPU_TOPOLOGY_INFO.label_values["level"]


class Access(IntEnum):
    """How two GPUs exchange data; lower is faster."""

    NVLINK = 0
    DIRECT = 1
    HOST_MEMORY = 2


_WORDS: Final = {
    Access.NVLINK: "over NVLink",
    Access.DIRECT: "directly over PCIe",
    Access.HOST_MEMORY: "through host memory",
}


class Path(NamedTuple):
    """Path between two GPUs; lower is closer."""

    access: Access
    distance: int  # position of `level` among all levels, nearest first
    level: str  # nearest common ancestor on the bus; "" if unknown

    def __str__(self) -> str:
        """Describe the path in the terms of nvidia-smi topo."""
        words = f"{_WORDS[self.access]}, path {self.level.upper() or 'unknown'}"
        crossing = self.level == "sys" and self.access is not Access.NVLINK
        return f"{words}, which crosses the sockets" if crossing else words


class Placement(NamedTuple):
    """GPUs of one model for one job, and the worst path between two of them (None for a single GPU)."""

    gpus: tuple[GpuEvidence, ...]
    worst: Path | None


_Paths = dict[frozenset[GpuEvidence], Path]


def usable(host: HostEvidence, drained: Collection[str]) -> tuple[GpuEvidence, ...]:
    """Return the largest group of same-model GPUs that respond, are not in MIG mode and not in `drained` (by index)."""
    models: dict[str, list[GpuEvidence]] = defaultdict(list)
    for gpu in host.answering:
        if not gpu.partitioned and gpu.gpu not in drained:
            models[gpu.name].append(gpu)
    return max((tuple(group) for group in models.values()), key=len, default=())


def nearest(host: HostEvidence, candidates: tuple[GpuEvidence, ...], count: int) -> Placement:
    """Return `count` of these GPUs (at least one) with the shortest worst path between them.

    Grows a group greedily from each GPU; this is exact for a tree topology such as a PCI bus.
    """
    if count == 1:
        return Placement(candidates[:1], None)
    paths = _paths(host, candidates)
    groups = (_grown(seed, candidates, paths, count) for seed in candidates)
    return min(groups, key=lambda placement: (placement.worst, [int(gpu.gpu) for gpu in placement.gpus]))


def _grown(seed: GpuEvidence, candidates: tuple[GpuEvidence, ...], paths: _Paths, count: int) -> Placement:
    group = [seed]
    while len(group) < count:
        rest = (gpu for gpu in candidates if gpu not in group)
        group.append(min(rest, key=lambda gpu: (_worst([(gpu, other) for other in group], paths), int(gpu.gpu))))
    return Placement(tuple(sorted(group, key=lambda gpu: int(gpu.gpu))), _worst(combinations(group, 2), paths))


def _worst(pairs: Iterable[tuple[GpuEvidence, GpuEvidence]], paths: _Paths) -> Path:
    return max(paths[frozenset(pair)] for pair in pairs)


def _paths(host: HostEvidence, gpus: tuple[GpuEvidence, ...]) -> _Paths:
    levels = host.topology_levels()
    labels = (each.labels for each in host.series(GPU_P2P_STATUS, status="ok"))
    allowed = {(each["uuid"], each["peer_uuid"], each["capability"]) for each in labels}
    paths = {}
    for one, other in combinations(gpus, 2):
        level = levels.get(frozenset((one.uuid, other.uuid)), "")
        pair = ((one.uuid, other.uuid), (other.uuid, one.uuid))
        both = {what for what in ("nvlink", "read", "write") if all((*way, what) in allowed for way in pair)}
        direct = Access.DIRECT if {"read", "write"} <= both else Access.HOST_MEMORY
        access = Access.NVLINK if "nvlink" in both else direct
        distance = _LEVELS.index(level) if level in _LEVELS else len(_LEVELS)
        paths[frozenset((one, other))] = Path(access, distance, level)
    return paths
