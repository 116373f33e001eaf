"""Report on a `gpu-triage record` recording, replayed on a simulated clock so that there is no waiting."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpu_triage.cli.machines import stepped_host
from gpu_triage.cli.measure import measure
from gpu_triage.cli.offline.about import About
from gpu_triage.cli.offline.times import written
from gpu_triage.judge.report.report import FileRead, Report
from gpu_triage.options.config import Config

RECORDING: Final = About(
    "recording of gpu-triage", "of `gpu-triage record`, alone", "all that the exporter reads of a host"
)

_SECONDS: Final = 10.0
"""Replay the last 10 s, as long as ``check`` observes a host: a recording usually ends with the problem it was made
for. A shorter recording stays in its final state."""


def check_recording(path: Path, config: Config) -> Report:
    """The report on a recording made with ``gpu-triage record``; raises RecordingError if it cannot be read."""
    config = replace(config, replay=path)
    with ExitStack() as stack:
        host = stepped_host(config, stack, _SECONDS)
        began = host.machine.clock.now().wall
        report = measure(host.machine, host.config, _SECONDS).report
    return replace(report, files=(FileRead(str(path), (RECORDING.kind,), written(began), ""),))
