"""When a simulated host boots anew."""

from __future__ import annotations

from gpu_triage.simulator.observer_effects import ExporterDown
from gpu_triage.simulator.scenario import Scenario


def boots(scenario: Scenario, seconds: float) -> tuple[float, ...]:
    """Scenario times up to `seconds` at which the host booted anew, oldest first.

    A card that is replaced while the exporter is down needs the host to be switched off; one that is replaced while
    the exporter runs is exchanged on a running host.
    """
    down = [event for event in scenario.events if isinstance(event.effect, ExporterDown)]
    replaced_at = sorted({card.since for card in scenario.replacements if card.since <= seconds})
    return tuple(at for at in replaced_at if any(each.at <= at < (each.until or at + 1) for each in down))
