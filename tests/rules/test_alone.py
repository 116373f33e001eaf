"""Alerts about what no host can see of itself, on series written by hand, a sample a minute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.handwritten import Firing, Series, Told, gpu, host
from tests.rules.promtool import Run, ask, selector
from tests.rules.rulefile import read_rules, rule_files

Fires = Callable[[str, Mapping[str, Sequence[float]], int], bool]


@pytest.fixture
def fires(requires_tool: RequiresTool, tmp_path: Path) -> Fires:
    """Whether an alert fires at a minute, given these series."""
    promtool = requires_tool("promtool")
    groups = tuple(dict.fromkeys(rule.group for rule in read_rules(rule_files())))

    def at_minute(alert: str, series: Mapping[str, Sequence[float]], minute: int) -> bool:
        question = (f'ALERTS{{alertname="{alert}", alertstate="firing"}}', minute * 60.0)
        answers = ask(promtool, Run(rule_files(), groups, 60, series, (question,)), tmp_path)
        return bool(answers.samples[question])

    return at_minute


def driver(instance: str, version: str, *, job: str = "gpu-triage", minutes: int = 120, model: str = "H100") -> Series:
    """A host's driver and model, for so many minutes."""
    values = [1.0] * minutes + [math.nan] * (120 - minutes)
    return {
        **host("gpu_driver_info", values, instance, job=job, driver_version=version),
        **gpu("gpu_info", values, f"GPU-{instance}", instance=instance, job=job, name=model),
    }


def merged(*parts: Series) -> Series:
    return {key: values for part in parts for key, values in part.items()}


def test_hosts_of_a_job_with_two_driver_versions_for_an_hour_drift(fires: Fires) -> None:
    series = merged(driver("a", "570.1"), driver("b", "570.1"), driver("c", "580.2"))
    assert not fires("GpuDriverVersionDrift", series, 59)
    assert fires("GpuDriverVersionDrift", series, 61)


def test_a_rollout_that_ends_within_the_hour_does_not_drift(fires: Fires) -> None:
    series = merged(driver("a", "580.2"), driver("b", "570.1", minutes=50), driver("b", "580.2"))
    assert not fires("GpuDriverVersionDrift", series, 110)


def test_hosts_of_different_jobs_may_have_different_drivers(fires: Fires) -> None:
    series = merged(driver("a", "570.1"), driver("b", "580.2", job="gpu-triage-lab"))
    assert not fires("GpuDriverVersionDrift", series, 110)


def test_hosts_with_different_models_may_have_different_drivers(fires: Fires) -> None:
    assert not fires("GpuDriverVersionDrift", merged(driver("a", "570.1"), driver("b", "580.2", model="V100")), 110)


def test_a_field_that_differs_from_the_baseline_is_told_by_name_while_the_finding_is_confirmed(
    firing: Firing, told: Told
) -> None:
    facts = {"code": "baseline.drift", "severity": "warning", "action": "fix_host"}
    series = {
        **gpu("gpu_finding", [1.0] * 5 + [2.0] * 15 + [0.0] * 10, **facts),
        **gpu("gpu_baseline_mismatch", [1.0] * 20 + [0.0] * 10, field="vbios_version"),
        **gpu("gpu_baseline_mismatch", [0.0] * 30, field="pcie_width"),
    }
    assert firing("GpuBaselineDrift", series, minutes=30) == frozenset(range(5, 20))
    (alert,) = told("GpuBaselineDrift", series, 12)
    assert alert.labels["field"] == "vbios_version"


def web_config(values: list[float]) -> dict[str, list[float]]:
    """Whether the web configuration of a host was taken, over time; NaN while nothing is scraped."""
    return {selector("gpu_exporter_web_config_reload_success", [("instance", "a"), ("job", "gpu-triage")]): values}


def test_a_web_configuration_that_cannot_be_used_for_five_minutes_is_told_of_until_it_is_mended(fires: Fires) -> None:
    series = web_config([1.0] * 10 + [0.0] * 10 + [1.0] * 10)
    assert not fires("GpuExporterWebConfigReloadFailed", series, 14)
    assert fires("GpuExporterWebConfigReloadFailed", series, 16)
    assert not fires("GpuExporterWebConfigReloadFailed", series, 21)


def test_certificate_and_key_renewed_minutes_apart_are_no_failure(fires: Fires) -> None:
    series = web_config([1.0] * 10 + [0.0] * 4 + [1.0] * 10)
    assert not any(fires("GpuExporterWebConfigReloadFailed", series, minute) for minute in (13, 15, 20))


def test_a_web_configuration_says_nothing_once_its_exporter_is_gone(fires: Fires) -> None:
    series = web_config([1.0] * 10 + [0.0] * 3 + [math.nan] * 20)
    assert not any(fires("GpuExporterWebConfigReloadFailed", series, minute) for minute in (16, 19, 25))


def published(seconds_ago: Callable[[int], float], minutes: int = 30) -> dict[str, list[float]]:
    """An exporter, and how long before each scrape of a minute it last published."""
    target = [("instance", "a"), ("job", "gpu-triage")]
    return {
        selector("gpu_exporter_time_seconds", target): [minute * 60.0 for minute in range(minutes)],
        selector("gpu_exporter_last_publication_timestamp_seconds", target): [
            minute * 60.0 - seconds_ago(minute) for minute in range(minutes)
        ],
    }


def test_the_time_since_a_scrape_makes_no_exporter_stale(requires_tool: RequiresTool, tmp_path: Path) -> None:
    (rule,) = [rule for rule in read_rules(rule_files()) if rule.name == "GpuExporterStale"]
    # A server evaluates its rules at any moment between two scrapes: here just before the next one.
    question = (rule.expr, 20 * 60.0 + 59)
    run = Run(rule_files(), (), 60, published(lambda _minute: 0.5), (question,))
    assert ask(requires_tool("promtool"), run, tmp_path).samples[question] == ()


def test_an_exporter_that_no_longer_publishes_is_stale_after_five_minutes_more(fires: Fires) -> None:
    series = published(lambda minute: max(0.5, (minute - 10) * 60.0))
    assert not fires("GpuExporterStale", series, 15)
    assert fires("GpuExporterStale", series, 18)


def test_a_collector_that_is_overdue_is_stale_after_five_minutes_more(fires: Fires) -> None:
    labels = [("collector", "power"), ("instance", "a"), ("job", "gpu-triage")]
    overdue = [math.nan] * 11 + [minute * 60.0 for minute in range(1, 20)]
    series = {selector("gpu_exporter_collector_stale_seconds", labels): overdue}
    assert not fires("GpuExporterStale", series, 15)
    assert fires("GpuExporterStale", series, 17)
