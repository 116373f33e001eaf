"""The verdict of a running exporter on its own host, from what it published lately; asks no hardware."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_triage.diagnosis.evidence import Recorder
from gpu_triage.diagnosis.obstacles import obstacle
from gpu_triage.diagnosis.report import Report, report_of
from gpu_triage.diagnosis.view import HostView, view_of
from gpu_triage.sampler.recent import Snapshot


@dataclass(frozen=True, slots=True)
class Standing:
    """How the host stands.

    Attributes:
        report: the verdict, as `gpu-triage check` gives it.
        host: the evidence behind it.
    """

    report: Report
    host: HostView


def standing_of(snapshots: Sequence[Snapshot], host_name: str, wall: float) -> Standing:
    """How a host stands.

    Args:
        snapshots: what was published, oldest first; before the first there is nothing to judge.
        host_name: of the host.
        wall: Unix seconds to date an empty verdict with; others are of the last snapshot's time.
    """
    recorder = Recorder()
    for snapshot in snapshots:
        recorder.note(snapshot)
    seconds = 0.0
    if snapshots:
        seconds, wall = snapshots[-1].at.monotonic - snapshots[0].at.monotonic, snapshots[-1].at.wall
    evidence = recorder.evidence(seconds, wall)
    host = view_of(evidence)
    return Standing(report_of(evidence, host_name, obstacle(evidence, host.driver_error)), host)
