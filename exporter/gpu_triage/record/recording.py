"""Data model of a recording."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gpu_triage.driver.kernel.files import Question


class TimedAnswer(NamedTuple):
    """The answer to a call of NVML, in effect from `seconds` after the recording's beginning."""

    seconds: float
    key: str
    code: int
    outs: tuple[bytes | None, ...]  # output buffers after the call, in full; None if unchanged


class FileAnswer(NamedTuple):
    """What the kernel answered about a path, in effect from `seconds` after the recording's beginning."""

    seconds: float
    question: Question
    path: str  # starts with ``sys`` or ``proc``; never used as a path
    content: bytes | None  # as a hook returns it; None if absent
    failure: str = ""  # the reason if it could not be read


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded host. The first answer to each question also applies before it was given."""

    versions: Mapping[str, str]  # of the recording software (gpu_triage, python, kernel), informational
    monotonic: float  # start, in monotonic and wall clock seconds
    wall: float
    seconds: float  # duration
    missing: tuple[str, ...]  # NVML functions that the library lacks
    answers: tuple[TimedAnswer, ...]  # in chronological order
    files: tuple[FileAnswer, ...]  # likewise
    kmsg: str | None  # kernel log records in /dev/kmsg format; None if it was unreadable
    verdict: str | None = None  # the judgment that triggered the recording, as JSON; None if started by a user
