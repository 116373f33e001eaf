"""Links that change, rest, flap, recover or go down: over minutes, and for hours."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.evidence import Key, Readings, evidence_of, steady
from tests.fed import GPU, HOUR, MINUTE, Fed, Total, after, loaded
from tests.judged import HOST, judged
from tests.parts import some
from tests.rig import only, three_with

from gpu_triage.judge.conditions.host import judge_host
from gpu_triage.judge.findings.finding import State
from gpu_triage.read.gpu import nvlink, pcie
from gpu_triage.read.host import infiniband
from gpu_triage.read.host.infiniband import GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL, GPU_HOST_INFINIBAND_UP
from gpu_triage.read.metrics.metric import Sample
from gpu_triage_simulator import Scenario

Series = Callable[[float], Iterator[Sample]]
STEPS = some([15.0, 60.0], usual=[60.0])
"""Seconds between two judgments."""

pytestmark = pytest.mark.slow


def link(
    width: Callable[[float], int], generation: Callable[[float], int] = lambda _: 4, busy: float = 1.0, p_state: int = 0
) -> Series:
    """A GPU on a link that should have 16 lanes of generation 4, and the counts of its changes."""
    before: list[tuple[int, int]] = []
    changes = [0, 0]

    def samples(at: float) -> Iterator[Sample]:
        now = (width(at), generation(at))
        if before and before[-1] != now:
            changes[0] += before[-1][0] != now[0]
            changes[1] += before[-1][1] != now[1]
        before[:] = [now]
        yield from loaded(at, busy, p_state=p_state)
        yield pcie.GPU_PCIE_LINK_WIDTH.sample(now[0], *GPU)
        yield pcie.GPU_PCIE_LINK_GENERATION.sample(now[1], *GPU)
        yield pcie.GPU_PCIE_LINK_EXPECTED_WIDTH.sample(16, *GPU)
        yield pcie.GPU_PCIE_LINK_EXPECTED_GENERATION.sample(4, *GPU)
        yield pcie.GPU_PCIE_LINK_TRANSITIONS_TOTAL.sample(changes[0], *GPU, "width")
        yield pcie.GPU_PCIE_LINK_TRANSITIONS_TOTAL.sample(changes[1], *GPU, "generation")

    return samples


def test_a_link_that_lost_lanes_for_good_is_told_as_that() -> None:
    fed = after(HOUR, link(lambda at: 8 if at >= 600 else 16))
    assert fed.state("pcie.width") == "confirmed"
    assert fed.state("pcie.width_changes") == "absent"
    assert fed.finding("pcie.width").value == 8


@pytest.mark.parametrize("generation", [4, 1], ids=["loses lanes", "loses lanes and speed at once"])
@pytest.mark.parametrize(("apart_seconds", "flaps"), [(200.0, False), (150.0, True)])
def test_a_link_that_is_trained_again_counts_once_for_its_way_there_and_back(
    apart_seconds: float, generation: int, *, flaps: bool
) -> None:
    def lost(at: float) -> bool:
        return at % apart_seconds >= apart_seconds - 30.0

    fed = Fed(15.0)
    trained = link(lambda at: 8 if lost(at) else 16, lambda at: generation if lost(at) else 4)
    changes = fed.states("pcie.flapping", HOUR, trained)
    assert [state for _, state in changes][-1:] == (["confirmed"] if flaps else [])
    if flaps:
        assert fed.finding("pcie.flapping").value == pytest.approx(4, abs=0.6)


def test_errors_of_a_link_are_told_with_the_time_in_which_they_were_counted() -> None:
    def errors(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        yield pcie.GPU_PCIE_AER_ERRORS_TOTAL.sample(at, *GPU, "gpu", "correctable")
        yield pcie.GPU_PCIE_AER_ERRORS_TOTAL.sample(at >= 3000, *GPU, "port", "fatal")

    measured = after(HOUR, errors).finding("pcie.aer").measured
    assert re.fullmatch("[56][0-9]{2} correctable on the gpu in 10 min, 1 fatal on the port in 30 min", measured)


def test_a_low_generation_at_low_load_in_a_p_state_of_load_is_a_ticket_after_an_hour() -> None:
    fed = Fed(60.0)
    changes = fed.states("pcie.generation_low", 3 * HOUR, link(lambda _: 16, lambda _: 1, busy=0.12))
    assert [state for _, state in changes] == ["pending", "confirmed"]
    assert changes[-1][0] == pytest.approx(HOUR, abs=2 * MINUTE)
    assert fed.finding("pcie.generation_low").value == 1


@pytest.mark.parametrize(("busy", "p_state"), [(0.04, 0), (0.12, 5), (0.0, 8)])
def test_a_low_generation_of_a_gpu_that_rests_saves_power(busy: float, p_state: int) -> None:
    assert after(3 * HOUR, link(lambda _: 16, lambda _: 1, busy=busy, p_state=p_state), 60.0).codes() == set()


def nvlinks(down: Callable[[float], int]) -> Series:
    """A GPU with four NVLinks, of which so many are down."""

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        yield from (nvlink.GPU_NVLINK_UP.sample(number >= down(at), *GPU, str(number)) for number in range(4))

    return samples


@pytest.mark.parametrize(("downs", "state"), [(3, "absent"), (4, "confirmed")])
def test_a_port_flaps_that_loses_its_link_more_than_three_times_an_hour(downs: int, state: str) -> None:
    total = Total(lambda at: 1.0 if at % HOUR < downs * 300 and at % 300 == 150 and at < HOUR else 0.0)
    fed = after(HOUR, lambda at: [GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL.sample(7 + total.at(at), "mlx5_0", "1")], 60.0)
    assert fed.state("network.port_flapping") == state


def test_a_port_that_lost_its_link_once_is_named() -> None:
    rounds = ((at, [GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL.sample(7 + at, "mlx5_0", "1")]) for at in (0.0, 1.0))
    assert [*evidence_of(*rounds).network_losses()] == ["mlx5_0:1 went down"]


@pytest.mark.parametrize("step", STEPS)
def test_a_link_that_changes_again_and_again_is_one_warning_for_as_long_as_it_does(step: float) -> None:
    for code, series, within in (
        ("pcie.width_changes", link(lambda at: 8 if at % 360 >= 180 else 16), 7 * MINUTE),
        ("nvlink.flapping", nvlinks(lambda at: int(at % 600 >= 360)), 18 * MINUTE),
    ):
        fed = Fed(step)
        ((began, state),) = fed.states(code, 3 * HOUR, series)
        assert state == "confirmed"
        assert began <= within
        assert code != "pcie.width_changes" or fed.finding(code).value == pytest.approx(5, abs=1)


def test_a_port_that_was_up_and_is_down_is_found_and_one_without_a_cable_is_not() -> None:
    fed = Fed()

    def samples(at: float) -> Iterator[Sample]:
        yield GPU_HOST_INFINIBAND_UP.sample(at < 600, "mlx5_0", "1")
        yield GPU_HOST_INFINIBAND_UP.sample(0, "mlx5_1", "1")

    changes = fed.states("network.port_down", HOUR, samples)
    assert [state for _, state in changes] == ["pending", "confirmed"]
    assert changes[-1][0] == pytest.approx(900, abs=20)
    assert fed.finding("network.port_down").measured == "was up, and is down: mlx5_0:1"


PORT = ("mlx5_3", "1")
LINKED: Readings = {(infiniband.GPU_HOST_INFINIBAND_PHYSICAL_STATE, PORT): infiniband.PORT_LINK_UP}
SLOW: Key = (infiniband.GPU_HOST_INFINIBAND_RATE_EXPECTED_RATIO, PORT)
ALONE: Key = (infiniband.GPU_HOST_INFINIBAND_GID_MISSING, PORT)
UP: Key = (infiniband.GPU_HOST_INFINIBAND_UP, PORT)


@pytest.mark.parametrize(
    ("readings", "found"),
    [
        ({SLOW: 0.5}, {"network.port_slow": "mlx5_3:1 at 50% of the rate that it should have"}),
        ({SLOW: 1.0, ALONE: 0.0, UP: 0.0}, {}),
        ({ALONE: 1.0}, {"network.gid_missing": "without a RoCE v2 address: mlx5_3 port 1"}),
        ({**LINKED, UP: 0.0}, {"network.port_waiting": "link up and port not active: mlx5_3:1"}),
        ({**LINKED, UP: 1.0}, {}),
        (LINKED, {}),
    ],
)
def test_a_port_is_told_by_what_it_lacks(readings: Readings, found: dict[str, str]) -> None:
    assert {each.check.code: each.measured for each in judge_host(steady(readings))} == found


def recovering(recoveries: Callable[[float, int], int], *, replays: bool = False, rate: float = 0.0) -> Series:
    """A GPU whose 18 links had so many recoveries at a second; with replays, it is of an earlier generation.

    NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS (215): "Number of times link went from Up to recovery". On one rack of
    GB200 (github.com/marin-community/marin, issue 9086), of 320 GPUs with 18 links each one link had any: 505 so far,
    and 3 more in 21 minutes. It failed five days later.
    """

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at, 1.0)
        counts = [recoveries(at, link) for link in range(18)]
        yield nvlink.GPU_NVLINK_ERRORS_TOTAL.sample(sum(counts), *GPU, "recovery")
        if replays:
            yield nvlink.GPU_NVLINK_ERRORS_TOTAL.sample(0, *GPU, "replay")
        for link, count in enumerate(counts):
            yield nvlink.GPU_NVLINK_LINK_ERRORS_TOTAL.sample(count, *GPU, str(link), "recovery")
        yield nvlink.GPU_NVLINK_LINK_BIT_ERROR_RATIO.sample(rate, *GPU, "7", "effective")

    return samples


def one_link(at: float, link: int) -> int:
    return 505 + int(at // (7 * MINUTE)) if link == 14 else 0


def test_a_link_that_recovers_thrice_in_21_minutes_is_a_warning_and_named() -> None:
    fed = Fed()
    changes = fed.states("nvlink.recovering", HOUR, recovering(one_link))
    assert [state for _, state in changes] == ["pending", "confirmed"]
    assert changes[0][0] <= 15 * MINUTE
    found = fed.finding("nvlink.recovering")
    assert found.measured.startswith("link 14 recovered ")
    assert found.value is not None
    assert 6 <= found.value <= 9
    assert fed.codes() == {"nvlink.recovering"}


@pytest.mark.parametrize(
    ("series", "codes"),
    [
        # As when a switch's tray is restarted.
        pytest.param(recovering(lambda at, _: 3 + (at >= 600)), set(), id="each link once"),
        pytest.param(recovering(lambda _, link: 505 * (link == 14)), set(), id="long ago, and quiet now"),
        pytest.param(recovering(one_link, replays=True), set(), id="earlier generations are not about to fail"),
        # IsEffectiveBerThresholdExceeded of DCGM (DcgmUtilities.cpp): above 1e-12.
        pytest.param(recovering(lambda _at, _link: 0, rate=1e-12), set(), id="bit errors at DCGM's limit"),
        pytest.param(recovering(lambda _at, _link: 0, rate=2e-12), {"nvlink.bit_errors"}, id="and above it"),
    ],
)
def test_only_a_link_that_is_about_to_fail_is_a_warning(series: Series, codes: set[str]) -> None:
    assert after(HOUR, series).codes() == codes


QUIET = {
    "at rest": ("pcie.width_changes", 15.0, HOUR, link(lambda at: 8 if at % 360 >= 180 else 16, busy=0.0)),
    "trained again once": ("pcie.flapping", 5.0, 10 * MINUTE, link(lambda at: 8 if 60 <= at < 75 else 16)),
    "once, and all together": ("nvlink.flapping", 60.0, 2 * HOUR, nvlinks(lambda at: 4 * (600 <= at < 900))),
}


@pytest.mark.parametrize(("code", "step", "seconds", "series"), QUIET.values(), ids=QUIET)
def test_a_link_that_changes_at_rest_or_once_does_not_flap(
    code: str, step: float, seconds: float, series: Series
) -> None:
    assert Fed(step).states(code, seconds, series) == []


COARSE = only(
    *("activity", "identity", "processes", "topology", "pcie", "pcie_limits", "pcie_throughput", "pcie_uplinks"),
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
    moves = "utilization = 0.9, pcie_receive_bytes_per_second = 7.0e9, pcie_transmit_bytes_per_second = 1.0e9"
    load = f'at = 60\ngpu = 0\neffect = {{ kind = "load", {moves} }}'
    with judged(play(tmp_path, 8, 3, load), COARSE) as seen:
        seen.run_to(200)
        assert seen.classes()["0"] == "pcie_link"
        because = seen.report.gpus[0].bottleneck.because
        assert because.startswith("uplink of switch 0000:16:00.0 short of bandwidth: GPU 0 receive")
