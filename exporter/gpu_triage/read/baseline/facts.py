"""Facts about a host that change only through human intervention or hardware faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from gpu_triage.documents import AtMost, Key, Parsed, Range
from gpu_triage.documents.pcie import Generation, Width

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
