"""What the card, the slot above it and the system can do on PCIe, and so what the link should do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpu_triage.hardware.pci_bus import PcieLink, link_of, port_above
from gpu_triage.hardware.pcie import on_pcie, plausible_generation, plausible_width
from gpu_triage.hardware.rounds import GpuRound

_NO_LINK = PcieLink(None, None, None, None)


@dataclass(frozen=True, slots=True)
class PcieLimitsReading:
    """Most generation and lanes of each party; None where not reported.

    Attributes:
        device_generation: the card.
        device_width: the card.
        slot_generation: the upstream port.
        slot_width: the upstream port.
        system_generation: card and system together, as the driver sees them.
        system_width: likewise.
    """

    device_generation: int | None
    device_width: int | None
    slot_generation: int | None
    slot_width: int | None
    system_generation: int | None
    system_width: int | None

    @property
    def expected_generation(self) -> int | None:
        """The generation all parties can do; None when none is known."""
        return _least((self.device_generation, self.slot_generation, self.system_generation))

    @property
    def expected_width(self) -> int | None:
        """The lanes all parties can use; None when none is known."""
        return _least((self.device_width, self.slot_width, self.system_width))


def read_pcie_limits(gpu: GpuRound) -> PcieLimitsReading:
    """Limits (nvmlDeviceGetMaxPcieLink*, …GpuMaxPcieLinkGeneration, sysfs max_link_* of card and port)."""
    inquiry = gpu.inquiry
    if not on_pcie(inquiry):
        return PcieLimitsReading(None, None, None, None, None, None)
    sysfs, bus_id = gpu.machine.sysfs, inquiry.device.pci_bus_id
    card = link_of(sysfs, bus_id) if bus_id else _NO_LINK
    port = port_above(sysfs, bus_id) if bus_id else None
    slot = link_of(sysfs, port) if port else _NO_LINK
    card_generation = plausible_generation(inquiry, inquiry.ask("nvmlDeviceGetGpuMaxPcieLinkGeneration"))
    return PcieLimitsReading(
        device_generation=card.max_generation if card_generation is None else card_generation,
        device_width=card.max_width,
        slot_generation=slot.max_generation,
        slot_width=slot.max_width,
        system_generation=plausible_generation(inquiry, inquiry.ask("nvmlDeviceGetMaxPcieLinkGeneration")),
        system_width=plausible_width(inquiry, inquiry.ask("nvmlDeviceGetMaxPcieLinkWidth")),
    )


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)
