"""Report on a `gpu-triage record` recording, replayed on a simulated clock so that there is no waiting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from gpu_triage.cli.measure import measure
from gpu_triage.cli.offline.about import About
from gpu_triage.cli.offline.times import written
from gpu_triage.judge.report.report import FileRead, Report
from gpu_triage.machine import Moment
from gpu_triage.options.config import Config
from gpu_triage.record.replay import replayed_machine

RECORDING: Final = About(
    "recording of gpu-triage", "of `gpu-triage record`, alone", "all that the exporter reads of a host"
)

_SECONDS: Final = 10.0
"""Replay the last 10 s, as long as ``check`` observes a host: a recording usually ends with the problem it was made
for. A shorter recording stays in its final state."""


class _SteppedClock:
    """A clock that moves only when advanced."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def now(self) -> Moment:
        """The present instant."""
        return Moment(self._seconds, self._seconds)

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self._seconds += seconds


def check_recording(path: Path, config: Config) -> Report:
    """The report on a recording made with ``gpu-triage record``.

    Raises:
        RecordingError: the recording can't be read.
    """
    with replayed_machine(path, clock=_SteppedClock(), last_seconds=_SECONDS) as machine:
        began = machine.clock.now().wall
        report = measure(machine, replace(config, replay=path), _SECONDS).report
    return replace(report, files=(FileRead(str(path), (RECORDING.kind,), written(began), ""),))
