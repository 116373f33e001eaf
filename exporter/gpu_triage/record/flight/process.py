"""Writes a recording in a separate process.

Unpacking ten minutes of a host takes tens of megabytes of memory and a second or two of CPU time. The exporter only
passes on the compressed data, a megabyte or two. If the disk hangs, only the child process hangs with it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from gpu_triage.driver.child import ChildNotStarted, ChildProcess
from gpu_triage.driver.crash import ending
from gpu_triage.errors import FlightRecorderError
from gpu_triage.record.flight.order import WRITING_SECONDS, FlightRecording


class WritingProcess:
    """Writes recordings with a child process. Not thread-safe."""

    def __init__(self) -> None:
        self._child = ChildProcess("gpu_triage.record.flight.write")

    def __call__(self, directory: Path, recording: FlightRecording) -> str:
        """See RecordingWriter."""
        if self._child.hangs:
            raise FlightRecorderError("hangs", "the process of an earlier recording cannot be ended: the disk hangs")
        try:
            stdin, code = self._child.run(WRITING_SECONDS, _handed_over(directory, recording))
        except ChildNotStarted as error:
            raise FlightRecorderError("no_process", f"no process to write with can be started: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise FlightRecorderError("deadline", f"nothing was written within {WRITING_SECONDS:.0f} s") from error
        return _answer(stdin, code)


def _handed_over(directory: Path, recording: FlightRecording) -> bytes:
    """The child's input: a line of JSON, then the ring blocks."""
    about = {
        "directory": str(directory),
        "name": recording.name,
        "began": recording.began.monotonic,
        "wall": recording.began.wall,
        "seconds": recording.seconds,
        "keys": recording.content.keys,
        "blocks": [(block.began, len(block.content)) for block in recording.content.blocks],
        "private": recording.private,
        "missing": recording.missing,
        "kmsg": None if recording.kmsg is None else str(recording.kmsg),
        "verdict": recording.verdict,
    }
    return b"".join((json.dumps(about).encode(), b"\n", *(block.content for block in recording.content.blocks)))


def _answer(stdin: bytes, code: int) -> str:
    try:
        answer = json.loads(stdin)
        if "error" in answer:
            raise FlightRecorderError(str(answer["error"]), str(answer["detail"]))
        return str(answer["file"])
    except (ValueError, TypeError, KeyError) as error:
        raise FlightRecorderError("no_answer", f"the process that writes {ending(code)}") from error
