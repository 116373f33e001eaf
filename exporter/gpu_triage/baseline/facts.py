"""The facts of a host that only people and broken hardware change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """What a PCIe link can do; None where not reported.

    Attributes:
        generation: PCIe generation that card, slot and system can all do.
        width: lanes that all of them can use.
        device_generation, device_width: the card's own.
        slot_generation, slot_width: the upstream port's own.
    """

    generation: int | None = None
    width: int | None = None
    device_generation: int | None = None
    device_width: int | None = None
    slot_generation: int | None = None
    slot_width: int | None = None


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """How a GPU reaches another.

    Attributes:
        level: nearest common ancestor (internal, pix, pxb, phb, node, sys); None where not reported.
        p2p: status (ok, chipset_not_supported, …) by capability (read, write, nvlink, atomics, prop).
    """

    level: str | None
    p2p: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU in its slot; None where not reported.

    Attributes:
        uuid: the board, wherever it is.
        pci_bus_id: the slot, whatever board is in it, as sysfs writes it; "" where the driver does not say.
        name: the product.
        vbios_version: of the video BIOS.
        link: what its PCIe link can do.
        numa_node: of the slot, -1 where the firmware does not say.
        nics: topology level (pix, …, sys) by name of the network adapter.
        peers: the other GPUs by UUID.
        nvlinks_up: numbers of the NVLink links that are up.
        power_watts: by limit: enforced, default, min, max.
        clock_max_hertz, clock_target_hertz, clock_default_hertz: by clock (graphics, sm, memory, video).
        persistence_mode: whether the driver stays initialised without clients.
        ecc_mode: whether ECC is on.
    """

    uuid: str
    pci_bus_id: str
    name: str
    vbios_version: str | None = None
    link: LinkFacts | None = None
    numa_node: int | None = None
    nics: Mapping[str, str] | None = None
    peers: Mapping[str, PeerFacts] | None = None
    nvlinks_up: tuple[int, ...] | None = None
    power_watts: Mapping[str, float] | None = None
    clock_max_hertz: Mapping[str, float] | None = None
    clock_target_hertz: Mapping[str, float] | None = None
    clock_default_hertz: Mapping[str, float] | None = None
    persistence_mode: bool | None = None
    ecc_mode: bool | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A host and its GPUs; None where not reported.

    Attributes:
        at: when this was so, Unix seconds.
        gpu_count: GPUs that the driver counts; None while it is unavailable.
        driver_version: of the kernel driver.
        iommu_active: whether an IOMMU is in use.
        gpus: those that answer, by slot.
    """

    at: float
    gpu_count: int | None
    driver_version: str | None
    iommu_active: bool | None
    gpus: tuple[GpuFacts, ...]


def expected_p2p(facts: HostFacts) -> bool | None:
    """Whether GPUs of one model reach each other's memory directly.

    True where all such pairs do, False where none does; None where some do, or where there is no pair.
    """
    names = {gpu.uuid: gpu.name for gpu in facts.gpus}
    reached = {
        peer.p2p.get("read") == "ok" and peer.p2p.get("write") == "ok"
        for gpu in facts.gpus
        for uuid, peer in (gpu.peers or {}).items()
        if names.get(uuid) == gpu.name and peer.p2p
    }
    return reached.pop() if len(reached) == 1 else None
