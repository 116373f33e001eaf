"""The report on our own recording: a replay on a clock that nobody has to wait for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from gpu_triage.config import Config
from gpu_triage.diagnosis.measure import measure
from gpu_triage.diagnosis.report.report import FileRead, Report
from gpu_triage.machine import Moment
from gpu_triage.offline.about import About
from gpu_triage.offline.times import written
from gpu_triage.recording.replay import replayed_machine

RECORDING: Final = About(
    "recording of gpu-triage", "of `gpu-triage record`, alone", "all that the exporter reads of a host"
)

_SECONDS: Final = 10.0
"""As long as ``check`` looks at a host: the end of a recording, where what it was made for is seen. One that is shorter
stays as it was at its end."""


class _SteppedClock:
    """A clock that stands still until it is advanced."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def now(self) -> Moment:
        """The present instant."""
        return Moment(self._seconds, self._seconds)

    def advance(self, seconds: float) -> None:
        """Move on."""
        self._seconds += seconds


def check_recording(path: Path, config: Config) -> Report:
    """The report on what ``gpu-triage record`` wrote.

    Raises:
        RecordingError: it cannot be read.
    """
    with replayed_machine(path, clock=_SteppedClock(), last_seconds=_SECONDS) as machine:
        began = machine.clock.now().wall
        report = measure(machine, replace(config, replay=path), _SECONDS).report
    return replace(report, files=(FileRead(str(path), (RECORDING.kind,), written(began), ""),))
