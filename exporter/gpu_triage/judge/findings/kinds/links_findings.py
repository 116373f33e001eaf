"""The paths of a GPU: its PCIe link and slot; and from one GPU to another: peer access, NVLink and its switches."""

from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal

from gpu_triage.judge.findings.check import Action, Advice, Area, Measure, Unit, advice_on, rows_of

Attribute = Literal["generation", "width"]


class LinkCause(Enum):
    """The part that limits a link below its expected generation or width."""

    CARD = "card"
    SLOT = "slot"
    LINK = "link"  # card and slot support what is expected, or don't report what they support


_SAME_CARD: Final = (
    "Reseating does not help: if it is the same card as before, it is damaged, so {drain} the host and replace it; if "
    "it is another one, record the baseline again or correct the --expect option."
)
_BANDWIDTH: Final = "transfers to and from the GPU have a fraction of their bandwidth."
_LOST_LANES: Final = (
    f"The link lost lanes while at work: {_BANDWIDTH}",
    (
        "Stop its jobs at a checkpoint, then power the host off and on; if lanes are still missing, reseat "
        "card and riser and check the BIOS's lane settings."
    ),
)
_LOW_GENERATION: Final = (
    "The link runs at a lower PCIe generation than it should under load, where that saves no power.",
    "Check the BIOS's PCIe settings; if they are right, reseat card and riser.",
)

LINK_ADVICE: Final[Mapping[tuple[Attribute, LinkCause], Advice]] = {
    ("width", LinkCause.CARD): advice_on(
        f"The card offers fewer lanes than this link should have: {_BANDWIDTH}", _SAME_CARD
    ),
    ("width", LinkCause.SLOT): advice_on(
        f"The slot offers fewer lanes than this link should have: {_BANDWIDTH}",
        "Reseating does not help: {drain} the host, then move the card to a slot with enough lanes, change the "
        "riser or correct how the BIOS splits the lanes.",
    ),
    ("width", LinkCause.LINK): advice_on(*_LOST_LANES),
    ("generation", LinkCause.CARD): advice_on(
        "The card offers a lower PCIe generation than this link should reach.", _SAME_CARD
    ),
    ("generation", LinkCause.SLOT): advice_on(
        "The slot offers a lower PCIe generation than this link should reach.",
        "Reseating does not help: {drain} the host, then look for a BIOS setting that limits the slot, and try "
        "another riser or slot.",
    ),
    ("generation", LinkCause.LINK): advice_on(*_LOW_GENERATION),
}


def link_cause(expected: float | None, card: float | None, slot: float | None) -> LinkCause:
    """Find what limits a link below its `expected` capability: None for a maximum that is not reported.

    >>> link_cause(16, card=16, slot=8)
    <LinkCause.SLOT: 'slot'>
    """
    if expected is not None and card is not None and card < expected:
        return LinkCause.CARD
    if expected is not None and slot is not None and slot < expected:
        return LinkCause.SLOT
    return LinkCause.LINK


_pcie_critical, _pcie_warning, _pcie_info = rows_of(Area.PCIE, topic="pcie_link")
_load_critical, _load_warning, _load_info = rows_of(Area.PCIE, topic="pcie_link", under_load=True)
_peers_critical, _peers_warning, _peers_info = rows_of(Area.PEERS)

PCIE: Final = (
    # Held longer than the findings on the error counts that come with lost lanes.
    _load_critical("pcie.width", Action.INSPECT_HARDWARE, "GpuPcieWidthDowntrained", wait="10m", hold="25m")(
        title="its PCIe link lost lanes under load",
        meaning=_LOST_LANES[0],
        decision=_LOST_LANES[1],
        measure=Measure(Unit.LANES, "x{}"),
    ),
    _pcie_warning("pcie.width_idle", Action.INSPECT_HARDWARE, "GpuPcieWidthDowntrained", wait="1h")(
        title="its PCIe link has lost lanes",
        meaning="The link has fewer lanes than it should; some cards drop lanes at rest, so look again under load.",
        decision="Put load on the GPU and look again; if lanes are still missing, reseat card and riser.",
        measure=Measure(Unit.LANES, "x{}"),
    ),
    _pcie_warning("pcie.width_from_boot", Action.INSPECT_HARDWARE, "GpuPcieWidthFromBoot", wait="1h")(
        title="its PCIe link has had too few lanes since boot",
        meaning="The link has had fewer lanes since boot than card and slot claim: the board gives no more, or it "
        "trained down at boot.",
        decision="Compare it with other hosts of this kind, and look for a riser or a slot that shares lanes; if that "
        "is how it is built, declare it with --expect.pcie-width or record a baseline, else reseat the card.",
        measure=Measure(Unit.LANES, "x{}"),
    ),
    _pcie_info("pcie.width_built", Action.NONE, topic="pcie_slot", page="GpuPcieWidthFromBoot", wait="30m")(
        title="its PCIe link has as many lanes as those of its siblings, and fewer than card and slot claim",
        meaning="The board splits its lanes over the slots, so each GPU has had the same number since boot.",
        decision="Nothing, if the board is built like that: --expect.pcie-width or a baseline settles it, and then no "
        "later loss is taken for the board's choice.",
        measure=Measure(Unit.LANES, "x{}"),
    ),
    _load_critical("pcie.generation", Action.INSPECT_HARDWARE, "GpuPcieGenerationDowntrained", wait="10m")(
        title="its PCIe link runs at a low generation under load",
        meaning=_LOW_GENERATION[0],
        decision=_LOW_GENERATION[1],
        measure=Measure(Unit.GENERATION, "PCIe generation {}"),
    ),
    _pcie_warning("pcie.generation_low", Action.INSPECT_HARDWARE, "GpuPcieGenerationDowntrained", wait="1h")(
        title="its PCIe link runs at a low generation while it works",
        meaning="The link stays at a low generation while the GPU works, so it is not saving power.",
        decision="Check the BIOS's PCIe settings; if they are right, reseat card and riser when the host is free.",
        measure=Measure(Unit.GENERATION, "PCIe generation {}"),
    ),
    _load_warning("pcie.width_changes", Action.INSPECT_HARDWARE, "GpuPcieLinkFlapping")(
        title="its PCIe link changed its width under load",
        meaning="The link changed its number of lanes while the GPU worked, which a healthy one never does.",
        decision="Check riser, seating and slot before it stays narrow; swap cards to see which is at fault.",
        measure=Measure(Unit.COUNT, "{} time(s) lately"),
    ),
    _load_warning("pcie.flapping", Action.INSPECT_HARDWARE, "GpuPcieLinkFlapping", unbroken="15m")(
        title="its PCIe link keeps retraining",
        meaning="The link keeps changing its speed or width under load.",
        decision="Check riser, slot and power management settings (ASPM).",
        measure=Measure(Unit.COUNT, "{} time(s) lately"),
    ),
    _pcie_warning("pcie.uplink", Action.INSPECT_HARDWARE, "GpuPcieUplinkDowntrained", wait="10m", of_host=True)(
        title="the link above a PCIe switch has less bandwidth than it should",
        meaning="The link above a PCIe switch trained down: all GPUs and adapters behind it share what is left.",
        decision="Check the cable or riser to the switch board; retrain the link with a power cycle when the host is "
        "free.",
        measure=Measure(Unit.RATIO, "at {} of its bandwidth", low=True),
    ),
    _pcie_warning("pcie.replays", Action.INSPECT_HARDWARE, "GpuPcieReplaysRising", unbroken="15m")(
        title="its PCIe link keeps resending packets",
        meaning="Packets arrive damaged and are resent: the signal is marginal.",
        decision="Check riser, seating and cables before the link trains down.",
        measure=Measure(Unit.COUNT, "{} lately"),
    ),
    _pcie_warning("pcie.aer", Action.INSPECT_HARDWARE, "GpuPcieAerErrors", unbroken="15m")(
        title="PCIe errors (AER)",
        meaning="The kernel counts PCIe errors on the GPU or on the port above it.",
        decision="Check riser, seating and cables; the end that counts is not always the end at fault.",
        measure=Measure(Unit.COUNT, "{} lately"),
    ),
    _pcie_info("pcie.below_peers", Action.INSPECT_HARDWARE, "GpuPcieBelowPeers", topic="pcie_slot", wait="30m")(
        title="its slot offers less PCIe bandwidth than its peers' slots",
        meaning="The slot gives this GPU a slower link than another slot gives, or would give it. Copies to and from "
        "it, and exchanges with the other GPUs, run at the slower pace.",
        decision="Move the card, or change the slot's lane settings, if a faster slot is free; with unequal slots, the "
        "GPU that moves the most data belongs in the fastest.",
        measure=Measure(Unit.LANES, "at most x{}"),
    ),
)

PEERS: Final = (
    _peers_warning("p2p.unavailable", Action.FIX_HOST, "GpuP2pUnavailable", wait="15m", hold="6m")(
        title="no direct access to other GPUs",
        meaning="GPUs that should reach each other directly cannot: their traffic goes through host memory.",
        decision="Check IOMMU, ACS, virtualization and firmware settings.",
        measure=Measure(Unit.COUNT, "{} GPU(s)"),
    ),
    _peers_info("p2p.through_host", Action.NONE, page="GpuP2pUnavailable", of_host=True)(
        title="its busy GPUs exchange data through host memory",
        meaning="The driver offers no direct access between these GPUs, as with most GeForce cards: what they exchange "
        "is copied through host memory and crosses both links.",
        decision="Nothing on these cards; jobs with little to exchange scale best, so use larger batches per GPU or "
        "accumulate gradients, and give both cards the fastest links. --expect.p2p false settles it.",
        measure=Measure(Unit.COUNT, "{} GPU(s)"),
    ),
    _peers_warning("nvlink.down", Action.INSPECT_HARDWARE, "GpuNvlinkDown", wait="5m", hold="6m")(
        title="NVLinks are down",
        meaning="An NVLink link is down: collectives lose its bandwidth.",
        decision="Check bridges, seating and the fabric manager; reset the GPU.",
        measure=Measure(Unit.COUNT, "{} link(s)"),
    ),
    _peers_warning("nvlink.flapping", Action.INSPECT_HARDWARE, "GpuNvlinkDown")(
        title="NVLinks go down and come back",
        meaning="NVLinks go down and come back: collectives stall or take slower paths each time.",
        decision="Check bridges, seating and the fabric manager's log; reset the GPU, and inspect it if it goes on.",
        measure=Measure(Unit.COUNT, "{} time(s)"),
    ),
    _peers_warning("nvlink.slow", Action.INSPECT_HARDWARE, "GpuNvlinkDown", wait="15m")(
        title="NVLinks run below their line rate",
        meaning="An NVLink is up and trained to a lower line rate: collectives run at its pace.",
        decision="Reset the GPU when its job is done; if it stays slow, check bridge, cable and baseboard.",
        measure=Measure(Unit.COUNT, "{} link(s)"),
    ),
    _peers_warning("nvlink.errors", Action.INSPECT_HARDWARE, "GpuNvlinkErrorsRising", unbroken="15m")(
        title="its NVLinks count errors",
        meaning="NVLink links count errors.",
        decision="Watch them; if they go on, check bridges and seating.",
        measure=Measure(Unit.COUNT, "{} lately"),
    ),
    _peers_warning("nvlink.recovering", Action.INSPECT_HARDWARE, "GpuNvlinkErrorsRising", wait="15m", hold="60m")(
        title="one of its NVLinks recovers again and again",
        meaning="A link of NVLink 5 went into recovery more than once within an hour. Healthy links never do, and such "
        "a link may fail permanently within days.",
        decision="When the host is free, have the GPU's board, the cable and the switch's port checked.",
        measure=Measure(Unit.COUNT, "{} time(s) within the hour"),
    ),
    _peers_warning("nvlink.bit_errors", Action.INSPECT_HARDWARE, "GpuNvlinkErrorsRising", wait="15m")(
        title="the bit error rate of its NVLinks is too high",
        meaning="After error correction, more bits of an NVLink link are wrong than one in a trillion.",
        decision="Have the GPU's board, the cable and the switch's port looked at, as for a link that recovers.",
    ),
    _peers_warning("c2c.down", Action.INSPECT_HARDWARE, topic="nvlink", page="GpuNvlinkDown", wait="5m", hold="6m")(
        title="links to the CPU of its module are down",
        meaning="NVLink-C2C links between the GPU and its Grace CPU are down: transfers between them are slow, or "
        "fail.",
        decision="When its jobs end, power the host off and on; if they stay down, have the module replaced.",
        measure=Measure(Unit.COUNT, "{} link(s)"),
    ),
    # Held longer than the findings on Xids of the GPUs on its links.
    _peers_critical("nvswitch.sxid_fatal", Action.DRAIN, "GpuNvswitchFatal", topic="nvlink", hold="9m", of_host=True)(
        title="an NVSwitch reported a fatal error",
        meaning="An NVSwitch had a fatal error: jobs over several GPUs of this host fail until it is reset.",
        decision="{Drain} the host, reset all GPUs and switches or reboot; then check the switch and its links.",
        measure=Measure(Unit.COUNT, "{} error(s)"),
    ),
    _peers_warning("nvswitch.sxid", Action.INSPECT_HARDWARE, topic="nvlink", page="GpuNvswitchFatal", of_host=True)(
        title="an NVSwitch reported an error",
        meaning="An NVSwitch reported a nonfatal or old error.",
        decision="Watch for more of them; check the links that it names if they keep coming.",
        measure=Measure(Unit.COUNT, "{} error(s)"),
    ),
)
