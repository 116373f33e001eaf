"""The shipped rules without those that no alert is made of.

The rules for capacity reviews look back for a day, and promtool evaluates every group as often as the most urgent one:
in a run that only asks what fires they cost a fifth of the time. Their own tests evaluate them, and so do those that
load every rule: test_recorded.py, test_capacity.py and the dashboards'.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml
from tests.rules.expressions import uses
from tests.rules.rulefile import Rule, alerts, read_rules, rule_files


def rules_of_alerts(directory: Path, questions: Iterable[str] = ()) -> tuple[Path, ...]:
    """Copies of the shipped rule files with the alerts, and what alerts, their texts and the questions read."""
    kept = _needed(read_rules(rule_files()), questions)
    copies = []
    for path in rule_files():
        groups = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)["groups"]
        for group in groups:
            group["rules"] = [rule for rule in group["rules"] if "alert" in rule or rule["record"] in kept]
        copy = directory / path.name
        copy.write_text(yaml.dump({"groups": [group for group in groups if group["rules"]]}, Dumper=yaml.CSafeDumper))
        copies.append(copy)
    return tuple(copies)


def _needed(rules: tuple[Rule, ...], questions: Iterable[str]) -> frozenset[str]:
    """Names of the recorded series that somebody reads."""
    recorded: dict[str, set[str]] = {}
    for rule in rules:
        if not rule.alert:
            recorded.setdefault(rule.name, set()).update(_read_by(rule))
    asked = {use.metric for question in questions for use in uses(question)}
    ahead = asked.union(*(_read_by(rule) for rule in alerts(rules))) & recorded.keys()
    needed: set[str] = set()
    while ahead:
        needed |= ahead
        ahead = (set().union(*(recorded[name] for name in ahead)) & recorded.keys()) - needed
    return frozenset(needed)


def _read_by(rule: Rule) -> set[str]:
    return {use.metric for query in (rule.expr, *rule.queries()) for use in uses(query)}
