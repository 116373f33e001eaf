"""The queries that documents show answer: they name series that exist, with labels that these have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.gathered import for_each
from tests.promql.queries import faults
from tests.promql.vocabulary import series_labels
from tests.rules.rulefile import REPOSITORY, read_rules, rule_files

PAGES = tuple(
    page
    for page in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("*/README.md"), *(REPOSITORY / "docs").glob("*.md"))
    if page.name != "CHANGELOG.md"
)
LABELS = series_labels(read_rules(rule_files()))
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
SERIES = re.compile(r"(?<![\w/.-])(\w+:)?gpu_\w+")


def fenced(page: Path) -> list[str]:
    return [
        query.strip()
        for language, body in FENCE.findall(page.read_text(encoding="utf-8"))
        if language == "promql"
        for query in body.split("\n\n")
    ]


def in_prose(page: Path) -> Iterator[str]:
    """Code that selects or computes; what is cut short with dots is no query."""
    for code in CODE.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if SERIES.search(code) and re.search(r"[{(]", code) and not re.search(r"\.\.\.|…|\*", code):
            yield code


def test_the_cookbook_has_queries() -> None:
    assert len(fenced(REPOSITORY / "docs" / "promql.md")) > 30


@for_each("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_document_asks_for_what_there_is(page: Path) -> None:
    """A selector in prose names a counter without asking for its rate."""
    told = [(query, fault) for query in in_prose(page) for fault in faults(query, LABELS)]
    assert [(query, fault) for query, fault in told if "is a counter under nothing" not in fault] == []
    assert [(query, fault) for query in fenced(page) for fault in faults(query, LABELS)] == []
