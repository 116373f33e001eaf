"""All shipped rules: those below ``source/``, and the generated alerts that relay findings."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

from gpu_triage.alerting.dcgm import bounds, findings
from gpu_triage.alerting.relays import GROUP, codes_of, relays
from gpu_triage.alerting.rule_source import SOURCE, Alert, Group, RecordingRule, RuleSource, read_sources

_DCGM: Final = "compat/dcgm.yml"


@cache
def shipped_sources() -> tuple[RuleSource, ...]:
    """All sources of the shipped rules, in the form of `read_sources`. Cached, because reading takes half a second."""
    sources = read_sources(SOURCE)
    handwritten = {alert.name for source in sources for alert in source.alerts}
    return tuple(
        replace(
            source,
            groups=(
                *(_completed(group, handwritten) for group in source.groups),
                *((bounds(), findings()) if source.path == _DCGM else ()),
            ),
        )
        for source in sources
    )


def _completed(group: Group, handwritten: set[str]) -> Group:
    rules: tuple[RecordingRule | Alert, ...] = tuple(
        replace(rule, codes=codes_of(rule.name)) if isinstance(rule, Alert) else rule for rule in group.rules
    )
    if group.name != GROUP:
        return replace(group, rules=rules)
    # An alert that only mutes others comes after them, so that it never ends first.
    muting = [rule for rule in rules if isinstance(rule, Alert) and rule.severity == "none"]
    return replace(group, rules=(*(rule for rule in rules if rule not in muting), *relays(handwritten), *muting))
