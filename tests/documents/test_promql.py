"""The queries that documents show answer: they name series that exist, with labels that these have."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.gathered import every, for_each
from tests.promql.queries import faults
from tests.promql.vocabulary import series_labels
from tests.rules.rulefile import BMC, REPOSITORY, read_rules, rule_files

from gpu_triage.read.registry import METRICS

FOLDERS = ("*.md", "*/README.md", "docs/*.md", "exporter/gpu_triage/serve/handbook/**/*.md")
PAGES = tuple(page for folder in FOLDERS for page in REPOSITORY.glob(folder) if page.name != "CHANGELOG.md")
LABELS = series_labels(read_rules((*rule_files(), BMC)))
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
METRIC = re.compile(r"(?<![\w:])(?:(?:instance|name|cluster)\w*:)?gpu_[a-z0-9_]+(?::\w+)?")
NOT_METRICS = {
    *("gpu_not_found", "gpu_not_supported", "gpu_unsupported"),
    *("gpu_job_", "gpu_seconds", "gpu_triage", "gpu_triage_simulator"),
    *("gpu_bar", "gpu_bound_elsewhere", "gpu_init_failed", "gpu_lost_at_probe", "gpu_not_probed", "gpu_probe_failed"),
    *("gpu_not_started", "gpu_unpowered"),
}
"""Words in code that look like a metric: errors, kinds of kernel events, keys of JSON, the package."""
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


def test_metrics_named_in_prose_exist() -> None:
    code = {code for page in PAGES for code in CODE.findall(FENCE.sub("", page.read_text(encoding="utf-8")))}
    for name in every({name for each in code for name in METRIC.findall(each)} - NOT_METRICS):
        if name.endswith("_"):  # a family
            assert any(spec.name.startswith(name) for spec in METRICS), name
        else:
            LABELS(name)
