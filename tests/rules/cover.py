"""Scenarios of every run: together they show all alerts of PromQL and bottleneck classes.

An alert that relays a finding is one rule for all codes, of which test_relay.py shows every branch; its findings have
unit tests at their thresholds. `make full` plays the other scenarios, and the rest of these.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from tests.recordings import MARGIN_SECONDS
from tests.rules.cases import every_name, load_any
from tests.rules.verdict import wanted

from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage_simulator import Scenario
from gpu_triage_simulator.scenario import Expectation


class Shown(NamedTuple):
    """One thing that a scenario shows: ("fires", "GpuLost"), ("nearly fires", "GpuLost"), ("is", "sick") …"""

    how: str
    what: str


RELAYS: Final = frozenset(alert.name for source in shipped_sources() for alert in source.alerts if alert.codes)
"""Alerts that relay findings."""


def shown_by(scenario: Scenario) -> frozenset[Shown]:
    """What a scenario expects: alerts of PromQL that fire or nearly fire, and classes."""
    return frozenset(
        shown
        for each in scenario.expectations
        for shown in (
            *(Shown("fires", alert) for alert in _fired(each) - RELAYS),
            *(Shown("nearly fires", alert) for alert in each.near_misses if alert not in RELAYS),
            *(Shown("is", bottleneck) for bottleneck in each.bottleneck.values()),
        )
    )


def _fired(expectation: Expectation) -> set[str]:
    return {wanted(alert).labels["alertname"] for alert in expectation.alerts}


def gpu_minutes(scenario: Scenario) -> float:
    """What it costs to play a scenario, roughly: GPUs times minutes up to its last expectation."""
    return len(scenario.gpus) * max(each.at for each in scenario.expectations) / 60


def cover(scenarios: Mapping[str, Scenario]) -> Mapping[str, Scenario]:
    """Cheap scenarios that show all that these show, each up to the last expectation that no other of them meets."""
    parts = {
        (name, each.at): up_to(each.at, scenario)
        for name, scenario in scenarios.items()
        for each in scenario.expectations
    }
    shown = {key: shown_by(part) for key, part in parts.items()}
    cost = {key: gpu_minutes(part) for key, part in parts.items()}
    chosen: set[tuple[str, int]] = set()
    left = frozenset().union(*shown.values())
    while left:
        best = max(shown, key=lambda key: (len(shown[key] & left) / cost[key], key))
        chosen.add(best)
        left -= shown[best]
    for key in sorted(chosen, key=lambda key: (-cost[key], key)):
        others = set().union(*(shown[other] for other in chosen - {key}))
        if shown[key] <= others:
            chosen.remove(key)
    return {key[0]: parts[key] for key in sorted(chosen)}


def up_to(seconds: int, scenario: Scenario) -> Scenario:
    """A scenario that ends with its expectation at this time: nothing begins while it is still watched."""
    return replace(
        scenario,
        events=tuple(each for each in scenario.events if not seconds < each.at <= seconds + MARGIN_SECONDS),
        expectations=tuple(each for each in scenario.expectations if each.at <= seconds),
    )


SCENARIOS: Final = {name: load_any(name) for name in every_name()}
COVER: Final = cover(SCENARIOS)
"""Those of every run, as far as it plays them."""
