"""The facts of a host that only people and broken hardware change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from gpu_triage.documents import AtMost, Between, Key, Parsed
from gpu_triage.pcie import Generation, Width

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
Amounts = Annotated[Mapping[Name, Annotated[float, Between(0, 1e18)]], AtMost(_MOST_ENTRIES)]
Links = tuple[Annotated[int, Between(0, 63)], ...]
Peer = dict[Annotated[str, Parsed(_peer_key)], Name]
"""How a GPU reaches another: LEVEL, their nearest common ancestor (internal, pix, pxb, phb, node, sys), and by P2P with
a capability (read, write, nvlink, atomics, prop) its status (ok, chipset_not_supported, …)."""

ClockTable = Literal["max_hertz", "target_hertz", "default_hertz"]
ClockTables = Mapping[ClockTable, Amounts]


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """What a PCIe link can do: card, slot and system together, the card alone, the slot (its port) alone."""

    generation: Generation | None = None
    width: Width | None = None
    device_generation: Generation | None = None
    device_width: Width | None = None
    slot_generation: Generation | None = None
    slot_width: Width | None = None


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU in its slot; None where not reported."""

    uuid: Name  # the board, wherever it is
    pci_bus_id: Name = ""  # the slot, whatever board is in it, as sysfs writes it; "" where the driver does not say
    name: Name = ""
    vbios_version: Name | None = None
    link: Annotated[LinkFacts | None, Key("pcie")] = None
    numa_node: Annotated[int, Between(-1, 1 << 16)] | None = None  # of the slot, -1 where the firmware does not say
    nics: Names | None = None  # topology level (pix, …, sys) by name of the network adapter
    # Numbers of the NVLink links that are up; nobody knows while the GPU is split by MIG.
    nvlinks_up: Annotated[Links | None, Parsed(lambda links: tuple(sorted(set(links))), Links)] = None
    power_watts: Amounts | None = None  # by limit: enforced, default, min, max
    clocks: ClockTables | None = None  # highest, target and default clock, each by clock (graphics, sm, memory, video)
    persistence_mode: bool | None = None
    ecc_mode: bool | None = None
    peers: Annotated[Mapping[Name, Peer], AtMost(_MOST_ENTRIES)] | None = None  # the other GPUs by UUID


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A host at a Unix time, and its GPUs that answer, by slot; `gpu_count` is how many the driver counts."""

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
        peer.get(f"{P2P}read") == peer.get(f"{P2P}write") == "ok"
        for gpu in facts.gpus
        for uuid, peer in (gpu.peers or {}).items()
        if names.get(uuid) == gpu.name and peer.keys() - {LEVEL}
    }
    return reached.pop() if len(reached) == 1 else None
