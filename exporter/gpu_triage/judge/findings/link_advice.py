"""What limits a PCIe link below what it should reach, and what to do about it."""

from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal

from gpu_triage.judge.findings.table import BY_CODE, Advice, advice_on

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

LINK_ADVICE: Final[Mapping[tuple[Attribute, LinkCause], Advice]] = {
    ("width", LinkCause.CARD): advice_on(
        f"The card offers fewer lanes than this link should have: {_BANDWIDTH}", _SAME_CARD
    ),
    ("width", LinkCause.SLOT): advice_on(
        f"The slot offers fewer lanes than this link should have: {_BANDWIDTH}",
        "Reseating does not help: {drain} the host, then move the card to a slot with enough lanes, change the "
        "riser or correct how the BIOS splits the lanes.",
    ),
    ("width", LinkCause.LINK): BY_CODE["pcie.width"].advice,
    ("generation", LinkCause.CARD): advice_on(
        "The card offers a lower PCIe generation than this link should reach.", _SAME_CARD
    ),
    ("generation", LinkCause.SLOT): advice_on(
        "The slot offers a lower PCIe generation than this link should reach.",
        "Reseating does not help: {drain} the host, then look for a BIOS setting that limits the slot, and try "
        "another riser or slot.",
    ),
    ("generation", LinkCause.LINK): BY_CODE["pcie.generation"].advice,
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
