"""PCIe capabilities of card, slot and system, and the link speed and width expected from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.driver.kernel.pci_bus import PcieLink, link_of, port_above
from gpu_triage.options.config import Config
from gpu_triage.read.gpu.pcie import on_pcie, plausible_generation, plausible_width
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.metric import Tier, gpu_gauge
from gpu_triage.read.metrics.rendering import Each
from gpu_triage.read.metrics.rounds import ExpectedLink, GpuRound

_NO_LINK = PcieLink(None, None, None, None)

GPU_PCIE_LINK_DEVICE_MAX_GENERATION = gpu_gauge(
    "gpu_pcie_link_device_max_generation",
    "Highest PCIe generation the card can do.",
    source="nvmlDeviceGetGpuMaxPcieLinkGeneration, else sysfs max_link_speed",
)
GPU_PCIE_LINK_DEVICE_MAX_WIDTH = gpu_gauge(
    "gpu_pcie_link_device_max_width", "Most PCIe lanes the card can use.", source="sysfs max_link_width"
)
GPU_PCIE_LINK_SLOT_MAX_GENERATION = gpu_gauge(
    "gpu_pcie_link_slot_max_generation",
    "Highest PCIe generation of the port above the card; absent where there is none to see.",
    source="sysfs max_link_speed of the upstream port",
)
GPU_PCIE_LINK_SLOT_MAX_WIDTH = gpu_gauge(
    "gpu_pcie_link_slot_max_width",
    "Most PCIe lanes of the port above the card; absent where there is none to see.",
    source="sysfs max_link_width of the upstream port",
)
GPU_PCIE_LINK_EXPECTED_GENERATION = gpu_gauge(
    "gpu_pcie_link_expected_generation",
    "PCIe generation this link should reach under load: declared, else the baseline's, else the most that card, slot "
    "and driver can all do; absent if the last is unknown.",
    source="--expect.pcie-generation, else the baseline, else min(card, slot, nvmlDeviceGetMaxPcieLinkGeneration)",
)
GPU_PCIE_LINK_EXPECTED_WIDTH = gpu_gauge(
    "gpu_pcie_link_expected_width",
    "PCIe lanes this link should have: declared, else the baseline's, else the most that card, slot and driver can "
    "all use; absent if the last is unknown.",
    source="--expect.pcie-width, else the baseline, else min(card, slot, nvmlDeviceGetMaxPcieLinkWidth)",
)

GPU_PCIE_LINK_EXPECTED_WIDTH_DECLARED = gpu_gauge(
    "gpu_pcie_link_expected_width_declared",
    "1 if the expected width is declared or recorded: the link is then known to have had it. Absent if it is derived "
    "from card, slot and driver, which on some boards claim more lanes than the CPU gives.",
    source="--expect.pcie-width, the baseline",
)


@dataclass(frozen=True, slots=True)
class PcieLimitsReading:
    """Maximum generation and lanes of card, slot, and what the driver reports of both; None where not reported."""

    device_generation: Annotated[int | None, GPU_PCIE_LINK_DEVICE_MAX_GENERATION]
    device_width: Annotated[int | None, GPU_PCIE_LINK_DEVICE_MAX_WIDTH]
    slot_generation: Annotated[int | None, GPU_PCIE_LINK_SLOT_MAX_GENERATION]
    slot_width: Annotated[int | None, GPU_PCIE_LINK_SLOT_MAX_WIDTH]
    system_generation: int | None
    system_width: int | None

    @property
    def expected_generation(self) -> int | None:
        """Generation that all parties support; None if none is known."""
        return _least((self.device_generation, self.slot_generation, self.system_generation))

    @property
    def expected_width(self) -> int | None:
        """Number of lanes that all parties support; None if none is known."""
        return _least((self.device_width, self.slot_width, self.system_width))


def read_pcie_limits(gpu: GpuRound) -> PcieLimitsReading:
    """Read limits (nvmlDeviceGetMaxPcieLink*, …GpuMaxPcieLinkGeneration, sysfs max_link_* of card and port)."""
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


_NOT_RECORDED: Final = ExpectedLink(None, None)


@dataclass(frozen=True, slots=True)
class LinkExpectation:
    """The link's limits, and the generation and width expected of it."""

    limits: Annotated[PcieLimitsReading, Each()]
    generation: Annotated[int | None, GPU_PCIE_LINK_EXPECTED_GENERATION]
    width: Annotated[int | None, GPU_PCIE_LINK_EXPECTED_WIDTH]
    width_declared: Annotated[bool | None, GPU_PCIE_LINK_EXPECTED_WIDTH_DECLARED] = None


class ExpectedLinkReader:
    """Reads the limits; a declared or recorded expectation overrides the derived one, on links that exist."""

    def __init__(self, config: Config) -> None:
        self._generation = config.expect_pcie_generation
        self._width = config.expect_pcie_width

    def read(self, gpu: GpuRound) -> LinkExpectation:
        """Read limits and expectation of one GPU's link."""
        limits = read_pcie_limits(gpu)
        generation, width = limits.expected_generation, limits.expected_width
        recorded = gpu.recorded_link or _NOT_RECORDED
        return LinkExpectation(
            limits,
            generation=None if generation is None else self._generation or recorded.generation or generation,
            width=None if width is None else self._width or recorded.width or width,
            width_declared=True if width is not None and (self._width or recorded.width) else None,
        )


PCIE_LIMITS = GpuCollector(
    name="pcie_limits",
    about="what card, slot and system can do on PCIe",
    tier=Tier.SLOW,
    reader=lambda config: ExpectedLinkReader(config).read,
)
