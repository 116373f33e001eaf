"""The queries that documents show answer: they name series that exist, with labels that these have."""

import re
from collections.abc import Callable, Iterable, Iterator
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
    """Code that selects or computes; what is cut short with dots, or only lists the labels of a metric, is no query."""
    for code in CODE.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if SERIES.search(code) and re.search(r"[{(]", code) and not re.search(r"\.\.\.|…|\*|\{[\w,]+\}$", code):
            yield code


def of_each(queries: Callable[[Path], Iterable[str]]) -> list[tuple[str, str]]:
    return [(str(page.relative_to(REPOSITORY)), query) for page in PAGES for query in queries(page)]


@for_each(("page", "query"), of_each(in_prose))
def test_code_in_prose_names_what_there_is(page: str, query: str) -> None:
    """It may name a counter without asking for its rate."""
    del page
    assert [*filter(lambda fault: "is a counter under nothing" not in fault, faults(query, LABELS))] == []


@for_each(("page", "query"), of_each(fenced))
def test_a_query_asks_for_what_there_is(page: str, query: str) -> None:
    del page
    assert list(faults(query, LABELS)) == []
