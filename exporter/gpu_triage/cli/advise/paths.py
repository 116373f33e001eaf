"""The paths between GPUs of a host, their bandwidth, and the groups of GPUs with the best ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import Final, NamedTuple

from gpu_triage.cli.advise.assumptions import HOST_SHARE, NVLINK_SHARE, PEER_SHARE, Assumption
from gpu_triage.cli.advise.links import Link, Mesh, Uplink, pcie_link, uplinks_of
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.read.gpu.topology import GPU_P2P_STATUS, GPU_TOPOLOGY_INFO

_LEVELS: Final = GPU_TOPOLOGY_INFO.label_values["level"]
_RING_NEIGHBORS: Final = 2


class Access(Enum):
    """How GPUs exchange data."""

    NVLINK = "nvlink"
    PEER = "pcie_peer"
    HOST_MEMORY = "host_memory"

    @property
    def rank(self) -> int:
        """Lower is faster."""
        return tuple(Access).index(self)

    @property
    def share(self) -> Assumption:
        """Share of the line rate that is reached."""
        return {Access.NVLINK: NVLINK_SHARE, Access.PEER: PEER_SHARE, Access.HOST_MEMORY: HOST_SHARE}[self]


@dataclass(frozen=True, slots=True)
class Path:
    """How a group of GPUs exchanges data; its slowest link sets the pace."""

    gpus: tuple[GpuEvidence, ...]
    access: Access
    level: str  # farthest common ancestor of two of them on the bus; "" if unknown
    refused: str  # the driver's reason for no peer access; "" if there is access, or no reason is known
    slowest: Link | None  # None if a link's speed is not reported

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second and direction that each GPU reaches in an all-reduce; None if unknown."""
        return None if self.slowest is None else self.slowest.line_rate * self.access.share.value


class _Pair(NamedTuple):
    """The path between two GPUs; lower is better."""

    access: int
    slowness: float  # negative line rate of the slower link, 0 if unknown
    distance: int


@dataclass(frozen=True, slots=True)
class Paths:
    """All paths between some GPUs of a host."""

    pairs: Mapping[frozenset[str], tuple[_Pair, str, str]]  # by key: path, level, reason for no peer access
    links: Mapping[str, Link | None]  # PCIe links by key
    uplinks: tuple[Uplink, ...]
    mesh: Mesh

    def nearest(self, candidates: tuple[GpuEvidence, ...], count: int) -> tuple[GpuEvidence, ...]:
        """Return the `count` GPUs with the best worst path between them; of one, the first candidate.

        Grows a group greedily from each GPU; this is exact for a tree topology such as a PCI bus.
        """
        if count <= 1:
            return candidates[:count]
        groups = (self._grown(seed, candidates, count) for seed in candidates)
        return min(groups, key=lambda group: (self._worst(combinations(group, 2)), [int(gpu.gpu) for gpu in group]))

    def of(self, gpus: tuple[GpuEvidence, ...]) -> Path:
        """Return the path of a group of at least two GPUs."""
        pairs = [self.pairs[frozenset((one.key, other.key))] for one, other in combinations(gpus, 2)]
        worst, level, refused = max(pairs, key=lambda pair: (pair[0].access, pair[0].distance))
        if self._ring_of_nvlinks(gpus):
            return Path(gpus, Access.NVLINK, level, "", self.mesh.slowest(gpus))
        access = tuple(Access)[max(worst.access, Access.PEER.rank)]
        links = [self.links[gpu.key] for gpu in gpus]
        known = [link for link in links if link is not None]
        above = (each.share_of(gpus, stays_below=access is Access.PEER) for each in self.uplinks)
        all_links = (*known, *(link for link in above if link is not None))
        slowest = min(all_links, key=lambda link: link.line_rate) if len(known) == len(links) else None
        return Path(gpus, access, level, refused, slowest)

    def _ring_of_nvlinks(self, gpus: tuple[GpuEvidence, ...]) -> bool:
        """Whether NVLink connects each GPU to two others of the group (of a pair, to the other)."""
        needed = min(_RING_NEIGHBORS, len(gpus) - 1)
        return all(
            sum(
                self.pairs[frozenset((gpu.key, other.key))][0].access == Access.NVLINK.rank
                for other in gpus
                if other.key != gpu.key
            )
            >= needed
            for gpu in gpus
        )

    def _grown(self, seed: GpuEvidence, candidates: tuple[GpuEvidence, ...], count: int) -> tuple[GpuEvidence, ...]:
        group = [seed]
        while len(group) < count:
            rest = (gpu for gpu in candidates if gpu not in group)
            group.append(min(rest, key=lambda gpu: (self._worst([(gpu, other) for other in group]), int(gpu.gpu))))
        return tuple(sorted(group, key=lambda gpu: int(gpu.gpu)))

    def _worst(self, pairs: Iterable[tuple[GpuEvidence, GpuEvidence]]) -> _Pair:
        return max(self.pairs[frozenset((one.key, other.key))][0] for one, other in pairs)


def usable(host: HostEvidence, unfit: Collection[str]) -> tuple[GpuEvidence, ...]:
    """Return the largest group of GPUs of one model that answer, are not split by MIG and not `unfit` (by index)."""
    models: dict[str, list[GpuEvidence]] = defaultdict(list)
    for gpu in host.answering:
        if not gpu.partitioned and gpu.gpu not in unfit:
            models[gpu.name].append(gpu)
    return max((tuple(group) for group in models.values()), key=len, default=())


def paths_between(host: HostEvidence, gpus: tuple[GpuEvidence, ...]) -> Paths:
    """Return the paths between these GPUs."""
    levels = host.topology_levels()
    statuses: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for labels in host.labels_of(GPU_P2P_STATUS):
        statuses[labels["uuid"], labels["peer_uuid"]][labels["capability"]] = labels["status"]
    links, mesh = {gpu.key: pcie_link(gpu) for gpu in gpus}, Mesh.of(host, gpus)
    pairs = {}
    for one, other in combinations(gpus, 2):
        ways = [statuses[one.uuid, other.uuid], statuses[other.uuid, one.uuid]]
        level = levels.get(frozenset((one.uuid, other.uuid)), "")
        access, refused = _access(ways)
        nvlink = (mesh.slowest((one, other)),) if access is Access.NVLINK else ()
        rates = [0.0 if link is None else link.line_rate for link in nvlink or (links[one.key], links[other.key])]
        distance = _LEVELS.index(level) if level in _LEVELS else len(_LEVELS)
        pairs[frozenset((one.key, other.key))] = _Pair(access.rank, -min(rates), distance), level, refused
    return Paths(pairs, links, uplinks_of(host), mesh)


def _access(ways: list[dict[str, str]]) -> tuple[Access, str]:
    """Return how two GPUs reach each other, and why not directly, from the P2P statuses in both directions."""
    if all(way.get("nvlink") == "ok" for way in ways):
        return Access.NVLINK, ""
    asked = [way.get(what, "") for way in ways for what in ("read", "write")]
    if all(status == "ok" for status in asked):
        return Access.PEER, ""
    return Access.HOST_MEMORY, next((status for status in asked if status not in ("ok", "")), "")
