"""Inhibitions lead from cause to symptom and never back, and never reach across hosts of the same name."""

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.generate.alertmanager import INHIBITIONS
from tests.gathered import every
from tests.rules.rulefile import Rule, alerts, read_rules, rule_files

MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
FLEET = ["cluster", "job"]
GPU_PAGES = ["GpuXidCritical", "GpuLost", "GpuRowRemapFailed", "GpuRecoveryActionNeeded", "GpuEccUncorrected"]


def _inhibitions(repository: Path) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = yaml.safe_load((repository / INHIBITIONS).read_bytes())["inhibit_rules"]
    return rules


def _matches(rule: Rule, matchers: list[str]) -> bool:
    """Whether an alert of this rule may match; a label that the rule does not set may have any value."""
    held = {**rule.labels, "alertname": rule.name}
    for matcher in matchers:
        found = MATCHER.fullmatch(matcher)
        assert found, matcher
        label, operator, value = found.groups()
        if label in held:
            same = bool(re.fullmatch(value, held[label])) if "~" in operator else held[label] == value
            if same is operator.startswith("!"):
                return False
    return True


def _symptoms(repository: Path) -> dict[str, set[str]]:
    pages = [rule for rule in alerts(read_rules(rule_files())) if rule.labels["severity"] == "critical"]
    found: dict[str, set[str]] = {page.name: set() for page in pages}
    for each in _inhibitions(repository):
        for cause in pages:
            if _matches(cause, each["source_matchers"]):
                found[cause.name] |= {page.name for page in pages if _matches(page, each["target_matchers"])}
    return found


def test_no_page_holds_back_a_page_that_holds_it_back(repository: Path) -> None:
    """Else both of two alerts that fire together stay quiet, or neither knows which is told."""
    try:
        TopologicalSorter(_symptoms(repository)).prepare()
    except CycleError as error:
        pytest.fail(f"inhibitions in a circle: {error.args[1]}")


def test_of_several_pages_about_one_gpu_the_first_of_the_order_is_sent(repository: Path) -> None:
    symptoms = _symptoms(repository)
    for place, page in enumerate(GPU_PAGES):
        assert set(GPU_PAGES[place + 1 :]) <= symptoms[page], page
        assert not set(GPU_PAGES[: place + 1]) & symptoms[page], page


def test_every_inhibition_stays_within_a_cluster_and_a_job(repository: Path) -> None:
    for each in every(_inhibitions(repository)):
        assert each["equal"][:2] == FLEET, each
        across = {"GpuFleetHwThermalThrottling", "GpuDriverVersionDrift"}
        if not any(name in matcher for name in across for matcher in each["source_matchers"]):
            assert "instance" in each["equal"], each


def test_no_inhibition_takes_two_alerts_for_equal_because_both_lack_a_label(repository: Path) -> None:
    """As Alertmanager does: two GPUs without a UUID would be one. A fleet may be a single cluster without a name."""
    for each in every(_inhibitions(repository)):
        needed = {label for label in each["equal"] if label != "cluster"}
        assert needed <= {matcher.removesuffix('!=""') for matcher in each["source_matchers"]}, each


def test_a_narrow_link_mutes_nothing_about_the_host(repository: Path) -> None:
    for each in every(_inhibitions(repository)):
        if any("GpuPcie" in matcher for matcher in each["source_matchers"]):
            assert "uuid" in each["equal"], each
            assert not any("Starved" in matcher for matcher in each["target_matchers"]), each


def test_every_alert_that_an_inhibition_names_exists(repository: Path) -> None:
    known = {rule.name for rule in alerts(read_rules(rule_files()))}
    for each in every(_inhibitions(repository)):
        for matcher in (*each["source_matchers"], *each["target_matchers"]):
            if matcher.startswith("alertname") and "+" not in matcher:
                assert set(re.findall(r"\w+", matcher.split('"')[1])) <= known, matcher
