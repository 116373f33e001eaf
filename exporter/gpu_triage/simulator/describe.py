"""A scenario in words: the host, its GPUs, and what happens to them when."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from gpu_triage.simulator.scenario import Event, Scenario


def describe_scenario(scenario: Scenario) -> str:
    """The scenario as a person reads it, several lines, none of them empty but between the parts."""
    return "\n".join(_lines(scenario))


def _lines(scenario: Scenario) -> Iterator[str]:
    yield f"{scenario.name}: {scenario.description}"
    nodes = ", ".join(f"node {number} with CPUs {node.cpus}" for number, node in enumerate(scenario.machine.node))
    yield ""
    yield f"Host: NVIDIA driver {scenario.driver.version}; {nodes}; {len(scenario.processes)} GPU processes"
    for index, gpu in enumerate(scenario.gpus):
        slot = gpu.slot
        place = f"{slot.bus_id}, NUMA node {slot.node}, slot x{slot.width} Gen{slot.generation}"
        yield f"GPU {index}: {gpu.model.name} at {place}"
    yield ""
    yield "Timeline:" if scenario.events else "Nothing happens: it stays as it is."
    for event in scenario.events:
        yield f"  {_when(event):<18} {_where(event)}{_what(event.effect)}"


def _when(event: Event) -> str:
    if event.until is None:
        return "all the time" if event.at == 0 else f"from {_clock(event.at)}"
    return f"{_clock(event.at)} to {_clock(event.until)}"


def _where(event: Event) -> str:
    return f"GPU {', '.join(map(str, event.gpus))}: " if event.gpus else "host: "


def _what(effect: Any) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(effect).__name__).lower()
    facts = ((f.name, getattr(effect, f.name), f.default) for f in dataclasses.fields(effect))
    said = [f"{name}={value}" for name, value, default in facts if value is not None and value != default]
    return f"{words} ({', '.join(said)})" if said else words


def _clock(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes}m{rest:02}s" if rest else f"{minutes}m"
