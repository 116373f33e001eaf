"""Line rates of NVLink by what the links lead to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gpu_rounds import rounds_of
from tests.rig import pair, pair_with

from gpu_triage.read.gpu.nvlink import NvlinkReader
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

LINK_DOWN = 'at = 0\ngpu = 0\neffect = { kind = "nvlink_down", links = [3] }'


def test_line_rates_are_summed_over_the_links_to_each_far_end(tmp_path: Path) -> None:
    # "Link 0: 26.562 GB/s" of nvidia-smi nvlink -s on an H100: 18 links, dealt to four switches.
    with rounds_of(pair_with(tmp_path, "h100-8", LINK_DOWN)) as rounds:
        round_ = rounds.at(5)
        bandwidth = NvlinkReader().read(round_).bandwidth
        assert [bandwidth[f"0000:c{switch}:00.0"] / 26.562e9 for switch in (3, 4, 5, 6)] == pytest.approx([5, 5, 4, 3])
        assert round_.inquiry.failures == []


def test_a_driver_without_the_speed_of_each_link_tells_the_common_one() -> None:
    # Driver 470 on V100 without switches: six links, two to each of the three others.
    with rounds_of(load_scenario("v100-old-driver")) as rounds:
        bandwidth = NvlinkReader().read(rounds.at(5)).bandwidth
        others = ("0000:1c:00.0", "0000:88:00.0", "0000:8a:00.0")
        assert bandwidth == pytest.approx(dict.fromkeys(others, 2 * 25.781e9))


def test_an_unnamed_far_end_and_no_speed_stay_apart(tmp_path: Path) -> None:
    name = "nvmlDeviceGetNvLinkRemotePciInfo_v2"
    refusal = f'at = 0\neffect = {{ kind = "error", function = "{name}", code = "NOT_SUPPORTED" }}'
    with rounds_of(pair_with(tmp_path, "h100-8", refusal)) as rounds:
        assert NvlinkReader().read(rounds.at(5)).bandwidth == pytest.approx({"": 18 * 26.562e9})
    with rounds_of(pair("h100-8")) as rounds:
        round_ = rounds.at(5)
        round_.inquiry.device.unsupported.update(("field", (164, link)) for link in range(18))
        round_.inquiry.device.unsupported.add(("field", 90))
        reading = NvlinkReader().read(round_)
        assert reading.bandwidth == {}
        assert len(reading.links) == 18
