"""Limits a bottleneck to what snapshots (from files) can show, since they contain no busy share over time."""

from __future__ import annotations

from typing import Final

from gpu_triage.judge.bottleneck.classes import Bottleneck
from gpu_triage.judge.evidence.gpu import AT_THAT_MOMENT, GpuEvidence
from gpu_triage.judge.findings.table import Area

_SHOWN_BY_SNAPSHOTS: Final = frozenset({"sick", "thermal", "power_brake", "pcie_link", "power_cap", "clock_cap"})
"""Classes based on states, or on the driver's own time counters at two points in time."""

NOT_IN_A_MOMENT: Final = frozenset({"work.low_power", "work.held_idle", "work.hung", "clock.straggler"})
"""Findings based on what a GPU did over some time, so snapshots cannot show them."""

CONFIRMED_IN_FILES: Final = frozenset({Area.DRIVER})
"""Areas of findings that files confirm: the driver did not respond, or GPUs were missing, when they were written.

In other areas, findings that need time to be confirmed stay pending: files only show snapshots.
"""

USE_UNKNOWN: Final = "processes not in these files"
"""Shown as unseen if the files contain neither the GPU's processes nor its utilization."""


def in_a_moment(bottleneck: Bottleneck, gpu: GpuEvidence) -> Bottleneck:
    """Return the bottleneck if snapshots can show it, otherwise unattributed."""
    if bottleneck.name in _SHOWN_BY_SNAPSHOTS or (bottleneck.name == "idle" and gpu.processes_known):
        return bottleneck
    reasons, share = gpu.active_reasons, gpu.over(0.0).busy_share
    held = f"held by {', '.join(reasons)} {AT_THAT_MOMENT}" if reasons else ""
    busy = "" if share is None else f"{share:.0%} busy {AT_THAT_MOMENT}"
    said = ", ".join(part for part in (busy, held) if part)
    if bottleneck.name == "idle" or (share is None and not gpu.processes_known):
        nothing, unread = f"no throttle reason active {AT_THAT_MOMENT}", "throttle reasons not in these files"
        return Bottleneck("unattributed", said or (unread if reasons is None else nothing), USE_UNKNOWN)
    holds = "a compute process" if gpu.compute_processes else "no compute process"
    return Bottleneck("unattributed", said if busy else f"{holds}{held and ', '}{held}", "duration unknown")
