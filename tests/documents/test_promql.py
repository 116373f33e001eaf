"""The queries that documents show answer: they name series that exist, with labels that these have."""

from __future__ import annotations

import re
from pathlib import Path

from tests.gathered import for_each
from tests.rules.queries import faults
from tests.rules.rulefile import read_rules, rule_files
from tests.rules.vocabulary import series_labels

QUERY = re.compile(r"^```promql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COOKBOOK = Path(__file__).parents[2] / "docs" / "promql.md"
QUERIES = QUERY.findall(COOKBOOK.read_text(encoding="utf-8"))
LABELS = series_labels(read_rules(rule_files()))


def test_the_cookbook_has_queries() -> None:
    assert len(QUERIES) > 30


@for_each("query", QUERIES)
def test_a_query_of_the_cookbook_answers(query: str) -> None:
    assert faults(query, LABELS) == []
