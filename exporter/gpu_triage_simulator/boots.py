"""Reboots of a simulated host."""

from __future__ import annotations

from gpu_triage_simulator.observer_effects import ExporterDown, Reboot
from gpu_triage_simulator.scenario import Scenario


def boots(scenario: Scenario, seconds: float) -> tuple[float, ...]:
    """Scenario times up to `seconds` at which the host had booted, oldest first.

    Replacing a card while the exporter is down counts as a reboot, because the host is powered off for it; replacing
    one while the exporter runs is a hot swap.
    """
    down = [event for event in scenario.events if isinstance(event.effect, ExporterDown)]
    replaced_at = {card.since for card in scenario.replacements if not card.reset}
    booted_at = {at for at in replaced_at if any(each.at <= at < (each.until or at + 1) for each in down)}
    booted_at |= {event.until for event in scenario.events if isinstance(event.effect, Reboot) and event.until}
    return tuple(sorted(at for at in booted_at if at <= seconds))
