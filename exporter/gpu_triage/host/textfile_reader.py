"""Reads the files that jobs write, within bounds; only what changed is parsed again."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gpu_triage.errors import HostReadFailed
from gpu_triage.host.textfile import TextFile, TextFilesReading
from gpu_triage.host.textfile_families import Content, Refused, merge, parse
from gpu_triage.host.textfile_folder import Folder, LinkOutside
from gpu_triage.kernel.files import read_names
from gpu_triage.subjects.rounds import HostRound

MAX_FILES: Final = 100
MAX_BYTES: Final = 1 << 20
MAX_SERIES: Final = 5000
"""Bounds on what jobs may publish: files in the directory, bytes and series of one file."""

MAX_TOTAL_BYTES: Final = 4 << 20
MAX_TOTAL_SERIES: Final = 10_000
"""Bounds on all files together: a series takes 1.5 KiB of memory, and 10 µs whenever a page is encoded."""

_Identity = tuple[int, int, int, int]
_Answer = Content | str


@dataclass(frozen=True, slots=True)
class _Known:
    """What a file was found to hold.

    Attributes:
        identity: of the file as it was read.
        size: bytes that it takes of the room for all; 0 where it was not parsed and never will be.
        series: lines that are series, likewise; 0 before it was read.
        answer: what can be used of it, or the reason against it; None where there was no room to parse it.
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
        self._answers: tuple[_Answer, ...] = ()
        self._merged = merge(())

    def read(self, host: HostRound) -> TextFilesReading:
        """The files now.

        Raises:
            HostReadFailed: the directory is missing or cannot be read.
        """
        names = read_names(self._directory)
        if names is None:
            raise HostReadFailed("missing", self._directory, "no such directory; jobs' metrics are not published")
        wanted = sorted(name for name in names if name.endswith(".prom") and not name.startswith("."))
        found = self._read_files(wanted[:MAX_FILES])
        answers = tuple(answer for _, _, answer in found)
        if not _same(self._answers, answers):
            self._answers, self._merged = answers, merge(answers)
        files = tuple(
            TextFile(os.fsencode(name).decode("utf-8", "replace"), modified_at, errors)
            for (name, modified_at, _), errors in zip(found, self._merged.errors, strict=True)
        )
        host.failures.extend(error for file in files for error in file.errors)
        host.failures.extend(["too_many_files"] * bool(wanted[MAX_FILES:]))
        return TextFilesReading(files, self._merged.families)

    def _read_files(self, names: list[str]) -> list[tuple[str, float | None, _Answer]]:
        room = _Room()
        before, self._known = self._known, {}
        try:
            folder = Folder(self._directory)
        except OSError:
            return [(name, None, "unreadable") for name in names]
        try:
            return [(name, *self._read_file(folder, name, before.get(name), room)) for name in names]
        finally:
            folder.close()

    def _read_file(self, folder: Folder, name: str, before: _Known | None, room: _Room) -> tuple[float | None, _Answer]:
        try:
            descriptor = folder.open(name)
        except LinkOutside:
            return None, "link_outside"
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


def _same(before: tuple[_Answer, ...], now: tuple[_Answer, ...]) -> bool:
    """Whether the files are the same; what is in them is not compared, only whether it was parsed anew."""
    pairs = zip(before, now, strict=False)
    same = all(one is other or (isinstance(one, str) and one == other) for one, other in pairs)
    return same and len(before) == len(now)


def _look(descriptor: int, status: os.stat_result, before: _Known | None, room: _Room) -> _Known:
    """What is in a file, parsed if that is news and there is room."""
    identity = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
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
        return replace(known, answer=parse(content))
    except Refused as refused:
        return replace(known, answer=str(refused))
