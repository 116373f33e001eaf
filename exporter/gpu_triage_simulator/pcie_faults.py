"""Faults of PCIe links: errors seen by each end of the link, and degraded links above switches."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from gpu_triage_simulator import effects, host_effects
from gpu_triage_simulator.conditions import Timeline
from gpu_triage_simulator.gpu_state import GpuState


def pcie_errors(timeline: Timeline, state: GpuState, rate: str, end: Literal["gpu", "port"]) -> int:
    seen = timeline.accrued(
        effects.PcieErrors, rate, state.index, state.seconds, lambda effect: effect.seen_by in ("both", end)
    )
    return int(seen)


def uplinks(
    timeline: Timeline, seconds: float, chains: Iterable[Mapping[str, str]]
) -> Iterator[tuple[str, host_effects.Uplink]]:
    """Both ends of each degraded link above a switch, by their directories.

    Args:
        chains: for each device, the directories of the bridges above it by their addresses, root port first.
    """
    for event, uplink in timeline.host(host_effects.Uplink):
        if event.active(seconds):
            for chain in chains:
                ports = list(chain)
                if uplink.bridge in ports[1:]:
                    place = ports.index(uplink.bridge)
                    yield from ((chain[port], uplink) for port in ports[place - 1 : place + 1])
