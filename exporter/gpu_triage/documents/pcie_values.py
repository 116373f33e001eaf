"""PCI Express constants: generations, their transfer rates, and link widths; used by readers, options and files."""

import re
from collections.abc import Mapping
from typing import Annotated, Final

from gpu_triage.documents import Parsed, Range

TRANSFER_RATES: Final[Mapping[int, float]] = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}
"""Gigatransfers per second by generation, as in ``max_link_speed``; 7 is the newest specified generation."""

MOST_GENERATION: Final = max(TRANSFER_RATES)
Generation = Annotated[int, Range(1, MOST_GENERATION)]
"""A generation in a file."""

WIDTHS: Final = (1, 2, 4, 8, 12, 16, 32)
"""Valid numbers of lanes."""

BUILT_LANES: Final = 8
"""Boards split the lanes of a slot in halves: a link with fewer than these is not built that way."""
_LAPTOP: Final = re.compile(r"\b(?:laptop|mobile|max-q)\b", re.IGNORECASE)


def is_built_for_laptop(model: str, lanes: float) -> bool:
    """Whether a GPU of this model is wired with so many lanes in laptops, though its chip has more."""
    return lanes >= BUILT_LANES and _LAPTOP.search(model) is not None


def _width(lanes: int) -> int:
    if lanes not in WIDTHS:
        raise ValueError(f"write one of {', '.join(map(str, WIDTHS))}")
    return lanes


Width = Annotated[int, Parsed(_width, int)]
"""A width in a file."""
