"""Two clusters whose hosts have the same names: no rule fails, and nobody is blamed for the other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.dashboards.fleet import RECORDED
from tests.parts import some
from tests.rules.cases import load_any
from tests.rules.examine import prepare
from tests.rules.handwritten import Firing, Series, Told, gpu, host
from tests.rules.promtool import Run, ask
from tests.rules.rulefile import alerts, read_rules, rule_files

MINUTES = 40


def in_cluster(series: str, cluster: str) -> str:
    """The series as scraped in a cluster."""
    return f'{series.removesuffix("}")},cluster="{cluster}"}}'


@pytest.mark.parametrize("name", some(["dual-a10", "path-peers", "held-back"], {"path-peers"}))
def test_no_rule_fails_and_both_clusters_have_the_same_alerts_and_recorded_series(
    name: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    run = prepare(load_any(name), rule_files(), step_seconds=60, seconds=MINUTES * 60.0)
    both = {in_cluster(key, cluster): values for key, values in run.series.items() for cluster in ("east", "west")}
    firing = ('ALERTS{alertstate="firing", cluster!=""}', MINUTES * 60.0)
    recorded = (RECORDED, MINUTES * 60.0)
    # It raises when any rule fails at any minute.
    answers = ask(requires_tool("promtool"), Run(run.rules, run.groups, 60, both, (firing, recorded)), tmp_path)
    for question in (firing, recorded):
        found = [(dict(sample.labels), f"{sample.value:.9g}") for sample in answers.samples[question]]
        assert {labels.pop("cluster", "") for labels, _ in found} == {"east", "west"}
        twins = Counter((frozenset(labels.items()), value) for labels, value in found)
        assert [twin for twin, count in twins.items() if count != 2] == []


def test_a_fault_of_one_cluster_is_not_told_of_the_other(told: Told) -> None:
    series: dict[str, list[float]] = {}
    for cluster, limit in (("east", 300.0), ("west", 700.0)):
        watts = [290.0 if cluster == "east" else 600.0] * MINUTES
        series |= _capped(cluster, limit, watts)
    (alert,) = told("GpuPowerCapped", _longer(series), 100)
    assert alert.labels["cluster"] == "east"
    assert "east/a GPU 0" in alert.annotations["summary"]
    assert "power limit of 300 W" in alert.annotations["description"]


def _capped(cluster: str, limit: float, watts: list[float]) -> dict[str, list[float]]:
    seconds = [60.0 * minute if cluster == "east" else 0.0 for minute in range(MINUTES)]
    parts: tuple[Series, ...] = (
        gpu("gpu_throttle_seconds_total", seconds, reason="sw_power_cap", cluster=cluster),
        gpu("gpu_power_watts", watts, cluster=cluster),
        gpu("gpu_power_limit_watts", [limit] * MINUTES, cluster=cluster),
        gpu("gpu_power_default_limit_watts", [700.0] * MINUTES, cluster=cluster),
    )
    return {key: list(values) for part in parts for key, values in part.items()}


def _longer(series: dict[str, list[float]]) -> dict[str, list[float]]:
    """The same for two hours."""
    return {
        key: values + [values[-1] + (values[-1] - values[-2]) * (step + 1) for step in range(120 - MINUTES)]
        for key, values in series.items()
    }


def test_every_alert_about_a_host_carries_its_cluster() -> None:
    """Its inhibitions and its texts rely on it: an aggregation by fewer labels would lose it."""
    lost = [rule.name for rule in alerts(read_rules(rule_files())) if "by (job" in rule.expr or "on (job" in rule.expr]
    assert lost == []


def test_the_driver_versions_of_two_clusters_may_differ(firing: Firing) -> None:
    series = {
        **host("gpu_driver_info", [1.0] * 120, driver_version="570.1", cluster="east"),
        **host("gpu_driver_info", [1.0] * 120, driver_version="580.2", cluster="west"),
    }
    assert firing("GpuDriverVersionDrift", series, minutes=120) == frozenset()
