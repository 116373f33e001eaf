"""What can be said of the rules without running them."""

import re
import subprocess
from pathlib import Path

from tests.conftest import RequiresTool
from tests.gathered import every, for_each
from tests.promql.expressions import labels_of, uses, windows_matched_as_one
from tests.promql.queries import faults
from tests.promql.vocabulary import ACTIONS, OF_OTHER_TARGETS, series_labels
from tests.rules.rulefile import BMC, Rule, alerts, read_rules, rule_files

from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.judge.findings.table import BY_CODE, CHECKS

RULES = read_rules((*rule_files(), BMC))
RECORDED = frozenset(rule.name for rule in RULES if not rule.alert)
LABELS = series_labels(RULES)

DCGM = rule_files()[0].parent / "compat" / "dcgm.yml"
FOR_TEXTS = tuple(rule for rule in read_rules([DCGM]) if rule.name.endswith(":affected"))
"""Off by default: where they are loaded, a text says more."""
TEXT_LABELS = series_labels((*RULES, *FOR_TEXTS))

RECORDED_NAME = re.compile(r"[a-z][a-z0-9_]*:gpu_[a-z0-9_]+:[a-z0-9_]+")
CONFIRMED = re.compile(r"instance_gpu_code:gpu_finding(_value)?:confirmed")
CODE = re.compile(r'code=~?"([^"]+)"')
LABEL = re.compile(r"\$labels\.(\w+)")
ONSET = re.compile(r"\{\{range printf `[^`]*ALERTS_FOR_STATE.*?\| query\}\}")
"""The same question for every alert, about all labels that one may have."""
QUERIED = re.compile(r"\| query(?P<sorted> \| sortByLabel)?[^}]*\}\}")
LISTS = re.compile(r"range \$i, \$\w+ := ")
DAY = re.compile(r"\[[0-9]*1d[:\]]|1d$")


def named(rule: Rule) -> str:
    labels = (rule.labels.get(label) for label in ("class", "severity", "action"))
    return "-".join(filter(None, [rule.name, *labels]))


every_alert = for_each("rule", alerts(RULES), ids=named)


@for_each("rule", RULES, ids=named)
def test_an_expression_is_sound(rule: Rule) -> None:
    """It talks of series, labels and words that exist, a target that gets a label stops it for nobody else, and a join
    carries what identifies the target, for two clusters may have hosts of one name."""
    assert faults(rule.expr, LABELS) == []
    assert windows_matched_as_one(rule.expr) == ()
    joins = re.findall(r"\b(?:on|by) \(([^)]*)\)", rule.expr)
    if any(metric in rule.expr for metric in OF_OTHER_TARGETS):
        joins = [labels for labels in joins if labels != "cluster, instance"]
    assert [labels for labels in joins if "instance" in labels and "cluster, job, instance" not in labels] == []


@every_alert
def test_annotations_talk_of_labels_that_the_alert_has(rule: Rule) -> None:
    # Of a GPU with a UUID, the number is looked up; only one without has an address.
    known = labels_of(rule.expr, LABELS) | frozenset(rule.labels) | {"gpu", "uuid", "pci_bus_id"}
    texts = {name: text for name, text in rule.annotations.items() if name != "runbook_url" or "instance" in known}
    texts = {name: ONSET.sub("", text) for name, text in texts.items()}
    used = {name for text in texts.values() for name in LABEL.findall(text)}
    assert used - known == set()


@every_alert
def test_a_list_in_a_text_is_sorted(rule: Rule) -> None:
    """Prometheus returns series in any order: the text of one alert would change from evaluation to evaluation."""
    for text in every(rule.annotations.values()):
        for found in LISTS.finditer(text):
            here = text.find("}}", found.end()) + 2
            query = QUERIED.search(text, found.end(), here) or [*QUERIED.finditer(text, 0, found.start())][-1]
            assert query["sorted"], text[query.start() - 200 : query.end()]


def test_an_alert_relays_findings_at_once_or_is_about_what_no_host_can_see() -> None:
    relays = [rule for rule in alerts(RULES) if CONFIRMED.search(rule.expr)]
    others = {alert.name for source in shipped_sources() for alert in source.alerts if not alert.codes}
    assert {rule.name for rule in alerts(RULES) if rule not in relays} == others
    compared = {rule.name for rule in relays if rule.hold or rule.keep or re.search(r"[<>]", rule.expr)}
    assert compared == {"GpuPcieWidthFromBoot"}, "it also compares the fleet, which no host can see"


def test_every_code_with_an_alert_is_relayed_with_its_severity_and_action() -> None:
    told = {
        (rule.name, code, rule.labels["severity"], rule.labels["action"])
        for rule in alerts(RULES)
        if CONFIRMED.search(rule.expr)
        for pattern in CODE.findall(rule.expr)
        for code in BY_CODE
        if re.fullmatch(pattern, code)
    }
    assert told == {
        (check.alert, check.code, check.severity.value, check.action.value)
        for check in CHECKS
        if check.alert and check.relayed
    }


FLEET_WIDE = frozenset(alert.name for source in shipped_sources() for alert in source.alerts if alert.fleet)
"""Alerts about no single host."""
ELSEWHERE = FLEET_WIDE | {"GpuExporterDown"}
"""Alerts whose runbook another exporter has to serve."""


@every_alert
def test_an_alert_says_what_to_do_and_whose_gpu_it_is(rule: Rule) -> None:
    """A label that held a value would make a new alert at every evaluation."""
    assert rule.labels["action"] in ACTIONS
    assert [text for text in rule.labels.values() if "{{" in text] == []
    if "uuid" in labels_of(rule.expr, LABELS):
        assert "instance_gpu_owner:gpu_alert:affected{" in rule.annotations["description"]


@every_alert
def test_a_text_asks_prometheus_for_what_was_recorded_once(rule: Rule) -> None:
    """Hundreds of alerts at once must stay cheap."""
    recorded = RECORDED.union(rule.name for rule in FOR_TEXTS)
    assert [fault for query in rule.queries() for fault in faults(query, TEXT_LABELS)] == []
    asked = {use.metric for query in rule.queries() for use in uses(query)}
    few = rule.name in FLEET_WIDE
    asked -= {"gpu_exporter_build_info", "instance:gpu_maintenance:planned"} if rule.name in ELSEWHERE else set()
    # One series of Prometheus' own, and the errors of one collector.
    asked -= {
        "ALERTS_FOR_STATE",
        *({"gpu_exporter_errors_total"} if "collector" in rule.annotations["summary"] else ()),
    }
    assert asked <= {name for name in recorded if few or name.endswith((":affected", ":confirmed"))}


def test_recorded_names_say_level_metric_and_operations() -> None:
    assert (
        sorted({rule.name for rule in every(RULES) if not rule.alert and not RECORDED_NAME.fullmatch(rule.name)}) == []
    )


def test_windows_of_a_day_are_evaluated_every_five_minutes_or_less_often() -> None:
    daily = [rule for rule in RULES if not rule.alert and (DAY.search(rule.expr) or DAY.search(rule.name))]
    assert daily
    assert sorted({rule.group for rule in daily if rule.interval not in {"5m", "10m", "15m"}}) == []


def test_promtool_finds_nothing_to_object_to(requires_tool: RequiresTool) -> None:
    tool = requires_tool("promtool")
    command: list[str | Path] = [tool, "check", "rules", "--lint=all", "--lint-fatal", *rule_files(), BMC, DCGM]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
