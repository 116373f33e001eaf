"""The most lanes that each PCIe link has had since boot; a link that has fewer now has lost them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

MOST_LINKS: Final = 256
"""The most links kept; the ones seen first are dropped."""


class WidestLink(NamedTuple):
    """A GPU in a slot, and its most lanes."""

    gpu: str  # the GPU's key
    pci_bus_id: str  # "" if unknown
    lanes: int


class WidestLinks:
    """The links of one host since it booted, as far as they were seen."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str], int] = {}

    @property
    def all(self) -> tuple[WidestLink, ...]:
        return tuple(WidestLink(*key, lanes) for key, lanes in self._lanes.items())

    def of(self, gpu: str, pci_bus_id: str) -> int:
        """Return the most lanes seen; 0 if never seen."""
        return self._lanes.get((gpu, pci_bus_id), 0)

    def see(self, links: Iterable[WidestLink]) -> None:
        """Note links as they are now, or as they were earlier in this boot."""
        for gpu, slot, lanes in links:
            if lanes > self.of(gpu, slot):
                self._lanes[gpu, slot] = lanes
        for surplus in tuple(self._lanes)[:-MOST_LINKS]:
            del self._lanes[surplus]
