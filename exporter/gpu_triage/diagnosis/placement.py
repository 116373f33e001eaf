"""Which GPUs of a host are nearest to each other, and what lies between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.view import GpuView, HostView

_LEVELS: Final = ("internal", "pix", "pxb", "phb", "node", "sys")
_FAR: Final = len(_LEVELS)


class Access(IntEnum):
    """How two GPUs exchange data; lower is faster."""

    NVLINK = 0
    DIRECT = 1
    HOST_MEMORY = 2


@dataclass(frozen=True, slots=True, order=True)
class Path:
    """What lies between two GPUs; lower is nearer.

    Attributes:
        access: how they exchange data.
        distance: place of `level` among all, nearest first.
        level: nearest common ancestor on the bus; "" where unknown.
    """

    access: Access
    distance: int
    level: str

    def __str__(self) -> str:
        """In the words of nvidia-smi topo."""
        how = {
            Access.NVLINK: "over NVLink",
            Access.DIRECT: "directly over PCIe",
            Access.HOST_MEMORY: "through host memory",
        }
        crossing = self.level == "sys" and self.access is not Access.NVLINK
        told = f"{how[self.access]}, path {self.level.upper() or 'unknown'}"
        return f"{told}, which crosses the sockets" if crossing else told


@dataclass(frozen=True, slots=True)
class Placement:
    """GPUs for one job.

    Attributes:
        gpus: at least one, all of one model.
        worst: the worst path between two of them; None for one.
    """

    gpus: tuple[GpuView, ...]
    worst: Path | None


def siblings(host: HostView) -> tuple[GpuView, ...]:
    """The largest group of whole GPUs of one model that answer."""
    models: dict[str, list[GpuView]] = defaultdict(list)
    for gpu in host.answering:
        if not gpu.partitioned:
            models[gpu.name].append(gpu)
    return max((tuple(group) for group in models.values()), key=len, default=())


def nearest(host: HostView, count: int, ailing: Collection[str]) -> Placement | None:
    """The GPUs of one model with the shortest worst path between them; None where there are not so many.

    Found by growing a group from each GPU in turn: exact where nearness is a tree, as on a PCI bus.

    Args:
        host: as looked at.
        count: how many GPUs.
        ailing: indices of GPUs to leave out while there are enough others.
    """
    group = siblings(host)
    well = tuple(gpu for gpu in group if gpu.gpu not in ailing)
    candidates = well if len(well) >= count else group
    if len(candidates) < count:
        return None
    if count == 1:
        return Placement(candidates[:1], None)
    paths = _paths(host, candidates)
    groups = (_grown(seed, candidates, paths, count) for seed in candidates)
    return min(groups, key=lambda placement: (placement.worst, [int(gpu.gpu) for gpu in placement.gpus]))


def _grown(
    seed: GpuView, candidates: tuple[GpuView, ...], paths: Mapping[frozenset[GpuView], Path], count: int
) -> Placement:
    group = [seed]
    while len(group) < count:
        rest = (gpu for gpu in candidates if gpu not in group)
        group.append(min(rest, key=lambda gpu: (_worst(gpu, group, paths), int(gpu.gpu))))
    group.sort(key=lambda gpu: int(gpu.gpu))
    return Placement(tuple(group), max(_worst(gpu, [g for g in group if g is not gpu], paths) for gpu in group))


def _worst(gpu: GpuView, group: list[GpuView], paths: Mapping[frozenset[GpuView], Path]) -> Path:
    return max(paths[frozenset((gpu, other))] for other in group)


def _paths(host: HostView, gpus: tuple[GpuView, ...]) -> dict[frozenset[GpuView], Path]:
    levels = {
        frozenset((track.labels["uuid"], track.labels["peer_uuid"])): track.labels["level"]
        for track in host.evidence.series(catalogue.TOPOLOGY_INFO)
    }
    allowed = {
        (track.labels["uuid"], track.labels["peer_uuid"], track.labels["capability"])
        for track in host.evidence.series(catalogue.P2P_STATUS, status="ok")
    }
    paths = {}
    for index, one in enumerate(gpus):
        for other in gpus[index + 1 :]:
            level = levels.get(frozenset((one.uuid, other.uuid)), "")
            distance = _LEVELS.index(level) if level in _LEVELS else _FAR
            paths[frozenset((one, other))] = Path(_access(one.uuid, other.uuid, allowed), distance, level)
    return paths


def _access(one: str, other: str, allowed: set[tuple[str, str, str]]) -> Access:
    def both(capability: str) -> bool:
        return (one, other, capability) in allowed and (other, one, capability) in allowed

    if both("nvlink"):
        return Access.NVLINK
    return Access.DIRECT if both("read") and both("write") else Access.HOST_MEMORY
