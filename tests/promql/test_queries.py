"""A faulty query is found, by words that the exporter publishes; the sound ones are the rules and the dashboards."""

from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.promql.expressions import windows_matched_as_one
from tests.promql.queries import faults
from tests.promql.vocabulary import ELSEWHERE, WORDS, series_labels, words
from tests.rules.rulefile import read_rules, rule_files

from gpu_triage.read.registry import METRICS

LABELS = series_labels(read_rules(rule_files()))
FAULTY = yaml.safe_load((Path(__file__).parent / "faulty.yml").read_bytes())


@pytest.mark.parametrize(("expr", "fault"), FAULTY.items())
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
