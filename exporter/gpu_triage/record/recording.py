"""Data model of a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

MOST_BYTES: Final = 256 << 20  # per recording, uncompressed

Kind = Literal["file", "link", "folder", "gone"]


class NvmlAnswer(NamedTuple):
    """The response of a call, in effect from `seconds` after the recording's beginning."""

    seconds: float
    key: str
    code: int
    outs: tuple[bytes | None, ...]  # output buffers after the call; None if unchanged


class FileState(NamedTuple):
    """State of a file, link or folder, in effect from `seconds` after the recording's beginning."""

    seconds: float
    path: str  # starts with ``sys/`` or ``proc/``
    kind: Kind
    text: str  # content of a file, or target of a link


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded host."""

    versions: Mapping[str, str]  # of the recording software (gpu_triage, python, kernel), informational
    monotonic: float  # start, in monotonic and wall clock seconds
    wall: float
    seconds: float  # duration
    missing: tuple[str, ...]  # NVML functions that the library lacks
    answers: tuple[NvmlAnswer, ...]  # in chronological order
    files: tuple[FileState, ...]
    kmsg: str | None  # kernel log records in /dev/kmsg format; None if it was unreadable
    verdict: str | None = None  # the judgment that triggered the recording, as JSON; None if started by a user
