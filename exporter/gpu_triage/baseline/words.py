"""Differences from a baseline in words: what changed, and what that means for jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpu_triage.baseline.compare import ABSENT, GpuPair, Verdict, compare, match
from gpu_triage.baseline.facts import HostFacts, LinkFacts

BOARD: Final = "uuid"
SLOT: Final = "pci_bus_id"
"""Fields that only a diff knows: another board in a slot, and a board in another slot."""

_MEANINGS: Final = MappingProxyType(
    {
        "gpu_count": "The driver counts another number of GPUs. Jobs that ask for all of them fail or run on fewer; "
        "look for the missing one in lspci and the kernel log.",
        "driver_version": "Another driver is loaded. Compare it with the other hosts of the job, and record the "
        "baseline anew if the upgrade was meant.",
        "iommu": "The IOMMU was switched in the BIOS or on the kernel's command line. While it is on, direct traffic "
        "between GPUs and from network adapters may be redirected through the CPU, or refused.",
        "gpu_model": "Another product is in this slot. Jobs that expect equal GPUs wait for the slowest.",
        "pcie_generation": "Card, slot and driver together can do another PCIe generation: each step halves or "
        "doubles what the link carries. Look for a BIOS setting, a riser or another slot.",
        "numa_node": "The GPU hangs off other CPUs and memory now. Processes pinned for the old node cross the "
        "connection between the sockets with every transfer: pin them anew.",
        "nic_affinity": "Network adapters are nearer to the GPU or farther from it, or came or went. Collectives and "
        "GPUDirect RDMA take another path: check which adapter each rank uses.",
        "p2p": "Direct access between these GPUs changed. Without it copies go through host memory: look for ACS, the "
        "IOMMU, the driver and the slots.",
        "topology": "The nearest common ancestor of these GPUs is another one: boards, switches or slots changed, "
        "and with them the best order of ranks.",
        "nvlink": "Other NVLink links are up than before. What is missing goes over fewer links or over PCIe: look at "
        "gpu_nvlink_errors_total, the bridge and the fabric manager.",
        "vbios_version": "The board runs other firmware: it was flashed, or is another board.",
        "power_limit": "The board may draw another power. A lower cap slows every kernel that reaches it: see "
        "nvidia-smi -q -d POWER for who set it.",
        "clocks": "Clock limits are others. Locked or application clocks below the default slow everything: "
        "nvidia-smi --reset-application-clocks and --reset-gpu-clocks give them back.",
        "persistence_mode": "With persistence off the driver forgets settings and takes seconds to start when the "
        "last process leaves: enable nvidia-persistenced.",
        "ecc_mode": "With ECC off memory errors go unnoticed; with it on some boards lose memory and bandwidth.",
        BOARD: "The board was replaced or does not answer; the slot is what its other fields are compared by.",
        SLOT: "The same board sits in another slot, or the firmware numbers the buses otherwise.",
    }
)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes:
        field: its name, as gpu_baseline_mismatch has it, or BOARD or SLOT.
        gpu: whose it is; None for the host.
        was: what was recorded.
        now: what there is.
        meaning: what follows, in sentences.
    """

    field: str
    gpu: GpuPair | None
    was: str
    now: str
    meaning: str


def changes(recorded: HostFacts, now: HostFacts) -> tuple[Change, ...]:
    """What differs: the host's fields first, then board, slot and fields of each GPU, by slot."""
    verdicts = [verdict for verdict in compare(recorded, now) if verdict.differs]
    found = [_change(verdict) for verdict in verdicts if verdict.gpu is None]
    for pair in match(recorded.gpus, now.gpus):
        found += _identity(pair)
        found += [_change(verdict) for verdict in verdicts if verdict.gpu == pair]
    return tuple(found)


def _identity(pair: GpuPair) -> Iterator[Change]:
    before, after = pair.recorded, pair.now
    if before is None or after is None:
        was = before.uuid if before else ABSENT
        yield Change(BOARD, pair, was, after.uuid if after else ABSENT, _coming_or_going(gone=after is None))
        return
    if before.uuid != after.uuid:
        yield Change(BOARD, pair, before.uuid, after.uuid, _MEANINGS[BOARD])
    if before.pci_bus_id != after.pci_bus_id:
        yield Change(SLOT, pair, before.pci_bus_id or ABSENT, after.pci_bus_id or ABSENT, _MEANINGS[SLOT])


def _coming_or_going(*, gone: bool) -> str:
    if gone:
        return "The recorded GPU is gone or does not answer: see gpu_error_info, the kernel log and lspci."
    return "The baseline knows neither this GPU nor its slot: it was added after the baseline was recorded."


def _change(verdict: Verdict) -> Change:
    meaning = _width_meaning(verdict.gpu) if verdict.field == "pcie_width" else _MEANINGS[verdict.field]
    return Change(verdict.field, verdict.gpu, verdict.was, verdict.now, meaning)


def _width_meaning(pair: GpuPair | None) -> str:
    nothing = LinkFacts()
    before = (pair.recorded.link if pair and pair.recorded else None) or nothing
    after = (pair.now.link if pair and pair.now else None) or nothing
    factor = (after.width or 1) / (before.width or 1)
    share = f"{factor:g} times" if factor >= 1 else f"1/{round(1 / factor)} of"
    said = f"The link can carry {share} what it did."
    if before.slot_width != after.slot_width and before.device_width == after.device_width:
        return (
            f"{said} The card is as it was and the slot is not, which offers {_lanes(after.slot_width)} instead of "
            f"{_lanes(before.slot_width)}: another motherboard, riser or slot, or the BIOS splits it otherwise. "
            "Reseating does not help."
        )
    if before.device_width != after.device_width:
        return f"{said} The card itself offers {_lanes(after.device_width)}: it is another card, or it is damaged."
    return f"{said} Neither card nor slot say why: compare the BIOS settings with another host."


def _lanes(width: int | None) -> str:
    return "an unknown number of lanes" if width is None else f"{width} lanes"
