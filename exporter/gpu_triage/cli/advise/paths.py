"""Links of GPUs as read, the paths over them, their bandwidth, and the groups of GPUs with the best paths."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final, NamedTuple

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.pcie_paths import link_speed
from gpu_triage.read.gpu.nvlink import GPU_NVLINK_BANDWIDTH_BYTES_PER_SECOND, GPU_NVLINK_LINKS, GPU_NVLINK_LINKS_UP
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_GENERATION
from gpu_triage.read.gpu.topology import GPU_P2P_STATUS, GPU_TOPOLOGY_INFO
from gpu_triage.read.host.pcie_uplinks import GPU_HOST_PCIE_UPLINK_INFO, bytes_per_second, devices_behind


class Range(NamedTuple):
    worst: float
    best: float

    def __str__(self) -> str:
        return f"{self.worst:.2f} to {self.best:.2f}"


class Access(NamedTuple):
    """How GPUs exchange data; the lower, the faster."""

    order: int
    label: str
    words: str
    share: Range  # of the line rate that an all-reduce reaches
    fixed_seconds: Range  # that each step takes longer, whatever the size of the model


_DIRECT_SECONDS: Final = Range(0.005, 0.0002)
NVLINK: Final = Access(0, "nvlink", "over NVLink", Range(0.6, 0.75), _DIRECT_SECONDS)
PEER: Final = Access(1, "pcie_peer", "directly over PCIe", Range(0.4, 0.65), _DIRECT_SECONDS)
HOST_MEMORY: Final = Access(2, "host_memory", "through host memory", Range(0.17, 0.33), Range(0.017, 0.0044))
"""Its fixed seconds are what the exchange does not explain of eight measured cases (see the docs)."""


class Link(NamedTuple):
    owner: str  # ``GPU 3``, or the switch below an uplink
    words: str  # ``PCIe 4.0 x16``
    line_rate: float  # bytes per second and direction


def pcie_link(gpu: GpuEvidence) -> Link | None:
    """The link as it is now; an idle GPU lowers its generation, so then that to reach under load. None if unknown."""
    if (speed := link_speed(gpu)) is None:
        return None
    if gpu.recent.loaded:
        speed = speed._replace(generation=gpu.last(GPU_PCIE_LINK_GENERATION) or speed.generation)
    return Link(f"GPU {gpu.gpu}", f"PCIe {speed.generation:.0f}.0 x{speed.lanes:.0f}", speed.bytes_per_second)


def slowest_nvlink(host: HostEvidence, group: tuple[GpuEvidence, ...]) -> Link | None:
    """The NVLinks of the GPU with the lowest rate to the others of its group; None if a GPU reports none.

    Links to a switch, or an unnamed far end, serve any peer; of those that lead to GPUs, those into the group count.
    """
    members = {gpu.key for gpu in group}
    outside = {gpu.pci_bus_id for gpu in host.gpus if gpu.pci_bus_id and gpu.key not in members}
    return _slowest(_nvlinks(gpu, outside) for gpu in group)


def _slowest(links: Iterable[Link | None]) -> Link | None:
    """The link with the lowest rate; None if one of them is not known."""
    links = list(links)
    known = [link for link in links if link is not None]
    return min(known, key=lambda link: link.line_rate) if len(known) == len(links) else None


def _nvlinks(gpu: GpuEvidence, outside: set[str]) -> Link | None:
    """Return the NVLinks of a GPU, without those that lead to these addresses."""
    series = gpu.series(GPU_NVLINK_BANDWIDTH_BYTES_PER_SECOND)
    total = sum(each.last for each in series)
    rate = sum(each.last for each in series if each.labels["far_end"] not in outside)
    up, lead_somewhere = gpu.last(GPU_NVLINK_LINKS_UP) or 0.0, gpu.last(GPU_NVLINK_LINKS) or 0.0
    if not rate or not up:
        return None
    # Links that lead elsewhere are not missing.
    of = "" if rate < total or up == lead_somewhere else f" of {lead_somewhere:.0f}"
    return Link(f"GPU {gpu.gpu}", f"{up * rate / total:.0f}{of} links of {total / up / 1e9:.1f} GB/s", rate)


def uplink_shares(host: HostEvidence, group: tuple[GpuEvidence, ...], *, direct: bool) -> Iterator[Link]:
    """What each GPU of a group gets of the links above PCIe switches that the group's data pass.

    With peer access (`direct`), data between GPUs behind one switch stay below it, and a ring crosses its uplink once.
    Through host memory, those of each GPU pass it. At rest, the generation is the one to reach under load.
    """
    for labels in host.labels_of(GPU_HOST_PCIE_UPLINK_INFO):
        addresses = devices_behind(labels)
        behind = [gpu for gpu in host.answering if gpu.pci_bus_id in addresses]
        count = sum(gpu in behind for gpu in group)
        if not count or (direct and count == len(group)):
            continue
        loaded = any(gpu.recent.loaded for gpu in behind)
        generation, width = int(labels["generation" if loaded else "expected_generation"]), int(labels["width"])
        flows = 1 if direct else count
        shared = f", shared by {flows} GPUs" if flows > 1 else ""
        yield Link(
            f"the uplink of switch {labels['bridge']}",
            f"PCIe {generation}.0 x{width}{shared}",
            bytes_per_second(generation, width) / flows,
        )


_LEVELS: Final = GPU_TOPOLOGY_INFO.label_values["level"]
_RING_NEIGHBORS: Final = 2


@dataclass(frozen=True, slots=True)
class Path:
    """How a group of GPUs exchanges data; its slowest link sets the pace."""

    gpus: tuple[GpuEvidence, ...]
    access: Access
    level: str  # farthest common ancestor of two of them on the bus; "" if unknown
    refused: str  # the driver's reason for no peer access; "" if there is access, or no reason is known
    slowest: Link | None  # None if a link's speed is not reported

    @property
    def bandwidth(self) -> Range | None:
        """Bytes per second and direction that each GPU reaches in an all-reduce; None if unknown."""
        link = self.slowest
        return None if link is None else Range(*(link.line_rate * share for share in self.access.share))


class Pair(NamedTuple):
    """The path between two GPUs; lower is better."""

    access: Access
    slowness: float  # negative line rate of the slower link, 0 if unknown
    distance: int
    level: str
    refused: str


@dataclass(frozen=True, slots=True)
class Paths:
    """All paths between some GPUs of a host, by the keys of two."""

    host: HostEvidence
    pairs: Mapping[frozenset[str], Pair]

    def nearest(self, candidates: tuple[GpuEvidence, ...], count: int) -> tuple[GpuEvidence, ...]:
        """The GPUs with the best worst path between them, grown from each: exact for a tree such as a PCI bus."""
        if count <= 1:
            return candidates[:count]
        groups = (self._grown(seed, candidates, count) for seed in candidates)
        return min(groups, key=lambda group: (self._worst(combinations(group, 2)), [int(gpu.gpu) for gpu in group]))

    def of(self, gpus: tuple[GpuEvidence, ...]) -> Path:
        """Return the path of a group of at least two GPUs."""
        worst = max(map(self._pair, combinations(gpus, 2)), key=lambda pair: (pair.access, pair.distance))
        if self._ring_of_nvlinks(gpus):
            return Path(gpus, NVLINK, worst.level, "", slowest_nvlink(self.host, gpus))
        access = max(worst.access, PEER)
        links = (*map(pcie_link, gpus), *uplink_shares(self.host, gpus, direct=access is PEER))
        return Path(gpus, access, worst.level, worst.refused, _slowest(links))

    def _ring_of_nvlinks(self, gpus: tuple[GpuEvidence, ...]) -> bool:
        """Whether NVLink connects each GPU to two others of the group (of a pair, to the other)."""
        linked = [pair for pair in combinations(gpus, 2) if self._pair(pair).access is NVLINK]
        needed = min(_RING_NEIGHBORS, len(gpus) - 1)
        return all(sum(gpu in pair for pair in linked) >= needed for gpu in gpus)

    def _grown(self, seed: GpuEvidence, candidates: tuple[GpuEvidence, ...], count: int) -> tuple[GpuEvidence, ...]:
        group = [seed]
        while len(group) < count:
            rest = (gpu for gpu in candidates if gpu not in group)
            group.append(min(rest, key=lambda gpu: (self._worst([(gpu, other) for other in group]), int(gpu.gpu))))
        return tuple(sorted(group, key=lambda gpu: int(gpu.gpu)))

    def _worst(self, pairs: Iterable[tuple[GpuEvidence, GpuEvidence]]) -> Pair:
        return max(map(self._pair, pairs))

    def _pair(self, gpus: tuple[GpuEvidence, GpuEvidence]) -> Pair:
        return self.pairs[frozenset(gpu.key for gpu in gpus)]


def paths_between(host: HostEvidence, gpus: tuple[GpuEvidence, ...]) -> Paths:
    levels = host.topology_levels()
    statuses: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for labels in host.labels_of(GPU_P2P_STATUS):
        statuses[labels["uuid"], labels["peer_uuid"]][labels["capability"]] = labels["status"]
    pairs = {}
    for one, other in combinations(gpus, 2):
        level = levels.get(frozenset((one.uuid, other.uuid)), "")
        access, refused = _access([statuses[one.uuid, other.uuid], statuses[other.uuid, one.uuid]])
        both = one, other
        link = slowest_nvlink(host, both) if access is NVLINK else _slowest(map(pcie_link, both))
        distance = _LEVELS.index(level) if level in _LEVELS else len(_LEVELS)
        rate = 0.0 if link is None else link.line_rate
        pairs[frozenset((one.key, other.key))] = Pair(access, -rate, distance, level, refused)
    return Paths(host, pairs)


def _access(ways: list[dict[str, str]]) -> tuple[Access, str]:
    """Return how two GPUs reach each other, and why not directly, from the P2P statuses in both directions."""
    if all(way.get("nvlink") == "ok" for way in ways):
        return NVLINK, ""
    asked = [way.get(what, "") for way in ways for what in ("read", "write")]
    if all(status == "ok" for status in asked):
        return PEER, ""
    return HOST_MEMORY, next((status for status in asked if status not in ("ok", "")), "")
