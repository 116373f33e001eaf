"""What to do about a PCIe link if its card or its slot offers less than the link should reach."""

from collections.abc import Mapping
from typing import Final, Literal

from gpu_triage.judge.findings.table import Advice, advice_on

Attribute = Literal["generation", "width"]
Part = Literal["card", "slot"]

_SAME_CARD: Final = (
    "Reseating does not help: if it is the same card as before, it is damaged, so {drain} the host and replace it; if "
    "it is another one, record the baseline again or correct the --expect option."
)
_BANDWIDTH: Final = "transfers to and from the GPU have a fraction of their bandwidth."

LINK_ADVICE: Final[Mapping[tuple[Attribute, Part | None], Advice]] = {
    ("width", "card"): advice_on(f"The card offers fewer lanes than this link should have: {_BANDWIDTH}", _SAME_CARD),
    ("width", "slot"): advice_on(
        f"The slot offers fewer lanes than this link should have: {_BANDWIDTH}",
        "Reseating does not help: {drain} the host, then move the card to a slot with enough lanes, change the "
        "riser or correct how the BIOS splits the lanes.",
    ),
    ("generation", "card"): advice_on(
        "The card offers a lower PCIe generation than this link should reach.", _SAME_CARD
    ),
    ("generation", "slot"): advice_on(
        "The slot offers a lower PCIe generation than this link should reach.",
        "Reseating does not help: {drain} the host, then look for a BIOS setting that limits the slot, and try "
        "another riser or slot.",
    ),
}
"""None for other causes, on which the finding itself has advice."""


def weaker_part(expected: float | None, card: float | None, slot: float | None) -> Part | None:
    """Return which part limits a link below its `expected` capability; None if both support it, or do not report it.

    >>> weaker_part(16, card=16, slot=8)
    'slot'
    """
    if expected is not None and card is not None and card < expected:
        return "card"
    return "slot" if expected is not None and slot is not None and slot < expected else None
