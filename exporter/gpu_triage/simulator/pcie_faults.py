"""Errors of PCIe links, as each end of the link sees them."""

from __future__ import annotations

from typing import Literal

from gpu_triage.simulator import effects
from gpu_triage.simulator.conditions import Timeline
from gpu_triage.simulator.gpu_state import GpuState


def pcie_errors(timeline: Timeline, state: GpuState, rate: str, end: Literal["gpu", "port"]) -> int:
    """Errors of a GPU's link up to now; `rate` is the name of the effect's hourly rate."""
    seen = timeline.accrued(
        effects.PcieErrors, rate, state.index, state.seconds, lambda effect: effect.seen_by in ("both", end)
    )
    return int(seen)
