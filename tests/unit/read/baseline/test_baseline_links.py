"""What a baseline expects of links that have fewer lanes than card and slot claim."""

from __future__ import annotations

import pytest

from gpu_triage.read.baseline.host_facts import GpuReadings, host_facts
from gpu_triage.read.gpu.pcie import PCIE, PCIE_LIMITS, LinkExpectation, PcieLimitsReading, PcieReading


def gpu(number: int, lanes: int, claims: int) -> GpuReadings:
    limits = PcieLimitsReading(4, 16, 4, claims, 4, claims)
    readings = {
        PCIE_LIMITS.name: LinkExpectation(limits, 4, claims),
        PCIE.name: PcieReading(4, lanes, 0, 0, None, None, None),
    }
    return GpuReadings(f"GPU-{number}", f"0000:0{number}:00.0", readings.get)


@pytest.mark.parametrize(
    ("links", "recorded"),
    [
        pytest.param([(16, 16), (16, 16)], [(16, None), (16, None)], id="whole"),
        pytest.param([(8, 16), (8, 16)], [(16, 8), (16, 8)], id="a board that splits the lanes"),
        pytest.param([(8, 16)], [(16, 8)], id="a cloud instance"),
        pytest.param([(8, 16), (4, 4)], [(16, 8), (4, None)], id="beside a slot that claims less"),
        pytest.param([(8, 16), (16, 16)], [(16, None), (16, None)], id="a link that lost lanes is not excused"),
        pytest.param([(4, 16)], [(None, None)], id="too few to be built that way: neither excused nor expected"),
        pytest.param([(8, 16), (4, 16)], [(16, 8), (16, None)], id="the sibling has more"),
    ],
)
def test_the_lanes_that_a_board_gives_are_recorded(
    links: list[tuple[int, int]], recorded: list[tuple[int | None, int | None]]
) -> None:
    gpus = [gpu(number, *link) for number, link in enumerate(links)]
    facts = host_facts(0.0, len(gpus), None, lambda _name: None, gpus)
    found = [each.pcie for each in facts.gpus]
    assert [(link.width, link.trained_width) for link in found if link is not None] == recorded
