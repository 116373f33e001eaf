"""Builds Prometheus rules: fills in the source's placeholders, ``${name}``, with values of the settings."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, Union

from gpu_triage.alerting.macros import expanded, macros
from gpu_triage.alerting.rule_source import Alert, Group, RecordingRule, RuleSource
from gpu_triage.alerting.settings import Settings, duration_seconds, plain
from gpu_triage.errors import DocumentError


def filled_in(where: str, text: str, values: Mapping[str, str]) -> str:
    """Replace every placeholder. Raises DocumentError, about `where`, if one is malformed or has no value."""
    found = expanded(text, values)
    if "${" in found:
        what = f"{{{found.split('${')[1][:20]} has no value; known are {', '.join(sorted(values))}"
        raise DocumentError(f"{where}: ${what}")
    return found


Fields: TypeAlias = Mapping[str, Union[str, "Fields"]]
"""A rule as in YAML: strings and nested mappings by key, in order."""

_LABEL: Final = re.compile(r"\{\{ ?\$labels\.([a-zA-Z_][a-zA-Z0-9_]*) ?\}\}")
_OF_THE_EXPORTER: Final = r"{{ . | first | label `\1` }}"


class BuiltRule(NamedTuple):
    about: str
    fields: Fields


BuiltGroup = tuple[Group, tuple[BuiltRule, ...]]
"""A group of the source, and its rules as in YAML."""


def built(source: RuleSource, settings: Settings) -> tuple[BuiltGroup, ...]:
    """The rules of a file by group; without groups of which settings disable all rules."""
    groups = []
    for group in source.groups:
        changed = (settings.alerts.get(rule.key, rule) if isinstance(rule, Alert) else rule for rule in group.rules)
        rules = tuple(_rule(rule, settings) for rule in changed if isinstance(rule, RecordingRule) or rule.enabled)
        groups += [(group, rules)] if rules else []
    return tuple(groups)


def dashboard_link(rule: Alert) -> str:
    """URL path of the alert's Grafana dashboard; the value of the cluster's label is left to Prometheus."""
    return macros()["dashboard_of_fleet" if rule.fleet else "dashboard_of_host"].replace("${uid}", rule.dashboard)


def _rule(rule: RecordingRule | Alert, settings: Settings) -> BuiltRule:
    values = {name: getattr(settings, name) for name in ("target", "subject", "fleet", "cluster_label")}
    values |= {name: plain(getattr(settings, name)) for name in ("fleet_hosts", "fleet_share")}
    values["job"] = settings.job.replace("\\", "\\\\").replace('"', '\\"')
    if isinstance(rule, RecordingRule):
        fields: Fields = {"record": rule.name, "expr": filled_in(rule.name, rule.expr, values), "labels": rule.labels}
    else:
        values |= {"alertname": rule.name, **{name: plain(each.value) for name, each in rule.thresholds.items()}}
        fields = {
            "alert": rule.name,
            "expr": filled_in(f"{rule.key}: expr", rule.expr, values),
            "for": rule.hold if duration_seconds(rule.hold) else "",
            "keep_firing_for": rule.keep,
            "labels": {"severity": rule.severity, "action": rule.action, **settings.labels, **rule.labels},
            "annotations": {
                "summary": filled_in(f"{rule.key}: summary", rule.summary, values),
                "description": filled_in(f"{rule.key}: description", rule.description, values),
                **_links(rule, settings),
                **settings.annotations,
            },
        }
    return BuiltRule(rule.about, {key: value for key, value in fields.items() if value})


def _links(rule: Alert, settings: Settings) -> dict[str, str]:
    runbook, command = f"{settings.runbook_base_url}/{rule.name}", f"{settings.runbook_command} {rule.name}"
    values = {"cluster_label": settings.cluster_label, "command": command}
    if not settings.runbook_base_url:
        runbook = command
    elif (rule.fleet or rule.unreachable) and _LABEL.search(runbook):
        elsewhere = macros()["runbook_of_fleet" if rule.fleet else "runbook_of_host"]
        runbook = filled_in(rule.key, elsewhere, values | {"url": _LABEL.sub(_OF_THE_EXPORTER, runbook)})
    links = {"runbook_url": runbook, "dashboard_uid": rule.dashboard}
    if settings.grafana_base_url:
        links["dashboard_url"] = settings.grafana_base_url + filled_in(rule.key, dashboard_link(rule), values)
    return links
