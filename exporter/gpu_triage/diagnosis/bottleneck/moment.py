"""What can be said of a GPU by moments of it, as files hold them, and what needs a share of time that it was busy."""

from __future__ import annotations

from typing import Final

from gpu_triage.diagnosis.bottleneck.classes import Bottleneck
from gpu_triage.diagnosis.evidence.gpu import GpuEvidence
from gpu_triage.diagnosis.evidence.held import AT_THAT_MOMENT, active_reasons
from gpu_triage.diagnosis.findings.table import Area

_TOLD_BY_MOMENTS: Final = frozenset({"sick", "thermal", "power_brake", "pcie_link", "power_cap", "clock_cap"})
"""Classes that rest on states, or on the driver's own counters of time in two moments."""

NOT_IN_A_MOMENT: Final = frozenset({"work.low_power", "work.held_idle", "work.hung", "clock.straggler"})
"""Findings that rest on what a GPU did for some time."""

CONFIRMED_IN_FILES: Final = frozenset({Area.DRIVER})
"""Areas whose findings files confirm: the driver did not answer, or GPUs were gone, when they were written.

In other areas, what must last stays pending: files show a moment of it.
"""

USE_UNKNOWN: Final = "processes not in these files"
"""What is unseen of a GPU of which files show neither processes nor utilization."""


def in_a_moment(bottleneck: Bottleneck, gpu: GpuEvidence) -> Bottleneck:
    """The bottleneck as far as moments tell it; any other is unattributed."""
    if bottleneck.name in _TOLD_BY_MOMENTS or (bottleneck.name == "idle" and gpu.processes_known):
        return bottleneck
    reasons, share = active_reasons(gpu), gpu.over(0.0).busy_share
    held = f"held by {', '.join(reasons)} {AT_THAT_MOMENT}" if reasons else ""
    busy = "" if share is None else f"{share:.0%} busy {AT_THAT_MOMENT}"
    said = ", ".join(part for part in (busy, held) if part)
    if bottleneck.name == "idle" or (share is None and not gpu.processes_known):
        nothing, unread = f"no throttle reason active {AT_THAT_MOMENT}", "throttle reasons not in these files"
        return Bottleneck("unattributed", said or (unread if reasons is None else nothing), USE_UNKNOWN)
    holds = "a compute process" if gpu.compute_processes else "no compute process"
    return Bottleneck("unattributed", said if busy else f"{holds}{held and ', '}{held}", "duration unknown")
