"""The words that the rules' tests know are those that the exporter publishes."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.promql.vocabulary import ELSEWHERE, WORDS, words

from gpu_triage.read.registry import METRICS

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
