"""Alerts about links on series written by hand, a sample a minute: what depends on the second in a simulated host."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from tests.rules.handwritten import MINUTES, Firing, counter, gpu
from tests.rules.promtool import selector

ERRORS = [
    ("GpuPcieReplaysRising", "gpu_pcie_replays_total", {}, 50.0),
    ("GpuPcieAerErrors", "gpu_pcie_aer_errors_total", {"device": "port", "severity": "correctable"}, 150.0),
    ("GpuNvlinkErrorsRising", "gpu_nvlink_errors_total", {"type": "crc"}, 150.0),
]


@pytest.mark.parametrize(("alert", "metric", "labels", "errors"), ERRORS, ids=[alert for alert, *_ in ERRORS])
def test_errors_that_come_again_rise_and_a_burst_of_some_minutes_does_not(
    firing: Firing, alert: str, metric: str, labels: dict[str, str], errors: float
) -> None:
    burst = [errors if 20 <= minute < 26 else 0.0 for minute in range(MINUTES)]
    again = [errors if minute % 12 == 0 else 0.0 for minute in range(MINUTES)]
    assert firing(alert, gpu(metric, counter(burst), **labels)) == frozenset()
    assert 50 in firing(alert, gpu(metric, counter(again), **labels))


def in_step_with_the_scrapes(idle_share: float, attribute: str) -> dict[str, Sequence[float]]:
    """A GPU that rests in every minute, but never when it is looked at, and whose link changes twice a minute."""
    return {
        **gpu("gpu_performance_state", [0.0] * MINUTES),
        **gpu("gpu_busy_seconds_total", counter([60 * (1 - idle_share)] * MINUTES)),
        **gpu("gpu_throttle_seconds_total", counter([60 * idle_share] * MINUTES), reason="idle"),
        **gpu("gpu_pcie_link_transitions_total", counter([2.0] * MINUTES), attribute=attribute),
    }


def test_a_generation_that_follows_a_load_in_step_with_the_scrapes_does_not_flap(firing: Firing) -> None:
    assert firing("GpuPcieLinkFlapping", in_step_with_the_scrapes(0.5, "generation")) == frozenset()


@pytest.mark.parametrize(("idle_share", "attribute"), [(0.5, "width"), (0.02, "generation")])
def test_a_link_that_changes_for_no_rest_flaps(firing: Firing, idle_share: float, attribute: str) -> None:
    assert 50 in firing("GpuPcieLinkFlapping", in_step_with_the_scrapes(idle_share, attribute))


def test_a_link_that_changed_often_for_some_minutes_does_not_flap(firing: Firing) -> None:
    changes = [6.0 if 20 <= minute < 26 else 0.0 for minute in range(MINUTES)]
    series = {
        **in_step_with_the_scrapes(0.0, "generation"),
        **gpu("gpu_pcie_link_transitions_total", counter(changes), attribute="width"),
        **gpu("gpu_pcie_link_transitions_total", [0.0] * MINUTES, attribute="generation"),
    }
    assert firing("GpuPcieLinkFlapping", series) == frozenset()


@pytest.mark.parametrize(("mig_mode", "told"), [(0.0, True), (1.0, False)])
def test_links_of_a_gpu_split_by_mig_are_not_down(firing: Firing, mig_mode: float, *, told: bool) -> None:
    series = {
        **gpu("gpu_nvlink_up", [math.nan] * 20 + [0.0] * 40, link="0"),
        **gpu("gpu_nvlink_links_up", [1.0] * 20 + [0.0] * 40),
        **gpu("gpu_nvlink_links_up", [1.0] * MINUTES, uuid="GPU-2"),
        **gpu("gpu_mig_mode", [0.0] * 20 + [mig_mode] * 40),
    }
    assert (40 in firing("GpuNvlinkDown", series)) == told


def links_down(fabric: float | None, *, gpus: int = 2) -> dict[str, Sequence[float]]:
    """GPUs whose links have been down since the host booted, and how far they have joined the fabric."""
    series: dict[str, Sequence[float]] = {}
    for number in range(gpus):
        uuid, index = f"GPU-{number}", str(number)
        for link in ("0", "1"):
            series |= gpu("gpu_nvlink_up", [0.0] * MINUTES, uuid, gpu=index, link=link)
        series |= gpu("gpu_nvlink_links", [2.0] * MINUTES, uuid, gpu=index)
        series |= gpu("gpu_nvlink_links_up", [0.0] * MINUTES, uuid, gpu=index)
        if fabric is not None:
            series |= gpu("gpu_fabric_state", [fabric] * MINUTES, uuid, gpu=index)
    return series


@pytest.mark.parametrize(
    ("series", "told"),
    [
        pytest.param(links_down(3), True, id="the fabric is completed"),
        pytest.param(links_down(None), True, id="the fabric is not reported"),
        pytest.param(links_down(2), False, id="the fabric is not completed"),
        pytest.param(links_down(3, gpus=1), False, id="there is no other GPU"),
    ],
)
def test_links_that_were_never_up_are_down_unless_they_wait_for_the_fabric(
    firing: Firing, series: dict[str, Sequence[float]], *, told: bool
) -> None:
    assert (40 in firing("GpuNvlinkDown", series)) == told


MODELS = {"GPU-1": "H100", "GPU-2": "H100", "GPU-3": "H100", "GPU-4": "L4"}
PAIRS = [("GPU-1", "GPU-2"), ("GPU-1", "GPU-3"), ("GPU-2", "GPU-3"), ("GPU-3", "GPU-4")]
ONE, TWO, THREE, FOUR = MODELS


def pairs_of_gpus(
    refused: dict[tuple[str, str], str], *, levels: dict[tuple[str, str], str] | None = None
) -> dict[str, Sequence[float]]:
    """Four GPUs, the last of another model: which ordered pairs may not read each other, and how near each pair is."""
    series: dict[str, Sequence[float]] = {}
    for uuid, model in MODELS.items():
        series |= gpu("gpu_info", [1.0] * MINUTES, uuid, name=model)
    for pair in PAIRS:
        level = (levels or {}).get(pair, "node")
        for uuid, peer in (pair, pair[::-1]):
            status = refused.get((uuid, peer), "ok")
            told = {"capability": "read", "status": status, "level": level}
            series |= gpu("gpu_p2p_peers", [1.0] * MINUTES, uuid, **told)
            if status not in {"ok", "unknown"}:
                series |= gpu("gpu_p2p_status", [1.0] * MINUTES, uuid, **told, peer_uuid=peer, peer_gpu="0")
    return series


def expected(value: float) -> dict[str, Sequence[float]]:
    """What somebody declared of the host's peer access."""
    return {selector("gpu_p2p_expected", [("instance", "a"), ("job", "gpu-triage")]): [value] * MINUTES}


BOTH_WAYS = {(ONE, TWO): "chipset_not_supported", (TWO, ONE): "chipset_not_supported"}
ALL = {(a, b): "gpu_not_supported" for one, two in PAIRS for a, b in ((one, two), (two, one))}
FORBIDDEN = dict.fromkeys(ALL, "disabled_by_regkey")


def linked() -> dict[str, Sequence[float]]:
    """The GPUs of one model have NVLink."""
    series: dict[str, Sequence[float]] = {}
    for uuid in (ONE, TWO, THREE):
        series |= gpu("gpu_nvlink_links", [2.0] * MINUTES, uuid)
    return series


@pytest.mark.parametrize(
    ("series", "told"),
    [
        pytest.param(pairs_of_gpus({}), False, id="all pairs have it"),
        pytest.param(pairs_of_gpus(BOTH_WAYS), True, id="a pair lacks what another one has"),
        pytest.param(pairs_of_gpus({(TWO, ONE): "disabled_by_regkey"}), True, id="one way"),
        pytest.param(pairs_of_gpus(BOTH_WAYS) | expected(0), False, id="it is declared that there is none"),
        pytest.param(pairs_of_gpus(BOTH_WAYS, levels={(ONE, TWO): "sys"}), False, id="the others are nearer"),
        pytest.param(pairs_of_gpus({(THREE, FOUR): "not_supported"}), False, id="the peer is of another model"),
        pytest.param(pairs_of_gpus({(ONE, TWO): "unknown"}), False, id="the driver does not know"),
        pytest.param(pairs_of_gpus(ALL), False, id="no pair has it"),
        pytest.param(pairs_of_gpus(FORBIDDEN), False, id="it is disabled on a machine without NVLink"),
        pytest.param(pairs_of_gpus(FORBIDDEN) | linked(), True, id="it is disabled on a machine with NVLink"),
        pytest.param(pairs_of_gpus(FORBIDDEN) | linked() | expected(0), False, id="it is disabled, as declared"),
        pytest.param(pairs_of_gpus(ALL) | expected(1), True, id="no pair has it and it is declared"),
        pytest.param(
            pairs_of_gpus(BOTH_WAYS) | gpu("gpu_mig_mode", [1.0] * MINUTES, ONE), False, id="the GPU is split by MIG"
        ),
    ],
)
def test_peers_that_may_not_reach_each_other_are_told_of_where_others_may(
    firing: Firing, series: dict[str, Sequence[float]], *, told: bool
) -> None:
    assert (40 in firing("GpuP2pUnavailable", series)) == told


@pytest.mark.parametrize(("heat_seen", "told"), [(0.0, True), (1.0, False)])
def test_slowdown_whose_cause_was_seen_with_it_is_attributed(firing: Firing, heat_seen: float, *, told: bool) -> None:
    series = {
        **gpu("gpu_throttle_seconds_total", counter([15.0] * MINUTES), reason="hw_slowdown"),
        **gpu("gpu_throttle_seconds_total", counter([6.0] * MINUTES), reason="hw_thermal"),
        **gpu("gpu_throttle_active", [heat_seen, 0.0, 0.0] * 20, reason="hw_thermal"),
    }
    assert (50 in firing("GpuHwSlowdownUnattributed", series)) == told
