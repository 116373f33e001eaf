"""What Alertmanager holds back beside what: only symptoms of one host, GPU or cluster, and never in a circle."""

import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

import pytest
import yaml
from tests.gathered import every
from tests.promql.expressions import labels_of
from tests.promql.vocabulary import series_labels
from tests.rules.rulefile import BMC, Rule, alerts, read_rules, rule_files, with_those_that_are_off

from gpu_triage.alerting.files import inhibitions

MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
LABELS = series_labels(read_rules((*rule_files(), BMC)))
ALERTS = alerts(with_those_that_are_off())
INHIBITIONS: Final[list[dict[str, Any]]] = yaml.safe_load(inhibitions())["inhibit_rules"]
GPU_PAGES = ["GpuXidCritical", "GpuLost", "GpuRowRemapFailed", "GpuRecoveryActionNeeded", "GpuEccUncorrected"]


def _selected(matchers: list[str]) -> list[Rule]:
    """The alerts that these matchers may select, by name and fixed labels."""
    parsed = [match.groups() for matcher in matchers if (match := MATCHER.fullmatch(matcher))]
    assert len(parsed) == len(matchers), matchers
    return [rule for rule in ALERTS if all(_may_match(rule, *matcher) for matcher in parsed)]


def _may_match(rule: Rule, label: str, operator: str, value: str) -> bool:
    held = {"alertname": rule.name, **rule.labels}.get(label)
    if held is None:
        return label in labels_of(rule.expr, LABELS)
    same = bool(re.fullmatch(value, held)) if "~" in operator else held == value
    return same is not operator.startswith("!")


@cache
def _symptoms() -> dict[str, set[str]]:
    """Pages that may be held back, by the page beside which they are."""
    pages = {rule.name for rule in ALERTS if rule.labels["severity"] == "critical"}
    found: dict[str, set[str]] = {name: set() for name in pages}
    for each in INHIBITIONS:
        symptoms = {rule.name for rule in _selected(each["target_matchers"]) if rule.labels["severity"] == "critical"}
        for cause in _selected(each["source_matchers"]):
            if cause.labels["severity"] == "critical":
                found[cause.name] |= symptoms
    return found


def test_every_inhibition_has_a_cause_and_a_symptom_that_share_the_labels_it_compares() -> None:
    for inhibition in every(INHIBITIONS):
        causes, symptoms = _selected(inhibition["source_matchers"]), _selected(inhibition["target_matchers"])
        assert causes, inhibition
        assert symptoms, inhibition
        assert not {id(rule) for rule in causes} & {id(rule) for rule in symptoms}, inhibition
        for label in inhibition["equal"]:
            assert all(label in labels_of(rule.expr, LABELS) for rule in causes), (inhibition, label)
            assert any(label in labels_of(rule.expr, LABELS) for rule in symptoms), (inhibition, label)
        named = re.findall(r"\bGpu\w+", " ".join((*inhibition["source_matchers"], *inhibition["target_matchers"])))
        assert {name for name in named if not any(re.fullmatch(f"{name}.*", rule.name) for rule in ALERTS)} == set()


def test_no_page_holds_back_a_page_that_holds_it_back() -> None:
    """Else both of two alerts that fire together stay quiet, or neither knows which is told."""
    try:
        TopologicalSorter(_symptoms()).prepare()
    except CycleError as error:
        pytest.fail(f"inhibitions in a circle: {error.args[1]}")


def test_of_several_pages_about_one_gpu_the_first_of_the_order_is_sent() -> None:
    for place, page in enumerate(GPU_PAGES):
        assert set(GPU_PAGES[place + 1 :]) <= _symptoms()[page], page
        assert not set(GPU_PAGES[: place + 1]) & _symptoms()[page], page


def test_every_inhibition_stays_within_a_cluster_and_a_job_and_its_labels_are_there() -> None:
    """Alertmanager takes two alerts for equal that both lack a label: two GPUs without a UUID would be one."""
    for each in every(INHIBITIONS):
        assert each["equal"][:2] == ["cluster", "job"], each
        across = {"GpuFleetHwThermalThrottling", "GpuDriverVersionDrift"}
        if not any(name in matcher for name in across for matcher in each["source_matchers"]):
            assert "instance" in each["equal"], each
        # A fleet may be a single cluster without a name.
        needed = {label for label in each["equal"] if label != "cluster"}
        assert needed <= {matcher.removesuffix('!=""') for matcher in each["source_matchers"]}, each
        if any("GpuPcie" in matcher for matcher in each["source_matchers"]):
            assert "uuid" in each["equal"], "a narrow link mutes nothing about the host"
            assert not any("Starved" in matcher for matcher in each["target_matchers"]), each
