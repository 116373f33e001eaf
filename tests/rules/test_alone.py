"""Alerts that no single simulated host can raise, on series written by hand, a sample a minute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
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


def driver(instance: str, version: str, *, job: str = "gpu-triage", minutes: int = 120) -> tuple[str, list[float]]:
    """A host's driver, for so many minutes."""
    labels = [("instance", instance), ("job", job), ("driver_version", version)]
    return selector("gpu_driver_info", labels), [1.0] * minutes + [math.nan] * (120 - minutes)


def mismatch(field: str, values: list[float], **labels: str) -> dict[str, list[float]]:
    """One field of a host's baseline over time."""
    pairs = [("field", field), ("instance", "a"), ("job", "gpu-triage"), *labels.items()]
    return {selector("gpu_baseline_mismatch", pairs): values}


def test_hosts_of_a_job_with_two_driver_versions_for_an_hour_drift(fires: Fires) -> None:
    series = dict([driver("a", "570.1"), driver("b", "570.1"), driver("c", "580.2")])
    assert not fires("GpuDriverVersionDrift", series, 59)
    assert fires("GpuDriverVersionDrift", series, 61)


def test_a_rollout_that_ends_within_the_hour_does_not_drift(fires: Fires) -> None:
    series = dict([driver("a", "580.2"), driver("b", "570.1", minutes=50), driver("b", "580.2")])
    assert not fires("GpuDriverVersionDrift", series, 110)


def test_hosts_of_different_jobs_may_have_different_drivers(fires: Fires) -> None:
    series = dict([driver("a", "570.1"), driver("b", "580.2", job="gpu-triage-lab")])
    assert not fires("GpuDriverVersionDrift", series, 110)


def counted(instance: str, values: list[float], source: str = "nvml", **target: str) -> dict[str, list[float]]:
    """GPUs of a host by who counts them."""
    pairs = [("instance", instance), ("job", "gpu-triage"), ("source", source), *target.items()]
    return {selector("gpu_devices", pairs): values}


def test_a_missing_gpu_is_told_though_another_target_got_a_label(fires: Fires) -> None:
    series = {
        **counted("a", [8.0] * 30 + [7.0] * 30),
        **counted("b", [4.0] * 20 + [math.nan] * 40),
        **counted("b", [math.nan] * 20 + [4.0] * 40, workload="serving"),
    }
    assert fires("GpuMissing", series, 50)


def test_a_host_whose_bus_is_empty_after_a_reboot_misses_its_gpus(fires: Fires) -> None:
    """Without a GPU no driver loads, and nobody counts."""
    bus = counted("a", [8.0] * 20 + [math.nan] * 3 + [0.0] * 37, "pci")
    driver_up = {selector("gpu_driver_up", [("instance", "a"), ("job", "gpu-triage")]): [1.0] * 20 + [0.0] * 40}
    history = {**counted("a", [8.0] * 20 + [math.nan] * 40), **bus, **driver_up}
    declared = {**counted("a", [8.0] * 60, "expected"), **bus, **driver_up}
    assert fires("GpuMissing", history, 40)
    assert fires("GpuMissing", declared, 40)
    assert not fires("GpuMissing", {**bus, **driver_up}, 40)


def test_a_driver_that_is_unavailable_counts_no_gpu_as_missing(fires: Fires) -> None:
    bus = counted("a", [8.0] * 60, "pci")
    assert not fires("GpuMissing", {**counted("a", [8.0] * 20 + [math.nan] * 40), **bus}, 40)


def test_a_gpu_that_was_taken_out_and_is_no_longer_expected_is_not_missing(fires: Fires) -> None:
    series = {
        **counted("a", [8.0] * 20 + [7.0] * 40),
        **counted("a", [8.0] * 20 + [7.0] * 40, "pci"),
        **counted("a", [8.0] * 20 + [7.0] * 40, "expected"),
    }
    assert not any(fires("GpuMissing", series, minute) for minute in (26, 50))


def test_a_host_that_only_got_a_label_misses_no_gpu(fires: Fires) -> None:
    before, after = [4.0] * 20 + [math.nan] * 40, [math.nan] * 20 + [4.0] * 40
    series = {**counted("b", before), **counted("b", after, workload="serving")}
    assert not any(fires("GpuMissing", series, minute) for minute in (22, 30, 50))


def test_a_field_that_differs_from_the_baseline_for_five_minutes_drifts(fires: Fires) -> None:
    series = {
        **mismatch("gpu_count", [0.0] * 5 + [1.0] * 15),
        **mismatch("vbios_version", [1.0] * 20, gpu="0", uuid="GPU-1"),
    }
    assert fires("GpuBaselineDrift", series, 12)


def test_a_field_that_differs_for_four_minutes_or_never_does_not_drift(fires: Fires) -> None:
    series = {**mismatch("gpu_count", [0.0] * 5 + [1.0] * 4 + [0.0] * 11), **mismatch("iommu", [0.0] * 20)}
    assert not any(fires("GpuBaselineDrift", series, minute) for minute in (9, 12, 19))


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
