"""The path to a GPU: its PCIe link and slot."""

from __future__ import annotations

from typing import Final

from gpu_triage.judge.findings.check import HOURS, MINUTES, Action, Advice, Area, Check, Measure, Severity, Unit
from gpu_triage.judge.link_advice import IDLE_WIDTH_ADVICE, LINK_ADVICE, LinkCause

PCIE: Final = (
    Check(
        code="pcie.width",
        area=Area.PCIE,
        topic="pcie_link",
        severity=Severity.CRITICAL,
        action=Action.INSPECT_HARDWARE,
        alert="GpuPcieWidthDowntrained",
        title="its PCIe link lost lanes under load",
        advice=LINK_ADVICE["width", LinkCause.LINK],
        measure=Measure(Unit.LANES, "link width x{} under load"),
        wait_seconds=10 * MINUTES,
        # Longer than the findings on the error counts that come with lost lanes.
        hold_seconds=25 * MINUTES,
        under_load=True,
    ),
    Check(
        code="pcie.width_idle",
        area=Area.PCIE,
        topic="pcie_link",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuPcieWidthDowntrained",
        title="its PCIe link has lost lanes",
        advice=IDLE_WIDTH_ADVICE,
        measure=Measure(Unit.LANES, "link width x{}"),
        wait_seconds=1 * HOURS,
    ),
    Check(
        code="pcie.width_from_boot",
        area=Area.PCIE,
        topic="pcie_link",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuPcieWidthFromBoot",
        title="its PCIe link has had too few lanes since boot",
        advice=Advice(
            "The link has had fewer lanes since boot than card and slot claim: the board gives no more, or it trained "
            "down at boot.",
            "Compare it with other hosts of this kind, and look for a riser or a slot that shares lanes; if that is "
            "how it is built, declare it with --expect.pcie-width or record a baseline, else reseat the card.",
        ),
        measure=Measure(Unit.LANES, "link width x{} since boot"),
        wait_seconds=1 * HOURS,
    ),
    Check(
        code="pcie.width_built",
        area=Area.PCIE,
        topic="pcie_slot",
        severity=Severity.INFO,
        action=Action.NONE,
        page="GpuPcieWidthFromBoot",
        title="its PCIe link has as many lanes as those of its siblings, and fewer than card and slot claim",
        advice=Advice(
            "The board splits its lanes over the slots, so each GPU has had the same number since boot.",
            "Nothing, if the board is built like that: --expect.pcie-width or a baseline settles it, and then no "
            "later loss is taken for the board's choice.",
        ),
        measure=Measure(Unit.LANES, "link width x{}, as its siblings"),
        wait_seconds=30 * MINUTES,
    ),
    Check(
        code="pcie.generation",
        area=Area.PCIE,
        topic="pcie_link",
        severity=Severity.CRITICAL,
        action=Action.INSPECT_HARDWARE,
        alert="GpuPcieGenerationDowntrained",
        title="its PCIe link runs at a low generation under load",
        advice=LINK_ADVICE["generation", LinkCause.LINK],
        measure=Measure(Unit.GENERATION, "PCIe generation {} under load"),
        wait_seconds=10 * MINUTES,
        under_load=True,
    ),
    Check(
        code="pcie.generation_low",
        area=Area.PCIE,
        topic="pcie_link",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuPcieGenerationDowntrained",
        title="its PCIe link runs at a low generation while it works",
        advice=Advice(
            "The link stays at a low generation while the GPU works, so it is not saving power.",
            "Check the BIOS's PCIe settings; if they are right, reseat card and riser when the host is free.",
        ),
        measure=Measure(Unit.GENERATION, "PCIe generation {}"),
        wait_seconds=1 * HOURS,
    ),
    Check(
        code="pcie.width_changes",
        area=Area.PCIE,
        topic="pcie_link",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuPcieLinkFlapping",
        title="its PCIe link changed its width under load",
        advice=Advice(
            "The link changed its number of lanes while the GPU worked, which a healthy one never does.",
            "Check riser, seating and slot before it stays narrow; swap cards to see which is at fault.",
        ),
        measure=Measure(Unit.COUNT, "changes of width lately: {}"),
        under_load=True,
    ),
    Check(
        code="pcie.flapping",
        area=Area.PCIE,
        topic="pcie_link",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuPcieLinkFlapping",
        title="its PCIe link keeps retraining",
        advice=Advice(
            "The link keeps changing its speed or width under load.",
            "Check riser, slot and power management settings (ASPM).",
        ),
        measure=Measure(Unit.COUNT, "changes of the link lately: {}"),
        wait_seconds=15 * MINUTES,
        under_load=True,
    ),
    Check(
        code="pcie.uplink",
        area=Area.PCIE,
        topic="pcie_link",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuPcieUplinkDowntrained",
        title="the link above a PCIe switch has less bandwidth than it should",
        advice=Advice(
            "The link above a PCIe switch trained down: all GPUs and adapters behind it share what is left.",
            "Check the cable or riser to the switch board; retrain the link with a power cycle when the host is free.",
        ),
        measure=Measure(Unit.RATIO, "the narrowest has {} of its bandwidth"),
        wait_seconds=10 * MINUTES,
        of_host=True,
    ),
    Check(
        code="pcie.replays",
        area=Area.PCIE,
        topic="pcie_link",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuPcieReplaysRising",
        title="its PCIe link keeps resending packets",
        advice=Advice(
            "Packets arrive damaged and are resent: the signal is marginal.",
            "Check riser, seating and cables before the link trains down.",
        ),
        measure=Measure(Unit.COUNT, "replays lately: {}"),
        wait_seconds=15 * MINUTES,
    ),
    Check(
        code="pcie.aer",
        area=Area.PCIE,
        topic="pcie_link",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuPcieAerErrors",
        title="PCIe errors (AER)",
        advice=Advice(
            "The kernel counts PCIe errors on the GPU or on the port above it.",
            "Check riser, seating and cables; the end that counts is not always the end at fault.",
        ),
        measure=Measure(Unit.COUNT, "AER errors lately: {}"),
        wait_seconds=15 * MINUTES,
    ),
    Check(
        code="pcie.below_peers",
        area=Area.PCIE,
        topic="pcie_slot",
        severity=Severity.INFO,
        action=Action.INSPECT_HARDWARE,
        alert="GpuPcieBelowPeers",
        title="its slot offers less PCIe bandwidth than its peers' slots",
        advice=Advice(
            "The slot gives this GPU a slower link than another slot gives, or would give it. Copies to and from it, "
            "and exchanges with the other GPUs, run at the slower pace.",
            "Move the card, or change the slot's lane settings, if a faster slot is free; with unequal slots, the GPU "
            "that moves the most data belongs in the fastest.",
        ),
        measure=Measure(Unit.LANES, "at most x{}"),
        wait_seconds=30 * MINUTES,
    ),
)
