"""A link that never had all lanes: a ticket, unless all of its model and board in the fleet have as many. By hand."""

import math
from collections.abc import Mapping
from typing import Final

import pytest
from tests.conftest import RequiresTool
from tests.rules.handwritten import Played, Series, gpu, merged, over, play
from tests.rules.rulefile import alert_files

ALERT: Final = "GpuPcieWidthFromBoot"
END: Final = 40
NAN: Final = math.nan


def hosts(
    model: str, *lanes: int, board: str = "900-1", scraped: tuple[tuple[float, int], ...] = ((1, END),)
) -> Series:
    """Hosts with a GPU each; the first has the finding."""
    values = over(*scraped)
    parts = [
        merged(
            gpu("gpu_pcie_link_width", [width * value for value in values], f"{model}-{host}", instance=str(host)),
            gpu("gpu_info", values, f"{model}-{host}", instance=str(host), name=model, board_part_number=board),
        )
        for host, width in enumerate(lanes)
    ]
    facts = {"instance": "0", "code": "pcie.width_from_boot"}
    found = gpu("gpu_finding", [2 * value for value in values], f"{model}-0", severity="warning", **facts)
    value = gpu("gpu_finding_value", [lanes[0] * value for value in values], f"{model}-0", **facts)
    return merged(*parts, found, value)


CASES: Final[Mapping[str, Series]] = {
    "alone": hosts("A", 8),
    "one of two": hosts("B", 8, 8),
    "one of three alike": hosts("C", 8, 8, 8),
    "another has more": hosts("D", 8, 8, 8, 16),
    "another board has more": merged(
        hosts("E", 8, 8, 8),
        gpu("gpu_pcie_link_width", over((16, END)), "E-9", instance="9"),
        gpu("gpu_info", over((1, END)), "E-9", instance="9", name="E", board_part_number="900-2"),
    ),
    "four lanes are too few for any board": hosts("F", 4, 4, 4),
    "three alike that could not be scraped": hosts("G", 8, 8, 8, scraped=((1, 10), (NAN, 14), (1, 16))),
}
FIRES: Final = {"alone", "one of two", "another has more", "four lanes are too few for any board"}


@pytest.fixture(scope="module")
def played(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    directory = tmp_path_factory.mktemp("links")
    return play(requires_tool("promtool"), directory, alert_files(), CASES, minutes=END, shown={ALERT: 20})


@pytest.mark.parametrize("case", CASES)
def test_a_link_is_compared_with_those_of_its_model_and_board(played: Mapping[str, Played], case: str) -> None:
    minutes = [minute for minute in played[case].minutes(ALERT) if minute >= 2]
    assert bool(minutes) is (case in FIRES)
