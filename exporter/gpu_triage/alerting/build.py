"""Builds Prometheus rules: fills in the source's placeholders, ``${name}``, with values of the settings."""

import re
import textwrap
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, Union

from gpu_triage.alerting.gpu_hours import GPU_HOURS
from gpu_triage.alerting.macros import expanded, macros
from gpu_triage.alerting.rule_source import Alert, RecordingRule, RuleSource, SourceError
from gpu_triage.alerting.settings import AlertSettings, Settings, duration_seconds, plain

_COMMENT_WIDTH: Final = 118


def filled_in(where: str, text: str, values: Mapping[str, str]) -> str:
    """Replace every placeholder. Raises SourceError, about `where`, if one is malformed or has no value."""
    found = expanded(text, values)
    if "${" in found:
        raise SourceError(
            f"{where}: ${{{found.split('${')[1][:20]} has no value; known are {', '.join(sorted(values))}"
        )
    return found


Fields: TypeAlias = Mapping[str, Union[str, "Fields"]]
"""A rule as in YAML: strings and nested mappings by key, in order."""

_LABEL: Final = re.compile(r"\{\{ ?\$labels\.([a-zA-Z_][a-zA-Z0-9_]*) ?\}\}")
_OF_THE_EXPORTER: Final = r"{{ . | first | label `\1` }}"


class BuiltRule(NamedTuple):
    about: str
    fields: Fields


class BuiltGroup(NamedTuple):
    name: str
    interval: str
    about: str
    rules: tuple[BuiltRule, ...]


def built(source: RuleSource, settings: Settings) -> tuple[BuiltGroup, ...]:
    """The rules of a file by group; without groups of which settings disable all rules."""
    groups = []
    for group in source.groups:
        rules = tuple(found for rule in group.rules if (found := _rule(rule, settings)) is not None)
        groups += [BuiltGroup(group.name, group.interval, group.about, rules)] if rules else []
    return tuple(groups)


def dashboard_link(rule: Alert) -> str:
    """URL path of the alert's Grafana dashboard; the value of the cluster's label is left to Prometheus."""
    return macros()["dashboard_of_fleet" if rule.fleet else "dashboard_of_host"].replace("${uid}", rule.dashboard)


def _about(rule: RecordingRule) -> str:
    """The comment of a rule, with the definitions of words for GPU hours."""
    text = expanded(rule.about, {name.replace(" ", "_"): meaning for name, meaning in GPU_HOURS.items()})
    if text == rule.about:
        return text
    return "\n".join(line for part in text.splitlines() for line in textwrap.wrap(part, _COMMENT_WIDTH))


def _rule(rule: RecordingRule | Alert, settings: Settings) -> BuiltRule | None:
    values = {name: getattr(settings, name) for name in ("target", "subject", "fleet", "cluster_label")}
    values |= {name: plain(getattr(settings, name)) for name in ("fleet_hosts", "fleet_share")}
    values["job"] = settings.job.replace("\\", "\\\\").replace('"', '\\"')
    if isinstance(rule, RecordingRule):
        expr = filled_in(rule.name, rule.expr, values)
        return BuiltRule(
            _about(rule), {"record": rule.name, "expr": expr, **({"labels": rule.labels} if rule.labels else {})}
        )
    chosen = settings.alerts.get(rule.key, AlertSettings())
    hold = rule.hold if chosen.hold is None else chosen.hold
    numbers = {name: plain(chosen.thresholds.get(name, each.value)) for name, each in rule.thresholds.items()}
    values |= {"alertname": rule.name, **numbers}
    fields: Fields = {
        "alert": rule.name,
        "expr": filled_in(f"{rule.key}: expr", rule.expr, values),
        **({"for": hold} if duration_seconds(hold) else {}),
        **({"keep_firing_for": rule.keep} if rule.keep else {}),
        "labels": {
            "severity": chosen.severity or rule.severity,
            "action": rule.action,
            **rule.labels,
            **settings.labels,
            **chosen.labels,
        },
        "annotations": {
            "summary": filled_in(f"{rule.key}: summary", rule.summary, values),
            "description": filled_in(f"{rule.key}: description", rule.description, values),
            **_links(rule, settings),
            **settings.annotations,
        },
    }
    return BuiltRule(rule.about, fields) if chosen.enables(by_default=rule.enabled) else None


def _links(rule: Alert, settings: Settings) -> dict[str, str]:
    runbook, command = f"{settings.runbook_base_url}/{rule.name}", f"{settings.runbook_command} {rule.name}"
    values = {"cluster_label": settings.cluster_label, "command": command}
    if not settings.runbook_base_url:
        runbook = command
    elif rule.elsewhere and _LABEL.search(runbook):
        elsewhere = macros()["runbook_of_fleet" if rule.fleet else "runbook_of_host"]
        runbook = filled_in(rule.key, elsewhere, values | {"url": _LABEL.sub(_OF_THE_EXPORTER, runbook)})
    links = {"runbook_url": runbook, "dashboard_uid": rule.dashboard}
    if settings.grafana_base_url:
        links["dashboard_url"] = settings.grafana_base_url + filled_in(rule.key, dashboard_link(rule), values)
    return links
