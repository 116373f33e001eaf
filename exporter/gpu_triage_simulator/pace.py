"""A scenario sped up, for demonstrations that should not take an hour."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpu_triage_simulator.scenario import Event, Expectation, Scenario


def at_pace(scenario: Scenario, pace: int) -> Scenario:
    """The same scenario with all its times divided by `pace`.

    Clocks, counters and physics stay in real time: a throttled second is a second. Hourly rates of the scenario are
    multiplied by `pace`, so that the same number of errors falls into the shorter time. To reach the same findings, the
    judge needs delays, holds and windows divided by `pace` (`JudgeSettings.at_pace`, `Memory`), and so do the rules.
    """
    if pace == 1:
        return scenario
    return dataclasses.replace(
        scenario,
        events=tuple(_event(event, pace) for event in scenario.events),
        expectations=tuple(_expectation(expectation, pace) for expectation in scenario.expectations),
    )


def _event(event: Event, pace: int) -> Event:
    at = round(event.at / pace)
    until = None if event.until is None else max(at + 1, round(event.until / pace))
    return dataclasses.replace(event, at=at, until=until, effect=_effect(event.effect, pace))


def _expectation(expectation: Expectation, pace: int) -> Expectation:
    return dataclasses.replace(expectation, at=round(expectation.at / pace))


def _effect(effect: Any, pace: int) -> Any:
    hourly = {
        field.name: getattr(effect, field.name) * pace
        for field in dataclasses.fields(effect)
        if field.name.endswith("_per_hour")
    }
    return dataclasses.replace(effect, **hourly)
