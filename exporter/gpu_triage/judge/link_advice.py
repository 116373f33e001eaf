"""Why a PCIe link is below its expected capability, and what to do: texts shared by check, diff and alerts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal

from gpu_triage.judge.findings.check import Advice

Attribute = Literal["generation", "width"]


class LinkCause(Enum):
    """The part that limits a link below its expected generation or width."""

    CARD = "card"
    SLOT = "slot"
    LINK = "link"  # card and slot support what is expected, or don't report what they support


_SAME_CARD: Final = (
    "Reseating does not help: if it is the same card as before, it is damaged, so drain the host and replace it; if it "
    "is another one, record the baseline again or correct the --expect option."
)
_BANDWIDTH: Final = "transfers to and from the GPU have a fraction of their bandwidth."

LINK_ADVICE: Final[Mapping[tuple[Attribute, LinkCause], Advice]] = MappingProxyType(
    {
        ("width", LinkCause.CARD): Advice(
            f"The card offers fewer lanes than this link should have: {_BANDWIDTH}",
            _SAME_CARD,
        ),
        ("width", LinkCause.SLOT): Advice(
            f"The slot offers fewer lanes than this link should have: {_BANDWIDTH}",
            "Reseating does not help: drain the host, then move the card to a slot with enough lanes, change the riser "
            "or correct how the BIOS splits the lanes.",
        ),
        ("width", LinkCause.LINK): Advice(
            f"The link lost lanes while at work: {_BANDWIDTH}",
            "Drain the host now and power it off and on; if lanes are still missing, reseat card and riser and check "
            "the BIOS's lane settings.",
        ),
        ("generation", LinkCause.CARD): Advice(
            "The card offers a lower PCIe generation than this link should reach.",
            _SAME_CARD,
        ),
        ("generation", LinkCause.SLOT): Advice(
            "The slot offers a lower PCIe generation than this link should reach.",
            "Reseating does not help: drain the host, then look for a BIOS setting that limits the slot, and try "
            "another riser or slot.",
        ),
        ("generation", LinkCause.LINK): Advice(
            "The link runs at a lower PCIe generation than it should under load, where that saves no power.",
            "Check the BIOS's PCIe settings; if they are right, drain the host and reseat card and riser.",
        ),
    }
)


def link_cause(expected: float | None, card: float | None, slot: float | None) -> LinkCause:
    """Find what limits a link below the expected capability.

    Args:
        expected: expected generation or number of lanes.
        card: maximum of the card; None if not reported.
        slot: maximum of the port above it; None if not reported.

    Example:
        >>> link_cause(16, card=16, slot=8)
        <LinkCause.SLOT: 'slot'>
    """
    if expected is not None and card is not None and card < expected:
        return LinkCause.CARD
    if expected is not None and slot is not None and slot < expected:
        return LinkCause.SLOT
    return LinkCause.LINK
