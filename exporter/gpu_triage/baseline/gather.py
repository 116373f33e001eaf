"""Facts of a host from the collectors' latest readings: nothing is read a second time, or another way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from gpu_triage.baseline.facts import GpuFacts, HostFacts, LinkFacts, PeerFacts
from gpu_triage.collectors.clock_targets import CLOCK_TARGETS
from gpu_triage.collectors.identity import IDENTITY
from gpu_triage.collectors.limits import LIMITS
from gpu_triage.collectors.memory_repair import MEMORY_REPAIR
from gpu_triage.collectors.modes import MODES
from gpu_triage.collectors.nic_topology import NIC_TOPOLOGY
from gpu_triage.collectors.nvlink import NVLINK
from gpu_triage.collectors.pcie_limits import PCIE_LIMITS, LinkExpectation
from gpu_triage.collectors.platform import PLATFORM
from gpu_triage.collectors.power import POWER
from gpu_triage.collectors.topology import TOPOLOGY
from gpu_triage.hardware.clocks import ClocksReading
from gpu_triage.hardware.identity import IdentityReading
from gpu_triage.hardware.limits import LimitsReading
from gpu_triage.hardware.memory_repair import MemoryRepairReading
from gpu_triage.hardware.modes import ModesReading
from gpu_triage.hardware.nic_topology import NicTopologyReading
from gpu_triage.hardware.nvlink import NvlinkReading
from gpu_triage.hardware.platform import PlatformReading
from gpu_triage.hardware.power import PowerReading
from gpu_triage.hardware.topology import TopologyReading

R = TypeVar("R")

GPU_SOURCES: Final = (
    IDENTITY,
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
"""The collectors whose readings tell a GPU's facts."""

HOST_SOURCES: Final = (PLATFORM,)
"""Those whose readings tell the host's."""

ReadingOf = Callable[[str], object | None]
"""The latest reading of a collector by its name; None where there is none."""


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU that answers.

    Attributes:
        uuid: its identity.
        pci_bus_id: as sysfs writes it; None when the driver does not say.
        reading_of: its latest readings.
    """

    uuid: str
    pci_bus_id: str | None
    reading_of: ReadingOf


def host_facts(
    at: float, gpu_count: int | None, driver_version: str | None, host: ReadingOf, gpus: Iterable[GpuView]
) -> HostFacts:
    """What the latest readings say of a host.

    Args:
        at: now, Unix seconds.
        gpu_count: GPUs that the driver counts; None while it is unavailable.
        driver_version: of the kernel driver; None likewise.
        host: the host's latest readings.
        gpus: those that answer.
    """
    platform = _reading(host, PLATFORM.name, PlatformReading)
    facts = sorted((_gpu_facts(gpu) for gpu in gpus), key=lambda gpu: (gpu.pci_bus_id, gpu.uuid))
    return HostFacts(
        at=at,
        gpu_count=gpu_count,
        driver_version=driver_version,
        iommu_active=platform.iommu_active if platform else None,
        gpus=tuple(_with_levels_of_both_halves(gpu, facts) for gpu in facts),
    )


def _reading(reading_of: ReadingOf, collector: str, kind: type[R]) -> R | None:
    reading = reading_of(collector)
    return reading if isinstance(reading, kind) else None


def _gpu_facts(gpu: GpuView) -> GpuFacts:
    identity = _reading(gpu.reading_of, IDENTITY.name, IdentityReading)
    link = _reading(gpu.reading_of, PCIE_LIMITS.name, LinkExpectation)
    topology = _reading(gpu.reading_of, TOPOLOGY.name, TopologyReading)
    adapters = _reading(gpu.reading_of, NIC_TOPOLOGY.name, NicTopologyReading)
    nvlink = _reading(gpu.reading_of, NVLINK.name, NvlinkReading)
    limits = _reading(gpu.reading_of, LIMITS.name, LimitsReading)
    targets = _reading(gpu.reading_of, CLOCK_TARGETS.name, ClocksReading)
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
        peers={peer.uuid: PeerFacts(peer.level, dict(peer.p2p)) for peer in topology.peers} if topology else None,
        nvlinks_up=tuple(sorted(n for n, each in nvlink.links.items() if each.is_up)) if nvlink else None,
        power_watts=_power(limits, _reading(gpu.reading_of, POWER.name, PowerReading)),
        clock_max_hertz=limits.clock_max_hertz if limits else None,
        clock_target_hertz=targets.hertz if targets else None,
        clock_default_hertz=limits.clock_default_hertz if limits else None,
        persistence_mode=modes.persistence if modes else None,
        ecc_mode=repair.ecc_mode if repair else None,
    )


def _link(expectation: LinkExpectation) -> LinkFacts:
    limits = expectation.limits
    # What the parties can do, not what was declared or recorded: those must not be compared with themselves.
    return LinkFacts(
        generation=limits.expected_generation,
        width=limits.expected_width,
        device_generation=limits.device_generation,
        device_width=limits.device_width,
        slot_generation=limits.slot_generation,
        slot_width=limits.slot_width,
    )


def _power(limits: LimitsReading | None, power: PowerReading | None) -> Mapping[str, float] | None:
    watts = {
        "enforced": power.limit_watts if power else None,
        "default": limits.power_default_watts if limits else None,
        "min": limits.power_min_watts if limits else None,
        "max": limits.power_max_watts if limits else None,
    }
    return {limit: value for limit, value in watts.items() if value is not None} or None


def _with_levels_of_both_halves(gpu: GpuFacts, everyone: Iterable[GpuFacts]) -> GpuFacts:
    """The GPU's facts with the levels that its peers were asked for: each pair is asked once."""
    if gpu.peers is None:
        return gpu
    seen_by = {
        other.uuid: mine.level
        for other in everyone
        if other.peers is not None and (mine := other.peers.get(gpu.uuid)) is not None
    }
    peers = {
        uuid: peer if peer.level is not None else replace(peer, level=seen_by.get(uuid))
        for uuid, peer in gpu.peers.items()
    }
    return replace(gpu, peers=peers)
