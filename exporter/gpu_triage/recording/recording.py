"""What a recording holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

MOST_BYTES: Final = 256 << 20  # of one recording, unpacked

Kind = Literal["file", "link", "folder", "gone"]


class NvmlAnswer(NamedTuple):
    """What a call answered, from so many seconds after the recording's beginning on."""

    seconds: float
    key: str
    code: int
    outs: tuple[bytes | None, ...]  # what was in the memory it writes to afterwards; None where that had not changed


class FileState(NamedTuple):
    """A file, link or folder, from so many seconds after the recording's beginning on."""

    seconds: float
    path: str  # below the root: ``sys/…`` or ``proc/…``
    kind: Kind
    text: str  # of a file, or the target of a link


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded host."""

    versions: Mapping[str, str]  # of what recorded it (gpu_triage, python, nvidia_ml_py, kernel), for people
    monotonic: float  # the instant at which it began
    wall: float
    seconds: float  # how long it lasted
    missing: tuple[str, ...]  # NVML functions that the library did not have
    answers: tuple[NvmlAnswer, ...]  # in the order of time
    files: tuple[FileState, ...]
    kmsg: str | None  # records of the kernel log, in its own format; None where it could not be read
    verdict: str | None = None  # the judgement that was the reason to record, as JSON; None where a person was
