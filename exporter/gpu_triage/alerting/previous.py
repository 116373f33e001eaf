"""Rules of the previous release, which need no findings: for use while a fleet's exporters are being upgraded.

They are stored below ``previous/`` with macros already expanded, and are kept for one release.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from gpu_triage.alerting.rule_source import INHIBITIONS, Alert, Group, RecordingRule, RuleSource, Threshold
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESS_OWNER_INFO

PREVIOUS: Final = Path(__file__).parent / "previous"
_RECORDED: Final = MappingProxyType({"recording.yml": "recording.yml", "compat/recorded.yml": "recording-previous.yml"})


@cache
def previous_sources() -> tuple[RuleSource, ...]:
    """The previous rules, like `shipped_sources`, with the recording rules that they and the dashboards use."""
    recorded = tuple(_recorded(each) for each in shipped_sources() if each.path in _RECORDED)
    paths = (path for path in sorted(PREVIOUS.glob("*.yml")) if path.name != INHIBITIONS)
    return (*recorded, *(_source(path) for path in paths))


def _recorded(source: RuleSource) -> RuleSource:
    """Recording rules of this release, based on metrics that exporters of the previous release publish, too."""
    owners, processes = GPU_PROCESS_OWNER_INFO.name, GPU_PROCESS_INFO.name
    groups = tuple(
        replace(group, rules=tuple(replace(rule, expr=rule.expr.replace(owners, processes)) for rule in group.rules))
        for group in source.groups
    )
    return replace(source, path=_RECORDED[source.path], groups=groups)


def _source(path: Path) -> RuleSource:
    document = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    groups = tuple(
        Group(group["name"], group["interval"], tuple(_rule(rule) for rule in group["rules"]))
        for group in document["groups"]
    )
    return RuleSource(path.name, "Rules of the previous release: they need no findings.", groups)


def _rule(rule: Mapping[str, Any]) -> RecordingRule | Alert:
    if "record" in rule:
        return RecordingRule(rule["record"], rule["expr"], labels=rule.get("labels", {}))
    labels = dict(rule["labels"])
    return Alert(
        name=rule["alert"],
        variant=rule["key"].removeprefix(rule["alert"]).lstrip("."),
        expr=rule["expr"],
        severity=labels.pop("severity"),
        action=labels.pop("action"),
        summary=rule["annotations"]["summary"],
        description=rule["annotations"]["description"],
        dashboard=rule["annotations"]["dashboard_uid"],
        thresholds={
            name: Threshold(float(value), -math.inf, math.inf, "") for name, value in rule.get("thresholds", {}).items()
        },
        hold=rule.get("for", ""),
        keep=rule.get("keep_firing_for", ""),
        labels=labels,
        scope=rule.get("scope"),
        unreachable=rule.get("unreachable") == "true",
    )
