"""What the PCIe link can do and so should do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import present
from gpu_triage.config import Config
from gpu_triage.hardware.pcie_limits import PcieLimitsReading, read_pcie_limits
from gpu_triage.hardware.rounds import ExpectedLink, GpuRound

_NOT_RECORDED: Final = ExpectedLink(None, None)


@dataclass(frozen=True, slots=True)
class LinkExpectation:
    """The link's limits and what is expected of it.

    Attributes:
        limits: as read.
        generation: PCIe generation: the declared one, else the baseline's, else what the limits allow; None when
            none is known.
        width: lanes, likewise.
    """

    limits: PcieLimitsReading
    generation: int | None
    width: int | None


class ExpectedLinkReader:
    """Reads the limits; a declared or recorded expectation replaces the derived one on links that exist."""

    def __init__(self, config: Config) -> None:
        self._generation = config.expect_pcie_generation
        self._width = config.expect_pcie_width

    def read(self, gpu: GpuRound) -> LinkExpectation:
        """Limits and expectation of one GPU's link."""
        limits = read_pcie_limits(gpu)
        generation, width = limits.expected_generation, limits.expected_width
        recorded = gpu.recorded_link or _NOT_RECORDED
        return LinkExpectation(
            limits,
            generation=None if generation is None else self._generation or recorded.generation or generation,
            width=None if width is None else self._width or recorded.width or width,
        )


def render(reading: LinkExpectation, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's link limits."""
    limits = reading.limits
    yield from present(catalogue.PCIE_DEVICE_MAX_GENERATION, limits.device_generation, *gpu)
    yield from present(catalogue.PCIE_DEVICE_MAX_WIDTH, limits.device_width, *gpu)
    yield from present(catalogue.PCIE_SLOT_MAX_GENERATION, limits.slot_generation, *gpu)
    yield from present(catalogue.PCIE_SLOT_MAX_WIDTH, limits.slot_width, *gpu)
    yield from present(catalogue.PCIE_EXPECTED_GENERATION, reading.generation, *gpu)
    yield from present(catalogue.PCIE_EXPECTED_WIDTH, reading.width, *gpu)


PCIE_LIMITS = GpuCollector(
    name="pcie_limits",
    about="what card, slot and system can do on PCIe",
    tier=Tier.SLOW,
    metrics=(
        catalogue.PCIE_DEVICE_MAX_GENERATION,
        catalogue.PCIE_DEVICE_MAX_WIDTH,
        catalogue.PCIE_SLOT_MAX_GENERATION,
        catalogue.PCIE_SLOT_MAX_WIDTH,
        catalogue.PCIE_EXPECTED_GENERATION,
        catalogue.PCIE_EXPECTED_WIDTH,
    ),
    reader=lambda config: ExpectedLinkReader(config).read,
    render=render,
)
