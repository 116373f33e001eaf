"""The chart's rules in a form for the Helm template, and the schemas of `rules.overrides` and `judge`.

The template applies settings like `gpu_triage.alerting.build` does; everything else is done here, so that it only has
to replace placeholders.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args, get_origin, get_type_hints

from gpu_triage.alerting.build import BuiltGroup, BuiltRule, Fields, dashboard_link
from gpu_triage.alerting.files import to_yaml
from gpu_triage.alerting.rule_source import Alert, Group, RecordingRule, RuleSource
from gpu_triage.alerting.settings import (
    DURATION,
    KEPT_LABELS,
    LABEL_NAME,
    MOST_LABELS,
    RESERVED_ANNOTATIONS,
    RESERVED_LABELS,
    SEVERITIES,
    LabelText,
    Settings,
    plain,
)
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.documents import AtMost, Pattern, Range
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.judge.findings.table import CHECKS, Limit, Unit

_MARK: Final = "Written by `make regenerate` for the chart's template, which fills in the tokens, not for Prometheus."
_TIMES: Final[Mapping[str, Any]] = {
    "wait": {"$ref": "#/$defs/judgeDuration"},
    "hold": {"$ref": "#/$defs/judgeDuration"},
}
_TEXTS: Final[Mapping[Unit, str]] = {
    Unit.RATIO: r"^[0-9]+(\.[0-9]+)? ?%?$",
    Unit.CELSIUS: r"^[0-9]+(\.[0-9]+)?( ?°?C)?$",
    Unit.COUNT: r"^[0-9]+$",
    Unit.BYTES_PER_SECOND: r"^[0-9]+(\.[0-9]+)? ?([KMG]iB(/s)?)?$",
}
"""Text patterns for thresholds; the exporter checks the range of anything that isn't a plain number."""


def rule_files() -> dict[str, str]:
    """The chart's rule files, by path below ``files/rules``."""
    return {source.path: to_yaml(source.about, map(_group, source.groups), _MARK) for source in _sources()}


def overrides_schema() -> dict[str, Any]:
    """The JSON schema of `rules.overrides`, with every alert and the range of every threshold."""
    alerts = {alert.key: _alert_schema(alert) for source in _sources() for alert in source.alerts}
    settings = {name: _schema(hint) for name, hint in get_type_hints(Settings, include_extras=True).items()}
    settings["routing_labels"]["items"]["not"] = {"enum": list(KEPT_LABELS)}
    labels = {"$ref": "#/$defs/alertLabels"}
    return _object(
        settings | {"labels": labels, "annotations": _texts(RESERVED_ANNOTATIONS), "alerts": _object(alerts)}
    )


def _schema(hint: Any) -> dict[str, Any]:
    """The schema of a setting, from its type and limits; of tables only that they are tables."""
    kind, *rules = get_args(hint)
    limits = {type(rule): rule for rule in rules}
    if get_origin(kind) is tuple:
        return {"type": "array", "maxItems": limits[AtMost].entries, "items": _schema(get_args(kind)[0])}
    if Range in limits:
        return {"type": "number", "minimum": limits[Range].low, "maximum": limits[Range].high}
    if Pattern not in limits:
        return {"type": "object"}
    pattern = limits[Pattern].pattern
    least = {} if re.fullmatch(pattern, "") else {"minLength": 1}
    return {"type": "string", **least, "maxLength": limits[AtMost].entries, "pattern": pattern}


def definitions() -> dict[str, Any]:
    """Definitions used by both schemas, by name below ``$defs``."""
    return {
        "alertLabels": _texts(RESERVED_LABELS),
        "alertHold": {"type": "string", "minLength": 1, "pattern": DURATION},
        "alertSeverity": {"type": "string", "enum": list(SEVERITIES)},
        "judgeDuration": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$"},
        "judgeTimes": _object(_TIMES),
    }


def _sources() -> tuple[RuleSource, ...]:
    """Sources of the rules that go with the chart's exporters; those for dcgm-exporter's metrics do not."""
    return tuple(source for source in shipped_sources() if not source.optional)


def _group(group: Group) -> BuiltGroup:
    rules = tuple(_recording(rule) if isinstance(rule, RecordingRule) else _alert(rule) for rule in group.rules)
    return group, rules


def _recording(rule: RecordingRule) -> BuiltRule:
    fields: dict[str, str | Fields] = {"record": rule.name, "expr": rule.expr}
    return BuiltRule(rule.about, fields | ({"labels": rule.labels} if rule.labels else {}))


def _alert(rule: Alert) -> BuiltRule:
    thresholds = {name: plain(each.value) for name, each in rule.thresholds.items()}
    fields: dict[str, str | Fields] = {
        "alert": rule.name,
        "key": rule.key,
        **({"judge": rule.codes[0]} if rule.codes else {}),
        **({} if rule.enabled else {"enabled": "false"}),
        **({"scope": "fleet"} if rule.fleet else {}),
        **({"unreachable": "true"} if rule.unreachable else {}),
        **({"thresholds": thresholds} if thresholds else {}),
        "expr": rule.expr,
        **({"for": rule.hold} if rule.hold else {}),
        **({"keep_firing_for": rule.keep} if rule.keep else {}),
        "labels": {"severity": rule.severity, "action": rule.action, **rule.labels},
        "annotations": {
            "summary": rule.summary,
            "description": rule.description,
            "dashboard_uid": rule.dashboard,
            "dashboard_url": dashboard_link(rule),
        },
    }
    return BuiltRule(rule.about, fields)


def _alert_schema(alert: Alert) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "enabled": {"type": "boolean"},
        "for": {"$ref": "#/$defs/alertHold"},
        "severity": {"$ref": "#/$defs/alertSeverity"},
        "labels": {"$ref": "#/$defs/alertLabels"},
    }
    if alert.codes:
        properties["thresholds"] = {"type": "object"}
    elif alert.thresholds:
        properties["thresholds"] = _object(
            {
                name: {"type": "number", "minimum": each.low, "maximum": each.high, "description": each.about}
                for name, each in alert.thresholds.items()
            }
        )
    return _object(properties)


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _texts(reserved: Iterable[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "maxProperties": MOST_LABELS,
        "propertyNames": {"pattern": LABEL_NAME, "not": {"enum": list(reserved)}},
        "additionalProperties": _schema(LabelText),
    }


def judge_schema() -> dict[str, Any]:
    """The schema of `judge`; findings with identical settings share an entry."""
    codes: dict[str, list[str]] = defaultdict(list)
    for check in CHECKS:
        codes[json.dumps(_finding(check.code))].append(check.code)
    alike = {f"^({'|'.join(map(re.escape, names))})$": each for each, names in codes.items() if len(names) > 1}
    own = {names[0]: each for each, names in codes.items() if len(names) == 1}
    return {
        **_object({code: json.loads(each) for code, each in own.items()}),
        "patternProperties": {pattern: json.loads(each) for pattern, each in alike.items()},
    }


def _finding(code: str) -> dict[str, Any]:
    limits = LIMITS.get(code)
    if limits is None:
        return {"$ref": "#/$defs/judgeTimes"}
    return _object({**_TIMES, **{name: _threshold(limit) for name, limit in limits.items()}})


def _threshold(limit: Limit) -> dict[str, Any]:
    if limit.unit is Unit.SECONDS:
        return {"$ref": "#/$defs/judgeDuration"}
    kind = "integer" if limit.unit is Unit.COUNT else "number"
    number = {"type": kind, "minimum": limit.low, "maximum": limit.high}
    return {"anyOf": [number, {"type": "string", "pattern": _TEXTS[limit.unit]}], "description": limit.about}
