"""What can be said of a GPU by moments of it, as files hold them, and what needs a share of time that it was busy."""

from __future__ import annotations

from typing import Final

from gpu_triage.diagnosis.bottleneck.classes import Bottleneck
from gpu_triage.diagnosis.evidence.gpu import GpuEvidence

_TOLD_BY_MOMENTS: Final = frozenset({"sick", "thermal", "power_brake", "pcie_link", "power_cap", "clock_cap", "idle"})
"""Classes that rest on states, or on the driver's own counters of time in two moments."""

NOT_IN_A_MOMENT: Final = frozenset({"work.low_power", "work.held_idle", "work.hung", "clock.straggler"})
"""Findings that rest on what a GPU did for some time."""


def in_a_moment(bottleneck: Bottleneck, gpu: GpuEvidence) -> Bottleneck:
    """The bottleneck as far as moments tell it; any other is unattributed."""
    if bottleneck.name == "idle" and not gpu.processes_known:
        return Bottleneck("unattributed", "nothing holds it back that was seen", "its processes are in no file")
    if bottleneck.name in _TOLD_BY_MOMENTS:
        return bottleneck
    share = gpu.over(0.0).busy_share
    busy = "a compute process" if share is None else f"{share:.0%} busy at that moment"
    return Bottleneck("unattributed", busy, "for how much of the time is in no file")
