"""Alerts about links on series written by hand, a sample a minute: what depends on the second in a simulated host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.promtool import Run, ask, selector
from tests.rules.rulefile import read_rules, rule_files

Firing = Callable[[str, Mapping[str, Sequence[float]]], frozenset[int]]

MINUTES = 60


@pytest.fixture
def firing(requires_tool: RequiresTool, tmp_path: Path) -> Firing:
    """The minutes at which an alert fires, given these series."""
    promtool = requires_tool("promtool")
    groups = tuple(dict.fromkeys(rule.group for rule in read_rules(rule_files())))

    def minutes(alert: str, series: Mapping[str, Sequence[float]]) -> frozenset[int]:
        question = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
        questions = tuple((question, minute * 60.0) for minute in range(MINUTES))
        answers = ask(promtool, Run(rule_files(), groups, 60, series, questions), tmp_path)
        return frozenset(round(at / 60) for (_, at), samples in answers.samples.items() if samples)

    return minutes


def gpu(metric: str, values: Sequence[float], uuid: str = "GPU-1", **labels: str) -> dict[str, Sequence[float]]:
    """A series of one GPU."""
    pairs = [("gpu", "0"), ("instance", "a"), ("job", "gpu-triage"), ("uuid", uuid), *labels.items()]
    return {selector(metric, pairs): values}


def counter(a_minute: Sequence[float]) -> list[float]:
    """A counter that grows by so much in each minute."""
    return list(accumulate(a_minute, initial=0.0))[1:]


ERRORS = [
    ("GpuPcieReplaysRising", "gpu_pcie_replays_total", {}, 50.0),
    ("GpuPcieAerErrors", "gpu_pcie_aer_errors_total", {"device": "port", "severity": "correctable"}, 150.0),
    ("GpuNvlinkErrorsRising", "gpu_nvlink_errors_total", {"link": "3", "type": "crc"}, 150.0),
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
        **gpu("gpu_nvlink_up", [1.0] * 20 + [0.0] * 40, link="0"),
        **gpu("gpu_nvlink_up", [1.0] * MINUTES, uuid="GPU-2", link="0"),
        **gpu("gpu_mig_mode", [0.0] * 20 + [mig_mode] * 40),
    }
    assert (40 in firing("GpuNvlinkDown", series)) == told
