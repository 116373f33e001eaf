"""What the documents ask of Prometheus can be asked: their PromQL is sound."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.gathered import for_each
from tests.rules.queries import faults
from tests.rules.rulefile import REPOSITORY, read_rules, rule_files
from tests.rules.vocabulary import series_labels

RULES = read_rules(rule_files())
PAGES = tuple(
    page
    for page in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("*/README.md"), *(REPOSITORY / "docs").glob("*.md"))
    if page.name != "CHANGELOG.md"
)
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
SERIES = re.compile(r"(?<![\w/.-])(\w+:)?gpu_\w+")


@pytest.fixture(scope="module")
def labels() -> Callable[[str], frozenset[str]]:
    """Labels of every series of ours."""
    return series_labels(RULES)


def _queries(page: Path) -> Iterator[str]:
    """Fenced PromQL, and code in prose that selects or computes; what is cut short with dots is none."""
    text = page.read_text(encoding="utf-8")
    for language, body in FENCE.findall(text):
        if language == "promql":
            yield from (query.strip() for query in body.split("\n\n"))
    for code in CODE.findall(FENCE.sub("", text)):
        if SERIES.search(code) and re.search(r"[{(]", code) and not re.search(r"\.\.\.|…|\*", code):
            yield code


@for_each("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_document_asks_for_what_there_is(page: Path, labels: Callable[[str], frozenset[str]]) -> None:
    """A selector in prose names a counter without asking for its rate."""
    told = [(query, fault) for query in _queries(page) for fault in faults(query, labels)]
    assert [(query, fault) for query, fault in told if "is a counter under nothing" not in fault] == []
