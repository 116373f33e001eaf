"""The data that the flight recorder hands to the writer, and the writer's interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_triage.machine import Moment
from gpu_triage.record.flight.ring import RingContent
from gpu_triage.record.library import Spans

AGAIN_SECONDS: Final = 3600.0
"""A finding about the same GPU is recorded at most once in this time."""

WRITING_SECONDS: Final = 120.0
"""Timeout for writing one recording."""


@dataclass(frozen=True, slots=True)
class FlightRecording:
    """Everything that goes into a recording, before masking.

    Attributes:
        name: file name.
        began: start of the ring's content.
        seconds: its duration.
        content: content of the ring.
        private: position of identifying data in each output buffer, by call key.
        missing: NVML functions that the library lacks.
        kmsg: path of the kernel log; None if it must not be read.
        verdict: the judgment that triggered the recording, as JSON.
    """

    name: str
    began: Moment
    seconds: float
    content: RingContent
    private: Mapping[str, tuple[Spans, ...]]
    missing: tuple[str, ...]
    kmsg: Path | None
    verdict: str


RecordingWriter = Callable[[Path, FlightRecording], str]
"""Writes a recording to a directory and keeps it within its limits; blocks until the disk is done.

Returns the file name: that of an existing recording if the same finding was recorded within the last hour. Raises
FlightRecorderError if it can't be written.
"""
