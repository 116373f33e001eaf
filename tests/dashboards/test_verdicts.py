"""What the first screen says of each scenario is what the scenario expects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dashboards.steps import COUNTED, SEEN, STEPS, TUNE, Step, alerts_of
from tests.dashboards.fleet import expected_moments
from tests.dashboards.grafana import find, substitute, text_of
from tests.dashboards.store import Store
from tests.rules.rulefile import alerts, read_rules, rule_files
from tests.rules.verdict import wanted

from gpu_triage.simulator.scenario import Expectation

pytestmark = pytest.mark.timeout(600)  # the first test waits for the fleet to be recorded

DIAGNOSIS = "diagnosis.json"
SEVERITIES = {
    name: {rule.labels["severity"] for rule in alerts(read_rules(rule_files())) if rule.name == name}
    for name in {rule.name for rule in alerts(read_rules(rule_files()))}
}

MOMENTS = expected_moments()
every_moment = pytest.mark.parametrize(
    ("instance", "expectation"),
    [pytest.param(name, each, id=f"{name} at {each.at // 60}m") for name, each in MOMENTS],
)


def verdict(store: Store, step: Step, instance: str, seconds: float, gpu: str = ".*") -> float | None:
    """The number behind the step's tile; None where the tile says that there is no data."""
    expr = substitute(find(DIAGNOSIS, step.title).expr, store.end - store.start, instance=instance, gpu=gpu)
    found = store.at(expr, seconds)
    assert len(found) <= 1
    return next(iter(found[0].values.values())) if found else None


def counted_alerts(expectation: Expectation) -> Iterator[str]:
    """Names of expected alerts that make a step suspect."""
    for text in expectation.alerts:
        labels = wanted(text).labels
        if {labels["severity"]} & COUNTED if "severity" in labels else SEVERITIES[labels["alertname"]] & COUNTED:
            yield labels["alertname"]


@every_moment
def test_a_step_is_suspect_where_the_scenario_expects_one_of_its_classes_or_alerts(
    store: Store, instance: str, expectation: Expectation
) -> None:
    alerted = set(counted_alerts(expectation))
    classes = set(expectation.bottleneck.values())
    for step in STEPS:
        if classes & set(step.classes) or alerted & set(alerts_of(step)):
            assert (verdict(store, step, instance, expectation.at) or 0) > 0, step.title


@every_moment
def test_a_step_is_ok_or_not_judged_where_the_scenario_expects_nothing_of_it(
    store: Store, instance: str, expectation: Expectation
) -> None:
    if not expectation.quiet:
        return
    for step in STEPS:
        # Compute is no fault, and not every expectation names it.
        if step is not TUNE and not set(expectation.bottleneck.values()) & set(step.classes):
            assert verdict(store, step, instance, expectation.at) in {0, -1}, step.title


@every_moment
def test_the_timeline_names_the_expected_bottleneck_of_each_gpu(
    store: Store, instance: str, expectation: Expectation
) -> None:
    timeline = find(DIAGNOSIS, "Bottleneck of each GPU")
    expr = substitute(timeline.expr.partition("\nand on")[0], 0, instance=instance)
    shown = {
        series.labels["gpu"]: text_of(timeline.panel, value)
        for series in store.at(expr, expectation.at)
        for value in series.values.values()
    }
    assert {gpu: shown.get(gpu) for gpu in expectation.bottleneck} == expectation.bottleneck


@every_moment
def test_the_table_lists_the_expected_alerts_and_always_the_watchdog(
    store: Store, instance: str, expectation: Expectation
) -> None:
    table = find(DIAGNOSIS, "Firing alerts")
    found = store.at(substitute(table.expr, 0, instance=instance), expectation.at)
    listed = [series.labels for series in found]
    assert any(labels["alertname"] == "GpuTriageWatchdog" for labels in listed)
    for text in expectation.alerts:
        labels = {name: value for name, value in wanted(text).labels.items() if name in {"alertname", "gpu"}}
        assert any(labels.items() <= each.items() for each in listed), text


def test_a_host_without_a_driver_is_sick_and_its_gpus_are_not_judged(store: Store) -> None:
    said = {step.title: verdict(store, step, "no-driver", 60 * 60) for step in STEPS}
    assert said["1 Sick?"] == 1
    assert {said["2 Held back?"], said["3 Path broken?"], said["5 Software?"]} == {-1}


def test_an_exporter_that_is_silent_is_told_by_the_step_before_all_others(store: Store) -> None:
    assert verdict(store, SEEN, "exporter", 105 * 60) == 1


def test_without_rules_no_step_gives_a_verdict(store: Store) -> None:
    for step in STEPS:
        expr = substitute(find(DIAGNOSIS, step.title).expr, 0).replace("GpuTriageWatchdog", "NoSuchAlert")
        assert store.at(expr, 60 * 60) == []


def test_one_gpu_alone_is_judged_by_itself_and_by_its_hosts_alerts(store: Store) -> None:
    sick = next(step for step in STEPS if step.title == "1 Sick?")
    assert verdict(store, sick, "h100-8-bad-night", 55 * 60, gpu="6") == 1
    assert verdict(store, sick, "h100-8-bad-night", 55 * 60, gpu="0") == 0


def test_a_panel_shows_at_most_forty_gpus_and_the_worst_ones(store: Store) -> None:
    timeline = find(DIAGNOSIS, "Bottleneck of each GPU")
    expr = substitute(timeline.expr.replace("bottomk(40", "bottomk(3"), store.end - store.start)
    shown = {(series.labels["instance"], series.labels["gpu"]) for series in store.over_time(expr)}
    worst_rank = max(min(series.values.values()) for series in store.over_time(expr))
    assert len(shown) == 3
    assert worst_rank == 1
