"""Rule files as the tests see them: every rule with its group, in the order of evaluation."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml

from gpu_triage.alerting import files
from gpu_triage.alerting.settings import Settings
from gpu_triage.alerting.shipped import shipped_sources

_QUERY = re.compile(r"printf `([^`]*)`")

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    group: str  # its group's name
    interval: str  # the group's interval as written; "" where it is the server's
    name: str  # of the alert, or of the recorded series
    alert: bool  # whether it alerts
    expr: str  # PromQL
    hold: str  # its ``for`` as written; "" where there is none
    keep: str  # its ``keep_firing_for`` as written; "" where there is none
    # labels, annotations: as written, templates included
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def queries(self) -> tuple[str, ...]:
        """What its annotations ask Prometheus, with some text in place of what they fill in."""
        return tuple(
            query.replace("code=%q", 'code="thermal.hw"')
            .replace("collector=%q", 'collector="ecc"')
            .replace("%q", '"x"')
            for text in self.annotations.values()
            for query in _QUERY.findall(text)
        )


BMC = REPOSITORY / "rules" / "compat" / "bmc.yml"
"""An optional one, and the only one of those with an alert."""


def rule_files() -> tuple[Path, ...]:
    rules = REPOSITORY / "rules"
    return (*sorted(rules.glob("recording*.yml")), *sorted(rules.glob("alerts*.yml")))


def alert_files() -> tuple[Path, ...]:
    """Those with alerts. What the others record is for reviews of capacity, and no alert reads it."""
    return tuple(path for path in rule_files() if path.name.startswith("alerts"))


def group_alone(alert: str, directory: Path, *read: str) -> tuple[Path, ...]:
    """A file with nothing but the group of an alert, and what it reads of others: the names of these rules."""
    groups = [group for path in alert_files() for group in yaml.load(path.read_bytes(), yaml.CSafeLoader)["groups"]]
    (its,) = [group for group in groups if any(rule.get("alert") == alert for rule in group["rules"])]
    rules = [rule for group in groups for rule in group["rules"] if rule.get("record") in read]
    path = directory / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{**its, "rules": [*rules, *its["rules"]]}]}), encoding="utf-8")
    return (path,)


def groups_of(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rule.group for rule in read_rules(paths)))


def read_rules(paths: Iterable[Path]) -> tuple[Rule, ...]:
    return tuple(rule for path in paths for rule in _parsed(path.read_text(encoding="utf-8")))


def with_those_that_are_off() -> tuple[Rule, ...]:
    alerts = {alert.key: replace(alert, enabled=True) for source in shipped_sources() for alert in source.alerts}
    texts = files.rule_files(Settings(alerts=alerts))
    named = (path.relative_to(REPOSITORY / "rules").as_posix() for path in (*rule_files(), BMC))
    return tuple(rule for name in named for rule in _parsed(texts[name]))


def alerts(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.alert)


@cache
def _parsed(text: str) -> tuple[Rule, ...]:
    """The rules of a file; every test asks for those of the shipped ones."""
    groups = yaml.load(text, yaml.CSafeLoader)["groups"]
    return tuple(
        Rule(
            group=group["name"],
            interval=group.get("interval", ""),
            name=rule["alert"] if "alert" in rule else rule["record"],
            alert="alert" in rule,
            expr=str(rule["expr"]),
            hold=rule.get("for", ""),
            keep=rule.get("keep_firing_for", ""),
            labels=rule.get("labels") or {},
            annotations=rule.get("annotations") or {},
        )
        for group in groups
        for rule in group["rules"]
    )
