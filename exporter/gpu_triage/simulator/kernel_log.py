"""What the driver writes into the kernel log when a GPU fails."""

from __future__ import annotations

from typing import Final

from gpu_triage.simulator import effects
from gpu_triage.simulator.host import SimulatedHost
from gpu_triage.simulator.scenario import Scenario

_OFF_THE_BUS: Final = "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
_GREETING_MICROSECONDS: Final = 4_000_000


def records(host: SimulatedHost, seconds: float) -> list[str]:
    """Every record up to a scenario time, oldest first, as ``/dev/kmsg`` gives them.

    Shape: ``level,sequence,microseconds since boot,flags;message``.
    """
    scenario = host.scenario
    messages: list[tuple[float, str]] = [(0.0, _greeting(scenario))]
    for event in sorted(scenario.events, key=lambda event: event.at):
        if event.at > seconds:
            break
        for gpu in event.gpus:
            bus_id = scenario.gpus[gpu].slot.bus_id
            messages += [(event.at, text) for text in _messages(event.effect, bus_id.rpartition(".")[0], bus_id)]
    return [
        f"{4 if 'Xid' in text or 'fallen' in text else 6},{1000 + i},{_stamp(host, at, i)},-;{text}"
        for i, (at, text) in enumerate(messages)
    ]


def _stamp(host: SimulatedHost, at: float, number: int) -> int:
    """Microseconds since boot; the driver's greeting, record 0, is from just after it."""
    return round(host.uptime(at) * 1e6) + number if number else _GREETING_MICROSECONDS


def _greeting(scenario: Scenario) -> str:
    return f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {scenario.driver.version}"


def _messages(effect: object, slot: str, bus_id: str) -> list[str]:
    if isinstance(effect, effects.Xid) and effect.reported_by != "nvml":
        return [f"NVRM: Xid (PCI:{slot}): {effect.code}, {effect.message}"] * effect.times
    if isinstance(effect, effects.Lost) and effect.reported_by != "nvml":
        detail = _OFF_THE_BUS if effect.message is None else effect.message
        return [
            f"NVRM: Xid (PCI:{slot}): {effect.xid}, {detail}",
            f"NVRM: GPU {bus_id}: GPU has fallen off the bus.",
        ]
    return []
