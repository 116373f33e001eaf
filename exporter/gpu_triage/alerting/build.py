"""Rules as Prometheus reads them: the source with macros written out and settings filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final, TypeAlias, Union

from gpu_triage.alerting.durations import in_words, seconds
from gpu_triage.alerting.links import dashboard, runbook
from gpu_triage.alerting.settings import AlertSettings, Settings
from gpu_triage.alerting.sources import Alert, Group, Recording, RuleSource, read_macros
from gpu_triage.alerting.tokens import expanded, filled_in, percent, plain
from gpu_triage.alerting.xid_tokens import code_lists, code_texts

Fields: TypeAlias = Mapping[str, Union[str, "Fields"]]
"""A rule as YAML has it: texts and further mappings by key, in the order written."""

_AS_SHIPPED: Final = AlertSettings()
_LONG_MACROS: Final = ("device", "hit_gpu", "hit_host")


@dataclass(frozen=True, slots=True)
class BuiltRule:
    """A rule and the comment above it."""

    about: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class BuiltGroup:
    """A group with its rules."""

    name: str
    interval: str
    about: str
    rules: tuple[BuiltRule, ...]


@dataclass(frozen=True, slots=True)
class BuiltFile:
    """A file of rules; without groups where settings disable every rule of it."""

    path: str
    about: str
    groups: tuple[BuiltGroup, ...]


def built(source: RuleSource, settings: Settings) -> BuiltFile:
    """The rules of a source under these settings.

    Raises:
        SourceError: the source uses an unknown token.
    """
    groups = (_group(group, settings) for group in source.groups)
    return BuiltFile(source.path, source.about, tuple(group for group in groups if group.rules))


def expanded_expr(expr: str) -> str:
    """An expression with its lists of codes; what settings fill in stays a token."""
    return expanded(expr, code_lists())


@cache
def text_macros() -> Mapping[str, str]:
    """Macros of summary and description, by name, written out as Prometheus templates."""
    found = {**code_lists(), **code_texts()}
    for name, text in read_macros().items():
        found[name] = expanded(text, found)
    return MappingProxyType(found)


def expanded_text(text: str) -> str:
    """A summary or description with its macros written out, likewise.

    A long macro that a text uses several times is defined at its start instead.
    """
    definitions = ""
    for name in _LONG_MACROS:
        if text.count(token := f"${{{name}}}") > 1:
            # `$labels` of the text is not known inside of a definition; `$` is what the text as a whole is given.
            definitions += f'{{{{ define "{name}" }}}}{{{{ $labels := .Labels }}}}{token}{{{{ end }}}}'
            text = text.replace(token, f'{{{{ template "{name}" $ }}}}')
    return expanded(definitions + text, text_macros())


def shared_tokens(settings: Settings) -> dict[str, str]:
    """Values of the tokens that stand in any rule."""
    quoted_job = settings.job.replace("\\", "\\\\").replace('"', '\\"')
    return {
        "target": settings.target,
        "fleet": settings.fleet,
        "job": quoted_job,
        "cluster_label": settings.cluster_label,
    }


def text_tokens(alert: Alert, chosen: AlertSettings) -> dict[str, str]:
    """Values of the tokens that stand in the texts of one alert, beside those of `shared_tokens`."""
    hold = alert.hold if chosen.hold is None else chosen.hold
    found = {"for": in_words(hold)}
    for name, value in _thresholds(alert, chosen).items():
        found |= {name: plain(value), f"{name}:percent": percent(value)}
    return found


def _group(group: Group, settings: Settings) -> BuiltGroup:
    rules = []
    for rule in group.rules:
        if isinstance(rule, Recording):
            rules.append(_recording(rule, settings))
        elif settings.alerts.get(rule.key, _AS_SHIPPED).enabled:
            rules.append(_alert(rule, settings, settings.alerts.get(rule.key, _AS_SHIPPED)))
    return BuiltGroup(group.name, group.interval, group.about, tuple(rules))


def _recording(rule: Recording, settings: Settings) -> BuiltRule:
    fields: dict[str, str | Fields] = {
        "record": rule.name,
        "expr": filled_in(rule.name, expanded_expr(rule.expr), shared_tokens(settings)),
    }
    return BuiltRule(rule.about, fields | ({"labels": rule.labels} if rule.labels else {}))


def _alert(rule: Alert, settings: Settings, chosen: AlertSettings) -> BuiltRule:
    shared = shared_tokens(settings)
    numbers = {name: plain(value) for name, value in _thresholds(rule, chosen).items()}
    texts = {**shared, **text_tokens(rule, chosen)}
    hold = rule.hold if chosen.hold is None else chosen.hold
    fields: dict[str, str | Fields] = {
        "alert": rule.name,
        "expr": filled_in(f"{rule.key}: expr", expanded_expr(rule.expr), shared | numbers),
        **({"for": hold} if seconds(hold) else {}),
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
    return BuiltRule(rule.about, fields)


def _links(rule: Alert, settings: Settings) -> dict[str, str]:
    links = {
        "runbook_url": runbook(settings.runbook_base_url, rule.name, fleet=rule.fleet),
        "dashboard_uid": rule.dashboard,
    }
    if settings.grafana_base_url:
        links["dashboard_url"] = settings.grafana_base_url + dashboard(rule.dashboard, fleet=rule.fleet)
    return links


def _thresholds(alert: Alert, chosen: AlertSettings) -> Mapping[str, float]:
    return {name: chosen.thresholds.get(name, each.value) for name, each in alert.thresholds.items()}
