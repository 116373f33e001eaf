"""Facts about a host that change only through human intervention or hardware faults.

They are made from the collectors' latest readings, without reading the hardware again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, NamedTuple, TypeVar, cast

from gpu_triage.documents import AtMost, Key, Parsed, Range
from gpu_triage.documents.pcie_values import BUILT_LANES, Generation, Width
from gpu_triage.read.gpu.clocks_and_limits import CLOCK_TARGETS, LIMITS
from gpu_triage.read.gpu.ecc import MEMORY_REPAIR
from gpu_triage.read.gpu.identity import IDENTITY
from gpu_triage.read.gpu.modes import MODES
from gpu_triage.read.gpu.nvlink import NVLINK
from gpu_triage.read.gpu.pcie import PCIE, PCIE_LIMITS, LinkExpectation
from gpu_triage.read.gpu.power import POWER
from gpu_triage.read.gpu.topology import NIC_TOPOLOGY, TOPOLOGY, TopologyReading
from gpu_triage.read.host.platform import PLATFORM, PlatformReading
from gpu_triage.read.metrics.contract import GpuCollector

R = TypeVar("R")

GPU_SOURCES: Final = (
    *(IDENTITY, PCIE, PCIE_LIMITS, TOPOLOGY, NIC_TOPOLOGY, NVLINK),
    *(LIMITS, CLOCK_TARGETS, POWER, MODES, MEMORY_REPAIR),
)
HOST_SOURCES: Final = (PLATFORM,)

_MOST_ENTRIES: Final = 1024
_MOST_CHARACTERS: Final = 256
LEVEL: Final = "level"
P2P: Final = "p2p_"


def _printable(text: str) -> str:
    if len(text) > _MOST_CHARACTERS or not text.isprintable():
        raise ValueError(f"write text of at most {_MOST_CHARACTERS} printable characters")
    return text


def _peer_key(text: str) -> str:
    if text != LEVEL and not text.startswith(P2P):
        raise ValueError(f"unknown key; known are {LEVEL} and those that start with {P2P}")
    return text


Name = Annotated[str, Parsed(_printable)]
Names = Annotated[Mapping[Name, Name], AtMost(_MOST_ENTRIES)]
Amounts = Annotated[Mapping[Name, Annotated[float, Range(0, 1e18)]], AtMost(_MOST_ENTRIES)]
Links = tuple[Annotated[int, Range(0, 63)], ...]
Peer = dict[Annotated[str, Parsed(_peer_key)], Name]
"""A GPU's connection to another: LEVEL is their nearest common ancestor (internal, pix, pxb, phb, node, sys); P2P plus
a capability (read, write, nvlink, atomics, prop) is the capability's status (ok, chipset_not_supported, …)."""

ClockTable = Literal["max_hertz", "target_hertz", "default_hertz"]
ClockTables = Mapping[ClockTable, Amounts]


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """Maximum of a PCIe link: overall (card, slot and system), of the card alone, and of the slot (its port) alone.

    `trained_width` is what the link had when it was recorded, if that was less and is how the board is built.
    """

    generation: Generation | None = None
    width: Width | None = None
    device_generation: Generation | None = None
    device_width: Width | None = None
    slot_generation: Generation | None = None
    slot_width: Width | None = None
    trained_width: Width | None = None


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU in its slot; None for what isn't reported."""

    uuid: Name  # identifies the board, in any slot
    pci_bus_id: Name = ""  # identifies the slot, with any board, in sysfs notation; "" if the driver doesn't report it
    name: Name = ""
    vbios_version: Name | None = None
    link: Annotated[LinkFacts | None, Key("pcie")] = None
    numa_node: Annotated[int, Range(-1, 1 << 16)] | None = None  # of the slot, -1 if the firmware doesn't report it
    nics: Names | None = None  # topology level (pix, …, sys) by NIC name
    # Numbers of the NVLink links that are up; unknown while the GPU is partitioned with MIG.
    nvlinks_up: Annotated[Links | None, Parsed(lambda links: tuple(sorted(set(links))), Links)] = None
    power_watts: Amounts | None = None  # by limit: enforced, default, min, max
    clocks: ClockTables | None = None  # maximum, target and default, each by clock (graphics, sm, memory, video)
    persistence_mode: bool | None = None
    ecc_mode: bool | None = None
    peers: Annotated[Mapping[Name, Peer], AtMost(_MOST_ENTRIES)] | None = None  # other GPUs by UUID


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A host at a Unix time, with the GPUs that answer, by slot; `gpu_count` is the driver's count."""

    at: float
    gpu_count: int | None
    driver_version: str | None
    iommu_active: bool | None
    gpus: tuple[GpuFacts, ...]


def expected_p2p(facts: HostFacts) -> bool | None:
    """Whether GPUs of the same model can access each other's memory directly.

    True if all such pairs can, False if none can; None if only some can, or if there is no such pair.
    """
    names = {gpu.uuid: gpu.name for gpu in facts.gpus}
    reached = {
        peer.get(f"{P2P}read") == peer.get(f"{P2P}write") == "ok"
        for gpu in facts.gpus
        for uuid, peer in (gpu.peers or {}).items()
        if names.get(uuid) == gpu.name and peer.keys() - {LEVEL}
    }
    return reached.pop() if len(reached) == 1 else None


ReadingOf = Callable[[str], object | None]  # the latest reading of a collector by its name, or None


class GpuReadings(NamedTuple):
    """A GPU that answers, with its latest readings; `pci_bus_id` in sysfs notation, None if the driver has none."""

    uuid: str
    pci_bus_id: str | None
    reading_of: ReadingOf

    def of(self, collector: GpuCollector[R]) -> R | None:
        return cast("R | None", self.reading_of(collector.name))


def host_facts(
    at: float, gpu_count: int | None, driver_version: str | None, host: ReadingOf, gpus: Iterable[GpuReadings]
) -> HostFacts:
    """The facts of a host at this Unix time; the driver's values are None while the driver is unavailable."""
    platform = cast("PlatformReading | None", host(PLATFORM.name))
    everyone = tuple(gpus)
    split = {gpu.uuid for gpu in everyone if (modes := gpu.of(MODES)) and modes.mig}
    facts = sorted((_gpu_facts(gpu, split) for gpu in everyone), key=lambda gpu: (gpu.pci_bus_id, gpu.uuid))
    lanes = {gpu.uuid: link.width for gpu in everyone if (link := gpu.of(PCIE))}
    facts = [_as_trained(gpu, facts, lanes) for gpu in facts]
    return HostFacts(
        at=at,
        gpu_count=gpu_count,
        driver_version=driver_version,
        iommu_active=platform.iommu_active if platform else None,
        gpus=tuple(_with_levels_of_both_halves(gpu, facts) for gpu in facts),
    )


def _as_trained(gpu: GpuFacts, everyone: Iterable[GpuFacts], lanes: Mapping[str, int | None]) -> GpuFacts:
    """The GPU's facts with the lanes that its link has, if the board gives all such links fewer than they claim.

    If the board gives one of them more, this link lost lanes, and its claim stays what is expected of it. A link with
    too few lanes to be built that way is not recorded: a baseline must neither excuse it nor expect what it never had.

    Args:
        lanes: current lanes by UUID.
    """
    link, has = gpu.link, lanes.get(gpu.uuid)
    if link is None or link.width is None or has is None or has >= link.width:
        return gpu
    claims = [each.uuid for each in everyone if each.link is not None and each.link.width == link.width]
    if any((lanes.get(uuid) or 0) > has for uuid in claims):
        return gpu
    built = has >= BUILT_LANES
    return replace(gpu, link=replace(link, trained_width=has) if built else replace(link, width=None))


def _gpu_facts(gpu: GpuReadings, split: Collection[str]) -> GpuFacts:
    """The facts of one GPU; `split` holds the UUIDs of GPUs partitioned with MIG."""
    identity, link, topology, nics = gpu.of(IDENTITY), gpu.of(PCIE_LIMITS), gpu.of(TOPOLOGY), gpu.of(NIC_TOPOLOGY)
    nvlink, modes, repair = gpu.of(NVLINK), gpu.of(MODES), gpu.of(MEMORY_REPAIR)
    limits, targets, power = gpu.of(LIMITS), gpu.of(CLOCK_TARGETS), gpu.of(POWER)
    clocks: dict[ClockTable, Mapping[str, float] | None] = {
        "max_hertz": limits.clock_max_hertz if limits else None,
        "target_hertz": targets.hertz if targets else None,
        "default_hertz": limits.clock_default_hertz if limits else None,
    }
    watts = {
        "enforced": power.limit_watts if power else None,
        "default": limits.power_default_watts if limits else None,
        "min": limits.power_min_watts if limits else None,
        "max": limits.power_max_watts if limits else None,
    }
    up = (number for number, each in nvlink.links.items() if each.is_up) if nvlink and nvlink.reported else None
    return GpuFacts(
        uuid=gpu.uuid,
        pci_bus_id=gpu.pci_bus_id or "",
        name=identity.name if identity else "",
        vbios_version=(identity.vbios_version or None) if identity else None,
        link=_link(link) if link else None,
        numa_node=topology.numa_node if topology else None,
        nics=dict(nics.levels) if nics else None,
        peers=_peers(gpu.uuid, topology, split) if topology else None,
        nvlinks_up=None if up is None else tuple(sorted(up)),
        power_watts={limit: value for limit, value in watts.items() if value is not None} or None,
        clocks={kind: dict(hertz) for kind, hertz in clocks.items() if hertz is not None} or None,
        persistence_mode=modes.persistence if modes else None,
        ecc_mode=repair.ecc_mode if repair else None,
    )


def _link(expectation: LinkExpectation) -> LinkFacts:
    limits = expectation.limits
    # Hardware limits rather than configured or recorded expectations, which must not be compared with themselves.
    overall = (limits.expected_generation, limits.expected_width)
    card, slot = (limits.device_generation, limits.device_width), (limits.slot_generation, limits.slot_width)
    return LinkFacts(*overall, *card, *slot)


def _peers(uuid: str, topology: TopologyReading, split: Collection[str]) -> Mapping[str, Peer]:
    """Connections of a GPU to the others. If MIG partitions either GPU of a pair, P2P is off by design, so omit it."""
    found: dict[str, Peer] = {}
    for peer in topology.peers:
        statuses = {} if uuid in split or peer.uuid in split else peer.p2p
        level = {} if peer.level is None else {LEVEL: peer.level}
        found[peer.uuid] = level | {f"{P2P}{name}": status for name, status in statuses.items()}
    return found


def _with_levels_of_both_halves(gpu: GpuFacts, everyone: Iterable[GpuFacts]) -> GpuFacts:
    """The GPU's facts with levels filled in from its peers, because each pair is queried only once."""
    if gpu.peers is None:
        return gpu
    halves = {each.uuid: (each.peers or {}).get(gpu.uuid, {}) for each in everyone}
    levels = {uuid: {LEVEL: half[LEVEL]} for uuid, half in halves.items() if LEVEL in half}
    return replace(gpu, peers={uuid: levels.get(uuid, {}) | peer for uuid, peer in gpu.peers.items()})
