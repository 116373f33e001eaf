"""Metrics that jobs write to files: step time and throughput, beside the hardware that explains them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from gpu_triage.errors import HostReadFailed
from gpu_triage.hardware.kernel_files import read_names
from gpu_triage.hardware.rounds import HostRound

MAX_FILES: Final = 100
MAX_BYTES: Final = 1 << 20
MAX_SERIES: Final = 5000
"""Bounds on what jobs may publish: files in the directory, bytes and series of one file."""

MAX_TOTAL_BYTES: Final = 4 << 20
MAX_TOTAL_SERIES: Final = 10_000
"""Bounds on all files together: a series takes 1.5 KiB of memory, and 10 µs whenever a page is encoded."""

_OURS: Final = re.compile(r"gpu_(?!job_)|process_|python_")
"""Names that nobody may take: this exporter's own. Jobs have ``gpu_job_`` and all that does not start with gpu_."""

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_TYPES: Final = frozenset({"counter", "gauge", "histogram", "summary", "unknown"})

_Identity = tuple[int, int, int]
_Series = tuple[str, tuple[tuple[str, str], ...]]
_Answer = tuple[Metric, ...] | str


@dataclass(frozen=True, slots=True)
class TextFile:
    """One file of a job.

    Attributes:
        name: of the file, for people: what is no text in it is replaced.
        modified_at: Unix seconds; None when it could not be told.
        error: why it is not republished (``malformed``, ``reserved_name``, …); None when it is.
    """

    name: str
    modified_at: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class TextFilesReading:
    """The files of all jobs.

    Attributes:
        files: by name, at most MAX_FILES.
        families: what they publish, each family once, each series once.
    """

    files: tuple[TextFile, ...]
    families: tuple[Metric, ...]


class _Refused(Exception):
    """A file that is not republished; its argument is the reason."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What a file was found to hold.

    Attributes:
        identity: of the file as it was read.
        size: bytes that it takes of the room for all; 0 where it was not parsed and never will be.
        series: lines that are series, likewise; 0 before it was read.
        answer: the families, or the reason against them; None where there was no room to parse it.
    """

    identity: _Identity
    size: int
    series: int
    answer: _Answer | None


@dataclass(slots=True)
class _Room:
    """What all files together may still take."""

    size: int = MAX_TOTAL_BYTES
    series: int = MAX_TOTAL_SERIES

    def lacks(self, known: _Known) -> str | None:
        """Why a file does not fit; None where it does."""
        if known.size > self.size:
            return "total_too_large"
        return "total_too_many_series" if known.series > self.series else None

    def take(self, known: _Known) -> None:
        """Make a file count, whether or not it can be used: parsing it costs as much."""
        self.size -= known.size
        self.series -= known.series


class TextFilesReader:
    """Reads ``*.prom`` files; parses a file again only when it was replaced or changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, _Known] = {}
        self._merged = _Merged((), (), ())

    def read(self, host: HostRound) -> TextFilesReading:
        """The files now.

        Raises:
            HostReadFailed: the directory is missing or cannot be read.
        """
        names = read_names(self._directory)
        if names is None:
            raise HostReadFailed("missing", self._directory, "no such directory; jobs' metrics are not published")
        wanted = sorted(name for name in names if name.endswith(".prom") and not name.startswith("."))
        room = _Room()
        before, self._known = self._known, {}
        found = [(name, *self._read_file(name, before.get(name), room)) for name in wanted[:MAX_FILES]]
        answers = tuple(answer for _, _, answer in found)
        if not self._merged.made_of(answers):
            self._merged = _merge(answers)
        files = tuple(
            TextFile(os.fsencode(name).decode("utf-8", "replace"), modified_at, error)
            for (name, modified_at, _), error in zip(found, self._merged.errors, strict=True)
        )
        host.failures.extend(file.error for file in files if file.error is not None)
        host.failures.extend(["too_many_files"] * bool(wanted[MAX_FILES:]))
        return TextFilesReading(files, self._merged.families)

    def _read_file(self, name: str, before: _Known | None, room: _Room) -> tuple[float | None, _Answer]:
        try:
            # A link could name a file that only this process may read; a pipe would not return.
            descriptor = os.open(self._directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None, "unreadable"
        try:
            status = os.fstat(descriptor)
            known = self._known[name] = _look(descriptor, status, before, room)
        except OSError:
            return None, "unreadable"
        finally:
            os.close(descriptor)
        return status.st_mtime, known.answer if known.answer is not None else room.lacks(known) or "total_too_large"


def _look(descriptor: int, status: os.stat_result, before: _Known | None, room: _Room) -> _Known:
    """What is in a file, parsed if that is news and there is room."""
    identity = (status.st_ino, status.st_mtime_ns, status.st_size)
    if not stat.S_ISREG(status.st_mode):
        return _Known(identity, 0, 0, "not_a_file")
    if status.st_size > MAX_BYTES:
        return _Known(identity, 0, 0, "too_large")
    known = before
    if known is None or known.identity != identity:
        known = _Known(identity, status.st_size, 0, None)
    if room.lacks(known):
        return replace(known, answer=None)
    if known.answer is None:
        known = _read(descriptor, identity, room)
    if known.answer is not None:
        room.take(known)
    return known


def _read(descriptor: int, identity: _Identity, room: _Room) -> _Known:
    with open(descriptor, "rb", closefd=False) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        return _Known(identity, 0, 0, "too_large")
    # Counted before parsing, which takes a hundred times as long and all the memory.
    series = sum(1 for line in content.split(b"\n") if line.strip() and not line.lstrip().startswith(b"#"))
    if series > MAX_SERIES:
        return _Known(identity, 0, 0, "too_many_series")
    known = _Known(identity, len(content), series, None)
    if room.lacks(known):
        return known
    try:
        return replace(known, answer=_parse(content))
    except _Refused as refused:
        return replace(known, answer=str(refused))


class _Merged(NamedTuple):
    """What was made of several files.

    Attributes:
        answers: what each file held, or why it is not used.
        errors: why each is not republished; None for those that are.
        families: of those, each family once, each series once.
    """

    answers: tuple[_Answer, ...]
    errors: tuple[str | None, ...]
    families: tuple[Metric, ...]

    def made_of(self, answers: tuple[_Answer, ...]) -> bool:
        """Whether it was made of these very answers; families are not compared, only whether they are the same."""
        pairs = zip(self.answers, answers, strict=False)
        same = all(one is other or (isinstance(one, str) and one == other) for one, other in pairs)
        return same and len(self.answers) == len(answers)


def _merge(answers: tuple[_Answer, ...]) -> _Merged:
    """Each file's families are used all or none."""
    families: dict[str, Metric] = {}
    seen: set[_Series] = set()
    errors = tuple(answer if isinstance(answer, str) else _add(answer, families, seen) for answer in answers)
    return _Merged(answers, errors, tuple(families.values()))


def _add(new: tuple[Metric, ...], families: dict[str, Metric], seen: set[_Series]) -> str | None:
    series = {_series(sample.name, sample.labels) for family in new for sample in family.samples}
    if any(family.name in families and families[family.name].type != family.type for family in new):
        return "type_conflict"
    if series & seen:
        return "duplicate_series"
    seen |= series
    for family in new:
        if family.name not in families:
            families[family.name] = Metric(family.name, family.documentation, family.type)
        families[family.name].samples.extend(family.samples)
    return None


def _parse(content: bytes) -> tuple[Metric, ...]:
    try:
        families = tuple(text_string_to_metric_families(content.decode("utf-8")))
    except Exception as error:
        # The parser raises whatever its string handling happens to: ValueError, IndexError, KeyError, ….
        raise _Refused("malformed") from error
    seen: set[_Series] = set()
    for family in families:
        for name, labels in _checked_samples(family):
            series = _series(name, labels)
            if series in seen:
                raise _Refused("duplicate_series")
            seen.add(series)
    return families


def _checked_samples(family: Metric) -> Iterator[tuple[str, dict[str, str]]]:
    if family.type not in _TYPES:
        raise _Refused("malformed")
    for sample in family.samples:
        if _OURS.match(sample.name) or _OURS.match(family.name):
            raise _Refused("reserved_name")
        if sample.timestamp is not None:
            # Prometheus would take the sample for one of that time, again and again.
            raise _Refused("timestamp")
        if not _NAME.fullmatch(sample.name) or not all(map(_LABEL.fullmatch, sample.labels)):
            raise _Refused("malformed")
        yield sample.name, sample.labels


def _series(name: str, labels: dict[str, str]) -> _Series:
    return name, tuple(sorted(labels.items()))
