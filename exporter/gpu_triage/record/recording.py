"""Data model of a recording."""

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from gpu_triage.documents import Range

MOST_MOMENT: Final = 1e11  # beyond any real clock
MOST_DURATION: Final = 3600.0
"""Several times what the program records. A judge replays all of it."""


FOUND, ABSENT, FAILED = range(3)
"""Codes of answers about files. The only output is the content, as a hook returns it, or the reason of the failure."""


class TimedAnswer(NamedTuple):
    """The answer to a call of NVML or to a question about a file, from `seconds` after the recording's beginning on."""

    seconds: float
    key: str  # of a file: ``QUESTION PATH``; the path starts with ``sys`` or ``proc``, and is never used as one
    code: int
    outs: tuple[bytes | None, ...]  # output buffers after the call, in full; None if unchanged


_Moment = Annotated[float, Range(0, MOST_MOMENT)]


@dataclass(frozen=True, slots=True)
class About:
    """Where and when a host was recorded."""

    versions: dict[str, str]  # of the recording software (gpu_triage, python, kernel), informational
    monotonic: _Moment  # start, in monotonic and wall clock seconds
    wall: _Moment
    seconds: Annotated[float, Range(0, MOST_DURATION)]  # duration


@dataclass(frozen=True, slots=True)
class Recording(About):
    """A recorded host. The first answer to each question also applies before it was given."""

    answers: tuple[TimedAnswer, ...]  # of NVML, in chronological order
    files: tuple[TimedAnswer, ...]  # likewise
    kmsg: str | None  # kernel log records in /dev/kmsg format; None if it was unreadable
    verdict: str | None = None  # the judgment that triggered the recording, as JSON; None if started by a user
