"""Builds the facts of a host from the collectors' latest readings, without reading the hardware again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from gpu_triage.documents.pcie import BUILT_LANES
from gpu_triage.read.baseline.facts import LEVEL, P2P, ClockTable, ClockTables, GpuFacts, HostFacts, LinkFacts, Peer
from gpu_triage.read.gpu.clock_targets import CLOCK_TARGETS, ClockTargetsReading
from gpu_triage.read.gpu.identity import IDENTITY, IdentityReading
from gpu_triage.read.gpu.limits import LIMITS, LimitsReading
from gpu_triage.read.gpu.memory_repair import MEMORY_REPAIR, MemoryRepairReading
from gpu_triage.read.gpu.modes import MODES, ModesReading
from gpu_triage.read.gpu.nic_topology import NIC_TOPOLOGY, NicTopologyReading
from gpu_triage.read.gpu.nvlink import NVLINK, NvlinkReading
from gpu_triage.read.gpu.pcie import PCIE, PcieReading
from gpu_triage.read.gpu.pcie_limits import PCIE_LIMITS, LinkExpectation
from gpu_triage.read.gpu.power import POWER, PowerReading
from gpu_triage.read.gpu.topology import TOPOLOGY, TopologyReading
from gpu_triage.read.host.platform import PLATFORM, PlatformReading

R = TypeVar("R")

GPU_SOURCES: Final = (
    IDENTITY,
    PCIE,
    PCIE_LIMITS,
    TOPOLOGY,
    NIC_TOPOLOGY,
    NVLINK,
    LIMITS,
    CLOCK_TARGETS,
    POWER,
    MODES,
    MEMORY_REPAIR,
)
HOST_SOURCES: Final = (PLATFORM,)

ReadingOf = Callable[[str], object | None]  # the latest reading of a collector by its name, or None


class GpuReadings(NamedTuple):
    """A GPU that answers, with its latest readings; `pci_bus_id` in sysfs notation, None if the driver has none."""

    uuid: str
    pci_bus_id: str | None
    reading_of: ReadingOf


def host_facts(
    at: float, gpu_count: int | None, driver_version: str | None, host: ReadingOf, gpus: Iterable[GpuReadings]
) -> HostFacts:
    """The facts of a host at this Unix time; the driver's values are None while the driver is unavailable."""
    platform = _reading(host, PLATFORM.name, PlatformReading)
    everyone = tuple(gpus)
    split = {gpu.uuid for gpu in everyone if _is_split(gpu)}
    facts = sorted((_gpu_facts(gpu, split) for gpu in everyone), key=lambda gpu: (gpu.pci_bus_id, gpu.uuid))
    lanes = {gpu.uuid: link.width for gpu in everyone if (link := _reading(gpu.reading_of, PCIE.name, PcieReading))}
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


def _reading(reading_of: ReadingOf, name: str, kind: type[R]) -> R | None:
    reading = reading_of(name)
    return reading if isinstance(reading, kind) else None


def _is_split(gpu: GpuReadings) -> bool:
    modes = _reading(gpu.reading_of, MODES.name, ModesReading)
    return bool(modes and modes.mig)


def _gpu_facts(gpu: GpuReadings, split: Collection[str]) -> GpuFacts:
    """The facts of one GPU; `split` holds the UUIDs of GPUs partitioned with MIG."""
    identity = _reading(gpu.reading_of, IDENTITY.name, IdentityReading)
    link = _reading(gpu.reading_of, PCIE_LIMITS.name, LinkExpectation)
    topology = _reading(gpu.reading_of, TOPOLOGY.name, TopologyReading)
    adapters = _reading(gpu.reading_of, NIC_TOPOLOGY.name, NicTopologyReading)
    nvlink = _reading(gpu.reading_of, NVLINK.name, NvlinkReading)
    limits = _reading(gpu.reading_of, LIMITS.name, LimitsReading)
    targets = _reading(gpu.reading_of, CLOCK_TARGETS.name, ClockTargetsReading)
    modes = _reading(gpu.reading_of, MODES.name, ModesReading)
    repair = _reading(gpu.reading_of, MEMORY_REPAIR.name, MemoryRepairReading)
    return GpuFacts(
        uuid=gpu.uuid,
        pci_bus_id=gpu.pci_bus_id or "",
        name=identity.name if identity else "",
        vbios_version=(identity.vbios_version or None) if identity else None,
        link=_link(link) if link else None,
        numa_node=topology.numa_node if topology else None,
        nics=dict(adapters.levels) if adapters else None,
        peers=_peers(gpu.uuid, topology, split) if topology else None,
        nvlinks_up=_nvlinks_up(nvlink) if nvlink and nvlink.reported else None,
        power_watts=_power(limits, _reading(gpu.reading_of, POWER.name, PowerReading)),
        clocks=_clocks(limits, targets),
        persistence_mode=modes.persistence if modes else None,
        ecc_mode=repair.ecc_mode if repair else None,
    )


def _link(expectation: LinkExpectation) -> LinkFacts:
    limits = expectation.limits
    # Hardware limits rather than configured or recorded expectations, which must not be compared with themselves.
    return LinkFacts(
        generation=limits.expected_generation,
        width=limits.expected_width,
        device_generation=limits.device_generation,
        device_width=limits.device_width,
        slot_generation=limits.slot_generation,
        slot_width=limits.slot_width,
    )


def _clocks(limits: LimitsReading | None, targets: ClockTargetsReading | None) -> ClockTables | None:
    tables: dict[ClockTable, Mapping[str, float] | None] = {
        "max_hertz": limits.clock_max_hertz if limits else None,
        "target_hertz": targets.hertz if targets else None,
        "default_hertz": limits.clock_default_hertz if limits else None,
    }
    return {kind: dict(hertz) for kind, hertz in tables.items() if hertz is not None} or None


def _power(limits: LimitsReading | None, power: PowerReading | None) -> Mapping[str, float] | None:
    watts = {
        "enforced": power.limit_watts if power else None,
        "default": limits.power_default_watts if limits else None,
        "min": limits.power_min_watts if limits else None,
        "max": limits.power_max_watts if limits else None,
    }
    return {limit: value for limit, value in watts.items() if value is not None} or None


def _nvlinks_up(reading: NvlinkReading) -> tuple[int, ...]:
    return tuple(sorted(number for number, link in reading.links.items() if link.is_up))


def _peers(uuid: str, topology: TopologyReading, split: Collection[str]) -> Mapping[str, Peer]:
    """Connections of a GPU to the others. If MIG partitions either GPU of a pair, P2P is off by design, so omit it."""
    return {
        peer.uuid: _peer(peer.level, {} if uuid in split or peer.uuid in split else peer.p2p) for peer in topology.peers
    }


def _peer(level: str | None, statuses: Mapping[str, str]) -> Peer:
    return ({} if level is None else {LEVEL: level}) | {f"{P2P}{name}": status for name, status in statuses.items()}


def _with_levels_of_both_halves(gpu: GpuFacts, everyone: Iterable[GpuFacts]) -> GpuFacts:
    """The GPU's facts with levels filled in from its peers, because each pair is queried only once."""
    if gpu.peers is None:
        return gpu
    halves = {each.uuid: (each.peers or {}).get(gpu.uuid, {}) for each in everyone}
    levels = {uuid: {LEVEL: half[LEVEL]} for uuid, half in halves.items() if LEVEL in half}
    return replace(gpu, peers={uuid: levels.get(uuid, {}) | peer for uuid, peer in gpu.peers.items()})
