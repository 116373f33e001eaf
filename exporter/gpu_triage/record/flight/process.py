"""Hands what was captured to a separate process, which writes it as a recording (`gpu_triage.record.flight.write`).

Unpacking ten minutes of a host takes tens of megabytes of memory and a second or two of CPU time. The exporter only
passes on the compressed data, a megabyte or two. If the disk hangs, only the child process hangs with it.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpu_triage.driver.child import ChildNotStarted, ChildProcess
from gpu_triage.driver.crash import ending
from gpu_triage.errors import FlightRecorderError
from gpu_triage.record.capture import Captured

AGAIN_SECONDS: Final = 3600.0
"""A finding about the same GPU is recorded at most once in this time."""

WRITING_SECONDS: Final = 120.0
"""Timeout for writing one recording."""


RecordingWriter = Callable[[Path, str, Captured, str], str]
"""Writes a recording to a directory and keeps it within its limits; blocks until the disk is done.

Takes the name of the file, what the host answered, and the judgment that triggered the recording, as JSON. Returns the
file name: that of an existing recording if the same finding was recorded within the last hour. Raises
FlightRecorderError if it can't be written.
"""


class WritingProcess:
    """Writes recordings with a child process. Not thread-safe."""

    def __init__(self) -> None:
        self._child = ChildProcess("gpu_triage.record.flight.write")

    def __call__(self, directory: Path, name: str, captured: Captured, verdict: str) -> str:
        if self._child.hangs:
            raise FlightRecorderError("hangs", "the process of an earlier recording cannot be ended: the disk hangs")
        import pickle  # noqa: PLC0415 - not needed in memory until there is a fault

        try:
            stdout, code = self._child.run(WRITING_SECONDS, pickle.dumps((directory, name, captured, verdict)))
        except ChildNotStarted as error:
            raise FlightRecorderError("no_process", f"no process to write with can be started: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise FlightRecorderError("deadline", f"nothing was written within {WRITING_SECONDS:.0f} s") from error
        try:
            answer = json.loads(stdout)
            if "error" in answer:
                raise FlightRecorderError(str(answer["error"]), str(answer["detail"]))
            return str(answer["file"])
        except (ValueError, TypeError, KeyError) as error:
            raise FlightRecorderError("no_answer", f"the process that writes {ending(code)}") from error
