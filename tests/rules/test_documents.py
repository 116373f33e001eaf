"""What the documents ask of Prometheus can be asked: their PromQL is sound, and their federation hands on enough."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.dashboards.grafana import substitute, targets
from tests.rules.expressions import uses
from tests.rules.queries import faults
from tests.rules.rulefile import REPOSITORY, Rule, read_rules, rule_files
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
ABOVE_THE_SHARDS = "gpu-triage-capacity"
"""The group that operations.md has the Prometheus above the shards evaluate."""


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_document_asks_for_what_there_is(page: Path, labels: Callable[[str], frozenset[str]]) -> None:
    """A selector in prose names a counter without asking for its rate."""
    told = [(query, fault) for query in _queries(page) for fault in faults(query, labels)]
    assert [(query, fault) for query, fault in told if "is a counter under nothing" not in fault] == []


def _handed_on() -> Callable[[str], bool]:
    page = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^( +- job_name: gpu-triage-shards\n(?: +.*\n)+)", page, re.MULTILINE)
    (job,) = yaml.safe_load(block)
    patterns = [re.fullmatch(r'\{__name__=~"(.+)"\}', one) for one in job["params"]["match[]"]]
    assert job["metrics_path"] == "/federate"
    assert None not in patterns
    return lambda name: any(re.fullmatch(pattern[1], name) for pattern in patterns if pattern)


def _asked(rules: list[Rule]) -> set[str]:
    return {use.metric for rule in rules for use in uses(rule.expr)}


def test_federation_hands_on_what_is_evaluated_above_the_shards() -> None:
    above = [rule for rule in RULES if rule.group == ABOVE_THE_SHARDS or rule.name == "GpuDriverVersionDrift"]
    made = {rule.name for rule in above}
    handed_on = _handed_on()
    assert sorted(name for name in _asked(above) - made if not handed_on(name)) == []


def test_federation_hands_on_what_the_capacity_review_draws() -> None:
    made = {rule.name for rule in RULES if rule.group == ABOVE_THE_SHARDS}
    handed_on = _handed_on()
    asked = {use.metric for target in targets("capacity.json") for use in uses(substitute(target.expr, 3600))}
    assert len(asked) > 10
    assert sorted(name for name in asked - made if not handed_on(name)) == []
