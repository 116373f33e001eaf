"""Builds Prometheus rules: expands macros in the source and applies settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, Union

from gpu_triage.alerting.placeholders import expanded_expr, expanded_text, filled_in, percent, plain
from gpu_triage.alerting.rule_source import Alert, RecordingRule, RuleSource
from gpu_triage.alerting.settings import AlertSettings, Settings, duration_in_words, duration_seconds

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


class BuiltFile(NamedTuple):
    """A rule file; it has no groups if settings disable all of its rules."""

    path: str
    about: str
    groups: tuple[BuiltGroup, ...]


def built(source: RuleSource, settings: Settings) -> BuiltFile:
    groups = []
    for group in source.groups:
        rules = tuple(found for rule in group.rules if (found := _rule(rule, settings)) is not None)
        groups += [BuiltGroup(group.name, group.interval, group.about, rules)] if rules else []
    return BuiltFile(source.path, source.about, tuple(groups))


def dashboard_link(uid: str, cluster_label: str, *, fleet: bool) -> str:
    """URL path of a dashboard on the Grafana server, filtered to the subject of the alert.

    If the alert has no cluster label, the dashboard's default cluster selection applies.
    """
    cluster = f"{{{{ with $labels.{cluster_label} }}}}&var-cluster={{{{ . | urlquery }}}}{{{{ end }}}}"
    job = f"/d/{uid}?var-job={{{{ $labels.job | urlquery }}}}{cluster}"
    if fleet:
        return job
    gpu = "{{ with $labels.gpu }}&var-gpu={{ . | urlquery }}{{ end }}"
    return f"{job}&var-instance={{{{ $labels.instance | urlquery }}}}{gpu}"


def link_elsewhere(url: str, command: str, cluster_label: str, *, fleet: bool) -> str:
    """A template for `url` on an exporter that was up at the last scrape; for `command` if none was.

    An exporter of the alert's cluster and job comes first, since other clusters may be out of the reader's reach. Each
    query returns one series, and the second runs only if the first finds none: hundreds of hosts may be down.
    """
    cluster = f"{cluster_label}=%q,job=%q"
    near, its_own = f"{{{cluster}}}", f"$labels.{cluster_label} $labels.job"
    anywhere = "`topk(1, gpu_exporter_build_info)` | query"
    if not fleet:
        # The exporter may be up right now, but keep crashing.
        near, its_own = f"{{{cluster},instance!=%q}}", f"{its_own} $labels.instance"
        anywhere = "printf `topk(1, gpu_exporter_build_info{instance!=%q})` $labels.instance | query"
    return (
        f"{{{{ with printf `topk(1, gpu_exporter_build_info{near})` {its_own} | query }}}}{url}{{{{ else }}}}"
        f"{{{{ with {anywhere} }}}}{url}{{{{ else }}}}{command}{{{{ end }}}}{{{{ end }}}}"
    )


def _rule(rule: RecordingRule | Alert, settings: Settings) -> BuiltRule | None:
    values = {
        "target": settings.target,
        "subject": settings.subject,
        "fleet": settings.fleet,
        "clusters": settings.clusters,
        "job": settings.job.replace("\\", "\\\\").replace('"', '\\"'),
        "cluster_label": settings.cluster_label,
        "fleet_hosts": plain(settings.fleet_hosts),
        "fleet_share": plain(settings.fleet_share),
    }
    if isinstance(rule, RecordingRule):
        expr = filled_in(rule.name, expanded_expr(rule.expr), values)
        return BuiltRule(
            rule.about, {"record": rule.name, "expr": expr, **({"labels": rule.labels} if rule.labels else {})}
        )
    chosen = settings.alerts.get(rule.key, AlertSettings())
    hold = rule.hold if chosen.hold is None else chosen.hold
    numbers, texts = dict(values), values | {"for": duration_in_words(hold)}
    for name, each in rule.thresholds.items():
        value = chosen.thresholds.get(name, each.value)
        numbers[name] = plain(value)
        texts |= {name: plain(value), f"{name}:percent": percent(value)}
    fields: Fields = {
        "alert": rule.name,
        "expr": filled_in(f"{rule.key}: expr", expanded_expr(rule.expr), numbers),
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
            "summary": filled_in(f"{rule.key}: summary", expanded_text(rule.summary), texts),
            "description": filled_in(f"{rule.key}: description", expanded_text(rule.description), texts),
            **_links(rule, settings),
            **settings.annotations,
        },
    }
    return BuiltRule(rule.about, fields) if chosen.enables(by_default=rule.enabled) else None


def _links(rule: Alert, settings: Settings) -> dict[str, str]:
    runbook, command = f"{settings.runbook_base_url}/{rule.name}", f"{settings.runbook_command} {rule.name}"
    if not settings.runbook_base_url:
        runbook = command
    elif rule.elsewhere and _LABEL.search(runbook):
        url = _LABEL.sub(_OF_THE_EXPORTER, runbook)
        runbook = link_elsewhere(url, command, settings.cluster_label, fleet=rule.fleet)
    links = {"runbook_url": runbook, "dashboard_uid": rule.dashboard}
    if settings.grafana_base_url:
        links["dashboard_url"] = settings.grafana_base_url + dashboard_link(
            rule.dashboard, settings.cluster_label, fleet=rule.fleet
        )
    return links
