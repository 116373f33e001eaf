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
from tests.rules.handwritten import Firing, Told, gpu, host
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
        for labels, _ in found:
            # The name of a host holds that of its cluster.
            labels.pop("subject", "")
        twins = Counter((frozenset(labels.items()), value) for labels, value in found)
        assert [twin for twin, count in twins.items() if count != 2] == []


def test_a_fault_of_one_cluster_is_not_told_of_the_other(told: Told) -> None:
    facts = {"code": "power.cap", "severity": "info", "action": "fix_host"}
    series = {
        **gpu("gpu_finding", [2.0] * MINUTES, cluster="east", **facts),
        **gpu("gpu_finding", [1.0] * MINUTES, cluster="west", **facts),
        **gpu("gpu_info", [1.0] * MINUTES, cluster="east", pci_bus_id="0000:65:00.0", serial="1", name="X"),
        **gpu("gpu_info", [1.0] * MINUTES, cluster="west", pci_bus_id="0000:65:00.0", serial="1", name="X"),
    }
    (alert,) = told("GpuPowerCapped", series, 30)
    assert alert.labels["cluster"] == "east"
    assert alert.annotations["summary"].startswith("east/a GPU 0: ")
    assert alert.annotations["description"].startswith("GPU 0 of east/a (PCI 0000:65:00.0, serial 1): ")


def test_every_alert_about_a_host_carries_its_cluster() -> None:
    """Its inhibitions and its texts rely on it: an aggregation by fewer labels would lose it."""
    lost = [rule.name for rule in alerts(read_rules(rule_files())) if "by (job" in rule.expr or "on (job" in rule.expr]
    assert lost == []


def test_the_driver_versions_of_two_clusters_may_differ(firing: Firing) -> None:
    series = {
        **host("gpu_driver_info", [1.0] * 120, driver_version="570.1", cluster="east"),
        **host("gpu_driver_info", [1.0] * 120, driver_version="580.2", cluster="west"),
        **gpu("gpu_info", [1.0] * 120, cluster="east", name="X"),
        **gpu("gpu_info", [1.0] * 120, cluster="west", name="X"),
    }
    assert firing("GpuDriverVersionDrift", series, minutes=120) == frozenset()
