"""PCIe above the slot: one finding names the switch and everything behind it."""

from pathlib import Path

import pytest
from tests.judged import HOST, judged
from tests.rig import only, three_with

from gpu_triage.judge.findings.finding import State
from gpu_triage_simulator import Scenario

pytestmark = pytest.mark.slow

COARSE = only(
    "activity",
    "pcie",
    "pcie_limits",
    "pcie_throughput",
    "pcie_uplinks",
    "processes",
    "topology",
    "identity",
    sample_fast_seconds=10.0,
    sample_medium_seconds=10.0,
)


def play(tmp_path: Path, width: int, generation: int, *more: str) -> Scenario:
    """An H100 host on which the uplink of the first GPU's switch trains down."""
    effect = f'kind = "uplink", bridge = "0000:16:00.0", width = {width}, generation = {generation}'
    return three_with(tmp_path, "h100-8", f"at = 60\neffect = {{ {effect} }}", *more)


@pytest.mark.parametrize(("width", "generation", "ratio"), [(8, 5, 0.5), (16, 3, 0.25)])
def test_a_narrow_uplink_is_one_finding(tmp_path: Path, width: int, generation: int, ratio: float) -> None:
    with judged(play(tmp_path, width, generation), COARSE) as seen:
        seen.run_to(50)
        assert (HOST, "pcie.uplink") not in seen.findings()
        seen.run_to(200)
        assert seen.findings()[HOST, "pcie.uplink"] is State.PENDING
        (finding,) = (each for each in seen.report.findings if each.check.code == "pcie.uplink")
        assert finding.value == pytest.approx(ratio)
        assert finding.measured == (
            f"switch 0000:16:00.0 below port 0000:15:01.0: x{width} PCIe {generation} of x16 PCIe 5; "
            "behind it: GPU 0, network 0000:1a:00.0"
        )
        # Its own link is as it should be, and it computes.
        assert seen.classes()["0"] == "compute"


def test_a_low_generation_counts_while_a_gpu_behind_it_works(tmp_path: Path) -> None:
    rest = 'at = 30\ngpu = 0\neffect = { kind = "load", utilization = 0.0 }'
    with judged(play(tmp_path, 16, 1, rest), COARSE) as seen:
        seen.run_to(200)
        assert (HOST, "pcie.uplink") not in seen.findings()


def test_a_narrow_uplink_that_its_gpu_fills_is_its_bottleneck(tmp_path: Path) -> None:
    load = (
        'at = 60\ngpu = 0\neffect = { kind = "load", utilization = 0.9, pcie_receive_bytes_per_second = 7.0e9, '
        "pcie_transmit_bytes_per_second = 1.0e9 }"
    )
    with judged(play(tmp_path, 8, 3, load), COARSE) as seen:
        seen.run_to(200)
        assert seen.classes()["0"] == "pcie_link"
        because = seen.report.gpus[0].bottleneck.because
        assert because.startswith("uplink of switch 0000:16:00.0 short of bandwidth: GPU 0 receive")
