"""Scenarios of every run: together they show all alerts of PromQL, topics of ``check`` and bottleneck classes.

An alert that relays a finding is one rule for all codes, of which test_relay.py shows every branch; its findings have
unit tests at their thresholds. `make full` plays the other scenarios.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.rules.cases import every_name, load_any
from tests.rules.verdict import wanted

from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage_simulator import Scenario
from gpu_triage_simulator.scenario import Expectation


class Shown(NamedTuple):
    """One thing that a scenario shows: ("fires", "GpuLost"), ("nearly fires", "GpuLost"), ("finds", "sick") …"""

    how: str
    what: str


RELAYS: Final = frozenset(alert.name for source in shipped_sources() for alert in source.alerts if alert.codes)
"""Alerts that relay findings."""


def shown_by(scenario: Scenario) -> frozenset[Shown]:
    """What a scenario expects: alerts of PromQL that fire or nearly fire, what `check` finds, and classes."""
    return frozenset(
        shown
        for each in scenario.expectations
        for shown in (
            *(Shown("fires", alert) for alert in _fired(each) - RELAYS),
            *(Shown("nearly fires", alert) for alert in each.near_misses if alert not in RELAYS),
            *(Shown("finds", topic) for topics in each.findings.values() for topic in topics),
            *(Shown("is", bottleneck) for bottleneck in each.bottleneck.values()),
        )
    )


def _fired(expectation: Expectation) -> set[str]:
    return {wanted(alert).labels["alertname"] for alert in expectation.alerts}


def gpu_minutes(scenario: Scenario) -> float:
    """What it costs to play a scenario, roughly: GPUs times minutes up to its last expectation."""
    return len(scenario.gpus) * max(each.at for each in scenario.expectations) / 60


def cover(scenarios: Mapping[str, Scenario]) -> frozenset[str]:
    """Names of cheap scenarios that show all that these show; each shows something that no other of them does."""
    shown = {name: shown_by(scenario) for name, scenario in scenarios.items()}
    cost = {name: gpu_minutes(scenario) for name, scenario in scenarios.items()}
    chosen: set[str] = set()
    left = set().union(*shown.values())
    while left:
        best = max(shown, key=lambda name: (len(shown[name] & left) / cost[name], name))
        chosen.add(best)
        left -= shown[best]
    for name in sorted(chosen, key=lambda name: (-cost[name], name)):
        others = set().union(*(shown[other] for other in chosen - {name}))
        if shown[name] <= others:
            chosen.remove(name)
    return frozenset(chosen)


SCENARIOS: Final = {name: load_any(name) for name in every_name()}
COVER: Final = cover(SCENARIOS)
"""Those of every run."""
