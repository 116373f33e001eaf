"""What an exporter on a simulated host remembers of the weeks before."""

from __future__ import annotations

from gpu_triage.read.incidents.ledger import DAY_SECONDS, Incident, Memory
from gpu_triage_simulator import scenario
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.replacement import identity

_EARLIER_BOOT = ""
"""The boot ID does not matter, because uptimes of earlier boots are not used."""


def ledger(host: SimulatedHost) -> Memory:
    """The incident ledger when the scenario starts."""
    begins_at = host.wall(0.0)
    past = sorted(host.scenario.incidents, key=lambda incident: -incident.days_ago)
    return Memory(incidents=tuple(_incident(host, each, begins_at) for each in past))


def _incident(host: SimulatedHost, past: scenario.Incident, begins_at: float) -> Incident:
    gpu = host.scenario.gpus[past.gpu]
    at = begins_at - past.days_ago * DAY_SECONDS
    serial = gpu.serial if past.card is None else identity(host.scenario.name, past.card).serial
    return Incident(past.kind, past.card or gpu.uuid, serial, gpu.slot.bus_id, at, at, _EARLIER_BOOT, 0.0)
