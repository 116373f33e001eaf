"""What the flight recorder hands to whoever writes it to disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from gpu_triage.flight.ring import RingContent
from gpu_triage.machine import Moment

AGAIN_SECONDS: Final = 3600.0
"""The same finding about the same GPU is recorded once in this time."""

WRITING_SECONDS: Final = 120.0
"""How long it may take to write one."""

Spans = tuple[tuple[int, int], ...]
"""Offset and end of each private member of what a call writes to one place."""


@dataclass(frozen=True, slots=True)
class FlightRecording:
    """All that goes into a recording, before it is masked.

    Attributes:
        name: of the file.
        began: when the ring's content begins.
        seconds: how long it lasts.
        content: of the ring.
        private: where calls write what names a board or a host, by key, for each place.
        missing: NVML functions that the library does not have.
        kmsg: the kernel log; None where it must not be read.
        verdict: the judgement that asked for it, as JSON.
    """

    name: str
    began: Moment
    seconds: float
    content: RingContent
    private: Mapping[str, tuple[Spans, ...]]
    missing: tuple[str, ...]
    kmsg: Path | None
    verdict: str


class RecordingWriter(Protocol):
    """Writes recordings into a directory that it keeps within bounds."""

    def __call__(self, directory: Path, recording: FlightRecording) -> str:
        """Write one; takes as long as the disk does.

        Returns the name of the file: another one where the same finding was recorded within the hour.

        Raises:
            FlightRecorderError: it cannot be written.
        """
