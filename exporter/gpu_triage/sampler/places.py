"""Finds the GPUs that NVML does not name: of one that was lost before, it gives neither UUID nor PCI address."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gpu_triage.read.incidents.ledger import Board


@dataclass(frozen=True, slots=True)
class Places:
    """What is known of slots without NVML."""

    on_bus: frozenset[str] = frozenset()  # PCI addresses of the GPUs that the driver should show
    # boards that were seen in this boot, by PCI address; from the state directory
    boards: Mapping[str, Board] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, unnamed: Collection[int], named: Mapping[int, str]) -> Mapping[int, str]:
        """Return the PCI addresses of the `unnamed` NVML indices; empty if they are not certain.

        `named` has the addresses of the others. Those that are left belong to the unnamed ones if there are as many: on
        the bus, or else with boards that have left the bus. NVML numbers GPUs by address.
        """
        for known in (self.on_bus, self.on_bus | self.boards.keys()):
            left = sorted(known - set(named.values()))
            if len(left) == len(unnamed):
                found = dict(zip(sorted(unnamed), left, strict=True))
                addresses = [address for _, address in sorted({**named, **found}.items())]
                return found if len(found) == 1 or addresses == sorted(addresses) else {}
        return {}
