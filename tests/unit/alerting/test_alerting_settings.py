"""Settings of the rules: each does what it says, and what is wrong is told with what is right."""

import re
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gathered import every, for_each

from gpu_triage.alerting.build import built
from gpu_triage.alerting.files import rule_files
from gpu_triage.alerting.rule_source import Group, RuleSource
from gpu_triage.alerting.rules_command import rules_command
from gpu_triage.alerting.settings import DEFAULTS, Settings, default_settings, read_settings
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.errors import ConfigError

pytestmark = pytest.mark.slow

SOURCES = shipped_sources()
ALERTS = {alert.key: alert for source in SOURCES for alert in source.alerts}
OFF = {key for key, alert in ALERTS.items() if not alert.enabled}
WITH_THRESHOLD = next(alert for alert in ALERTS.values() if alert.thresholds)
WITH_WAIT = next(alert for alert in ALERTS.values() if alert.hold and alert.key != "GpuExporterDown")
THRESHOLD, LIMITS = next(iter(WITH_THRESHOLD.thresholds.items()))
Read = Callable[[str], Settings]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads settings from a file with this text."""

    def from_text(text: str) -> Settings:
        path = tmp_path / "rules.yaml"
        path.write_text(text, encoding="utf-8")
        return read_settings(str(path), ALERTS)

    return from_text


def rule_of(key: str, settings: Settings) -> dict[str, Any]:
    """The rule of an alert; empty if it is off."""
    groups = built(RuleSource("", "", (Group("g", "1m", (ALERTS[key],)),)), settings)
    return dict(groups[0].rules[0].fields) if groups else {}


def rules_of(settings: Settings) -> Mapping[str, dict[str, Any]]:
    """Every alert's rule by its key, without those that are off."""
    return {key: rule for key in ALERTS if (rule := rule_of(key, settings))}


def test_the_printed_configuration_is_the_default(read: Read) -> None:
    text = default_settings(SOURCES)
    assert rule_files(read(text)) == rule_files(DEFAULTS)
    printed = yaml.safe_load(text)
    assert set(printed["alerts"]) == set(ALERTS)
    for key, alert in ALERTS.items():
        values = {name: each.value for name, each in alert.thresholds.items()}
        assert printed["alerts"][key].get("thresholds", {}) == values


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "alerts:\n", "labels: {}\nalerts: {GpuLost: }\n"])
def test_nothing_set_is_the_default(text: str, read: Read) -> None:
    assert rule_files(read(text)) == rule_files(DEFAULTS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "alerts: {GpuLost: {enabled: false}, GpuPcieWidthDowntrained.warning: {enabled: false}}",
            ALERTS.keys() - OFF - {"GpuLost", "GpuPcieWidthDowntrained.warning"},
        ),
        ("alerts: {GpuMemoryNearFull: {enabled: true}}", ALERTS.keys() - OFF | {"GpuMemoryNearFull"}),
    ],
)
def test_an_alert_can_be_turned_off_and_on_alone(text: str, expected: set[str], read: Read) -> None:
    assert {"GpuMemoryNearFull", "GpuPersistenceModeOff"} == OFF
    assert rules_of(read(text)).keys() == expected


def test_an_alert_takes_severity_wait_labels_and_annotations(read: Read) -> None:
    text = (
        f"{{labels: {{team: ml, tier: '1'}}, annotations: {{wiki: x}}, alerts: {{{WITH_WAIT.key}: {{for: 0s}}, "
        "GpuExporterDown: {for: 1h30m, severity: info, labels: {team: hosts}}}}"
    )
    rules = rules_of(read(text))
    down, missing = rules["GpuExporterDown"], rules[WITH_WAIT.key]
    assert (down["for"], "for" in missing) == ("1h30m", False)
    assert down["labels"] == {"severity": "info", "action": "fix_host", "team": "hosts", "tier": "1"}
    assert missing["labels"].items() >= {"team": "ml", "tier": "1"}.items()
    assert {rule["annotations"]["wiki"] for rule in rules.values()} == {"x"}


@for_each(("key", "name"), [(alert.key, name) for alert in ALERTS.values() for name in alert.thresholds])
def test_a_threshold_at_either_end_of_its_range_stands_in_the_expression(key: str, name: str, read: Read) -> None:
    limits = ALERTS[key].thresholds[name]
    for value in every({limits.low, limits.high} - {limits.value}):
        chosen = read(f"alerts: {{{key}: {{thresholds: {{{name}: {value}}}}}}}")
        assert rule_of(key, chosen)["expr"] != rule_of(key, DEFAULTS)["expr"]


def test_targets_are_told_apart_by_the_labels_named(read: Read) -> None:
    text = "\n".join(rule_files(read("{cluster_label: region, replica_labels: [replica, zone]}")).values())
    assert "on (region, replica, zone, job, instance" in text
    assert "by (region, replica, zone, job, instance, workload, name)" in text
    assert not re.search(r"\(cluster\b(?!:)", text)
    assert "$labels.region" in text
    assert "$labels.cluster" not in text


def test_the_job_is_quoted_for_promql(read: Read) -> None:
    text = "\n".join(rule_files(read(r"""job: 'gpu\.(a|b)"x'""")).values())
    assert r'job=~"gpu\\.(a|b)\"x"' in text
    assert ".*gpu-triage.*" not in text


def test_runbooks_and_dashboards_are_linked_below_the_addresses_given(read: Read) -> None:
    rules = rules_of(read("{runbook_base_url: 'https://wiki/r/', grafana_base_url: 'https://g/'}"))
    for key, rule in every(rules.items()):
        links = rule["annotations"]
        assert links["runbook_url"] == f"https://wiki/r/{ALERTS[key].name}"
        assert links["dashboard_url"].startswith(f"https://g/d/{links['dashboard_uid']}?var-job=")
        assert ("var-instance=" in links["dashboard_url"]) != ALERTS[key].fleet
        assert "{{ with $labels.cluster }}&var-cluster={{ . | urlquery }}{{ end }}" in links["dashboard_url"]


def test_by_default_an_exporter_serves_the_runbook(read: Read) -> None:
    rules = rules_of(read("{runbook_base_url: 'https://{{ $labels.instance }}/gpu/runbooks', cluster_label: region}"))
    fleet = next(key for key, alert in ALERTS.items() if alert.fleet)
    assert rules["GpuLost"]["annotations"]["runbook_url"] == "https://{{ $labels.instance }}/gpu/runbooks/GpuLost"

    def elsewhere(key: str, matchers: str, labels: str, anywhere: str) -> str:
        url = f"https://{{{{ . | first | label `instance` }}}}/gpu/runbooks/{key}"
        return (
            f"{{{{ with printf `topk(1, gpu_exporter_build_info{{{matchers}}})` {labels} | query }}}}{url}"
            f"{{{{ else }}}}{{{{ with {anywhere} | query }}}}{url}{{{{ else }}}}gpu-triage explain {key}"
            "{{ end }}{{ end }}"
        )

    links = {key: rules[key]["annotations"]["runbook_url"] for key in (fleet, "GpuExporterDown")}
    assert links == {
        fleet: elsewhere(fleet, "region=%q,job=%q", "$labels.region $labels.job", "`topk(1, gpu_exporter_build_info)`"),
        "GpuExporterDown": elsewhere(
            "GpuExporterDown",
            "region=%q,job=%q,instance!=%q",
            "$labels.region $labels.job $labels.instance",
            "printf `topk(1, gpu_exporter_build_info{instance!=%q})` $labels.instance",
        ),
    }
    assert "dashboard_url" not in rules["GpuLost"]["annotations"]


def test_without_an_address_every_alert_has_the_command_that_prints_its_runbook(read: Read) -> None:
    command = "kubectl exec ds/x -- gpu-triage explain"
    for text, printer in (
        ("runbook_base_url: ''", "gpu-triage explain"),
        (f"{{runbook_base_url: '', runbook_command: {command}}}", command),
    ):
        for key, rule in every(rules_of(read(text)).items()):
            assert rule["annotations"]["runbook_url"] == f"{printer} {ALERTS[key].name}"


WRONG = {
    "jobs": ["jobs: x"],
    "alerts.GpuLots": ["\nalerts: {GpuLots: {}}"],
    "alerts.GpuLost.severity": ["alerts: {GpuLost: {severity: page}}"],
    "alerts.GpuHwThermalThrottling.for": ["alerts: {GpuHwThermalThrottling: {for: 15m}}"],
    "alerts.GpuHwThermalThrottling.thresholds": ["alerts: {GpuHwThermalThrottling: {thresholds: {share: 0.2}}}"],
    "alerts.GpuExporterDown.thresholds.a": ["alerts: {GpuExporterDown: {thresholds: {a: 1}}}"],
    "alerts.GpuExporterDown.for": [
        f"alerts: {{GpuExporterDown: {{for: {hold}}}}}" for hold in ("15", "8d", "", "[1m]")
    ],
    "labels.severity": ["labels: {severity: x}"],
    "labels.code": ["labels: {code: x}"],
    "labels.region": ["{cluster_label: region, labels: {region: x}}"],
    "alerts.GpuLost.labels.instance": ["alerts: {GpuLost: {labels: {instance: x}}}"],
    "annotations.summary": ["annotations: {summary: x}"],
    "labels.a-b": ["labels: {a-b: x}"],
    "labels.a": ["labels: {a: '{{ $value }}'}", "labels: {a: '${share}'}"],
    "routing_labels[1]": ["routing_labels: [zone, gpu]"],
    "routing_labels[0]": ["{cluster_label: region, routing_labels: [region]}"],
    "cluster_label": ["cluster_label: 1a"],
    "replica_labels": ["replica_labels: replica"],
    "replica_labels[0]": ["replica_labels: [a b]"],
    "job": ["job: ''", "job: '('", "job: '(?!x)'", "job: '${target}'"],
    "grafana_base_url": ["grafana_base_url: grafana"],
    "runbook_base_url": ["runbook_base_url: 'http://{{ $value }}'"],
    f"alerts.{WITH_THRESHOLD.key}.thresholds.{THRESHOLD}": [
        f"alerts: {{{WITH_THRESHOLD.key}: {{thresholds: {{{THRESHOLD}: '{value}'}}}}}}"
        for value in (LIMITS.low - 1, LIMITS.high * 2 + 1, "nan", "10%")
    ],
}
"""The key that is wrong, and what is wrong about it."""


@for_each(("key", "text"), [(key, text) for key, texts in WRONG.items() for text in texts])
def test_a_wrong_setting_is_named(key: str, text: str, read: Read) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    (problem,) = refused.value.problems
    assert re.search(rf"rules\.yaml: line \d+: {re.escape(key)}: ", problem)


def test_what_the_exporter_judges_leads_to_its_option(read: Read) -> None:
    with pytest.raises(ConfigError, match=r"judge\.thermal\.hw"):
        read("alerts: {GpuHwThermalThrottling: {for: 15m}}")


def test_labels_that_route_alerts_stay_on_those_about_gpus(read: Read) -> None:
    text = "\n".join(rule_files(read("routing_labels: [zone, rack]")).values())
    assert "max by (cluster, job, instance, drill, workload, zone, rack, uuid, code)" in text


VALUES = st.recursive(
    st.text() | st.none() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["GpuLost", "for", "labels"]), inner),
    max_leaves=8,
)


@settings(deadline=None, max_examples=25)
@given(st.dictionaries(st.sampled_from(["job", "labels", "alerts", "x", "cluster_label"]), VALUES))
def test_any_document_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    with suppress(ConfigError):
        assert rule_files(read_settings(str(path), ALERTS))


def test_the_settings_that_documents_and_help_show_can_be_used(read: Read, repository: Path) -> None:
    text = (repository / "rules/README.md").read_text(encoding="utf-8")
    shown = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    examples = re.findall(r"\x08\n(.*?)\n\n", rules_command.help or "", re.DOTALL)
    shown.append(yaml.safe_load(textwrap.dedent(examples[-1])))
    assert len(shown) == 2
    for each in shown:
        assert rule_files(read(yaml.safe_dump(each))) != rule_files(DEFAULTS)
