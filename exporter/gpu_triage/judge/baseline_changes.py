"""What a difference from a baseline means for jobs, and what to do about it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gpu_triage.judge.findings.kinds.links_findings import LINK_ADVICE, Attribute, LinkCause, link_cause
from gpu_triage.read.baseline.differences import BOARD, SLOT, Comparison
from gpu_triage.read.baseline.host_facts import LinkFacts

_MEANINGS: Final = MappingProxyType(
    {
        "gpu_count": "The driver counts another number of GPUs. Jobs that ask for all of them fail or run on fewer; "
        "look for the missing one in lspci and the kernel log.",
        "driver_version": "Another driver is loaded. Compare it with the other hosts of the job, and accept it if the "
        "upgrade was intended.",
        "iommu": "The IOMMU was switched in the BIOS or on the kernel's command line. While it is on, direct traffic "
        "between GPUs and from network adapters may be redirected through the CPU, or refused.",
        "gpu_model": "Another product is in this slot. Jobs that expect equal GPUs wait for the slowest.",
        "numa_node": "The GPU hangs off other CPUs and memory now. Processes pinned for the old node cross the "
        "connection between the sockets with every transfer: pin them again.",
        "nic_affinity": "Network adapters are nearer to the GPU or farther from it, or came or went. Collectives and "
        "GPUDirect RDMA take another path: check which adapter each rank uses.",
        "p2p": "Direct access between these GPUs changed. Without it copies go through host memory: look for ACS, the "
        "IOMMU, the driver and the slots.",
        "topology": "The nearest common ancestor of these GPUs is another one: boards, switches or slots changed, "
        "and with them the best order of ranks.",
        "nvlink": "Other NVLink links are up than before. What is missing goes over fewer links or over PCIe: look at "
        "gpu_nvlink_errors_total, the bridge and the fabric manager.",
        "vbios_version": "The board runs other firmware: it was flashed, or is a different board.",
        "power_limit": "The board may draw another power. A lower cap slows every kernel that reaches it: see "
        "nvidia-smi -q -d POWER for who set it.",
        "clocks": "Clock limits are others. Locked or application clocks below the default slow everything: "
        "nvidia-smi --reset-application-clocks (before driver 590) and --reset-gpu-clocks give them back.",
        "persistence_mode": "With persistence off the driver forgets settings and takes seconds to start when the "
        "last process leaves: enable nvidia-persistenced.",
        "ecc_mode": "With ECC off memory errors go unnoticed; with it on some boards lose memory and bandwidth.",
        BOARD: "The board was replaced or does not answer; the slot is what its other fields are compared by.",
        SLOT: "The same board sits in another slot, or the firmware numbers the buses otherwise.",
    }
)

_GONE: Final = "The recorded GPU is gone or does not answer: see gpu_error_info, the kernel log and lspci."
_ADDED: Final = "The baseline knows neither this GPU nor its slot: it was added after the baseline was recorded."


def meaning_of(change: Comparison) -> str:
    """The consequences of a difference, as sentences."""
    then, now = (change.gpu.recorded, change.gpu.now) if change.gpu else (None, None)
    if then and then.pcie and now and now.pcie and change.field.startswith("pcie_"):
        return _link_meaning(then.pcie, now.pcie, "width" if change.field == "pcie_width" else "generation")
    if change.field == BOARD and None in (then, now):
        return _GONE if now is None else _ADDED
    return _MEANINGS[change.field]


def _link_meaning(before: LinkFacts, after: LinkFacts, attribute: Attribute) -> str:
    (was, now), card, slot = (
        [getattr(link, f"{party}{attribute}") for link in (before, after)] for party in ("", "device_", "slot_")
    )
    factor = now / was if attribute == "width" else 2.0 ** (now - was)
    share = f"{factor:g} times" if factor >= 1 else f"1/{round(1 / factor)} of"
    sentences = [f"The link can carry {share} what it did."]
    for party, (then, since) in (("card", card), ("slot", slot)):
        if then != since:
            sentences.append(f"The {party} offers {_amount(since, attribute)} instead of {_amount(then, attribute)}.")
    if now < was:
        cause = link_cause(was, card[1], slot[1])
        if cause is LinkCause.LINK:
            sentences.append("Neither card nor slot says why.")
        sentences.append(LINK_ADVICE[attribute, cause].anywhere)
    return " ".join(sentences)


def _amount(value: int | None, attribute: Attribute) -> str:
    if attribute == "generation":
        return "an unknown generation" if value is None else f"generation {value}"
    return "an unknown number of lanes" if value is None else f"{value} lane{'' if value == 1 else 's'}"
