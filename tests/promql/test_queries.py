"""A faulty query is found, by words that the exporter publishes; the sound ones are the rules and the dashboards."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.promql.expressions import windows_matched_as_one
from tests.promql.queries import faults
from tests.promql.vocabulary import ELSEWHERE, WORDS, series_labels, words
from tests.rules.rulefile import Rule

from gpu_triage.read.registry import METRICS

BUSY = Rule(
    group="g",
    interval="",
    name="instance_gpu:gpu_busy:ratio5m",
    alert=False,
    expr="sum by (instance, gpu) (rate(gpu_busy_seconds_total[5m]))",
    hold="",
    keep="",
    labels={},
    annotations={},
)
LABELS = series_labels((BUSY,))


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        ("gpu_ups", "nothing makes gpu_ups"),
        ("instance:gpu_busy:sum", "nothing makes instance:gpu_busy:sum"),
        ("gpu_up ==", "invalid promql query"),
        ("gpu_energy_joules_total > 5", "gpu_energy_joules_total is a counter under nothing"),
        ("sum(gpu_energy_joules_total)", "is a counter under sum"),
        ("delta(gpu_energy_joules_total[5m])", "is a counter under delta"),
        ("avg_over_time(gpu_energy_joules_total[5m])", "is a counter under avg_over_time"),
        ("rate(gpu_power_watts[5m])", "gpu_power_watts is a gauge under rate"),
        ("increase(instance_gpu:gpu_busy:ratio5m[1h])", "is a gauge under increase"),
        ("rate(gpu_power_watts[5m:15s])", "is a gauge under subquery"),
        ("last_over_time(gpu_energy_joules_total[5m]) > 5 or gpu_energy_joules_total", "is a counter under nothing"),
        ("topk(3, gpu_power_watts)", "is under topk"),
        ('gpu_throttle_active{reason="thermal"}', "gpu_throttle_active{reason} is never 'thermal'; it is one of"),
        ('gpu_throttle_active{reason=~"hw_thermal|hot"}', "is never 'hot'"),
        ('gpu_throttle_active{reason!="gpu_idle"}', "is never 'gpu_idle'"),
        ('gpu_ecc_volatile_errors_total{severity="correctable"}', "is never 'correctable'"),
        ('gpu_xid_last_timestamp_seconds{xid="Xid 79"}', "is never 'Xid 79'"),
        ('gpu_up{link="0"}', "gpu_up is selected by link"),
        ("sum by (xid) (gpu_up)", "sum groups by xid"),
        ("sum(sum by (xid) (gpu_up))", "groups by xid"),
        ("gpu_up and on (gpu) up", "the right side of and is matched on gpu"),
        ("gpu_up + ignoring (xid) gpu_power_watts", "+ ignores xid"),
        ("gpu_power_watts * on (gpu, instance) group_left (xid) gpu_info", "a group copies xid"),
        ("gpu_up / gpu_throttle_active", "/ never matches: its sides differ in reason"),
        ("gpu_up and up", "and never matches: its sides differ in"),
        ('label_replace(gpu_up, "a", "$1", "xid", "(.*)")', "label_replace reads xid"),
        ('{__name__=~"gpu_.*"}', "without a metric name"),
    ],
)
def test_a_faulty_query_is_told(expr: str, fault: str) -> None:
    assert any(fault in line for line in faults(expr, LABELS)), faults(expr, LABELS)


@pytest.mark.parametrize(
    ("expr", "metrics"),
    [
        ("rate(busy_total[5m]) / on (gpu) group_left () power", ()),
        ("3 * (power / on (gpu) group_left () (max without (name) (max_over_time(limit[6h])) > 1))", ("limit",)),
        ("max_over_time(limit[1h]) / on (gpu) group_right () power", ("limit",)),
        ("power / on (gpu) group_left () max by (gpu) (max_over_time(limit[6h]))", ()),
        ("power and on (gpu) max_over_time(limit[6h]) > 1", ()),
        ("max(power / on (gpu) group_left () avg_over_time(limit[1h:1m]))", ("limit",)),
    ],
)
def test_a_window_that_may_be_two_series_where_one_is_asked_for_is_found(expr: str, metrics: tuple[str, ...]) -> None:
    assert windows_matched_as_one(expr) == metrics


ENUMERATED = {
    (metric, label)
    for label, metrics in WORDS.items()
    for metric in metrics
    if metric not in ELSEWHERE and ":" not in metric
}


def test_every_word_on_a_golden_page_is_known(repository: Path) -> None:
    seen: set[tuple[str, str]] = set()
    unknown = set()
    for page in sorted((repository / "tests" / "golden").glob("*.prom")):
        for family in text_string_to_metric_families(page.read_text()):
            for sample in family.samples:
                for label, value in sample.labels.items():
                    known = words(sample.name, label)
                    if known is not None:
                        seen.add((sample.name, label))
                        if value not in known:
                            unknown.add((sample.name, label, value))
    assert unknown == set()
    assert len(seen) > len(ENUMERATED) / 2, sorted(ENUMERATED - seen)


def test_words_are_known_for_labels_that_exist() -> None:
    labels = {(spec.name, label) for spec in METRICS for label in spec.labels}
    assert sorted(ENUMERATED - labels) == []
