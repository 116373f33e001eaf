"""Read the files that jobs write, within limits; only changed files are parsed again."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.job_folder import Folder, LinkOutside
from gpu_triage.log import fields
from gpu_triage.read.host import textfile as limits
from gpu_triage.read.host.textfile import TextFile, TextFilesReading
from gpu_triage.read.host.textfile_format import Text, merge, parse
from gpu_triage.read.host.textfile_forms import Form, Refused, inspected_uuid, of_a_job, of_nccl_inspector
from gpu_triage.read.host.textfile_owners import JobFile, fairly, find_files
from gpu_triage.read.metrics.rounds import HostRound
from gpu_triage.read.processes.facts import read_user_names

_MOST_LOGGED: Final = 1000
"""Maximum rejections logged per process, so that jobs cannot fill the log."""

_LONGEST_NAME: Final = 200
"""Maximum characters of a file's path in a label; at up to three bytes each, within the chart's scrape limits."""

_Answer = Text | str

_EMPTY: Final = Text()

log = logging.getLogger(__name__)


class _Identity(NamedTuple):
    """What a cached state depends on: the file's status, and the NVML index of the GPU that it describes, if any."""

    device: int
    inode: int
    modified_ns: int
    size: int
    gpu: str


@dataclass(frozen=True, slots=True)
class _Known:
    """Cached state of a file: what it counts against the total limits (0 if it is never parsed), and its content.

    The identity is None if it was not read. The answer is the reason to reject it instead, or None if it is not parsed
    yet.
    """

    identity: _Identity | None
    size: int
    series: int
    answer: _Answer | None

    @property
    def modified_at(self) -> float | None:
        """When its content was written, in Unix seconds; None if it was not read."""
        return None if self.identity is None else self.identity.modified_ns / 1e9

    @property
    def cost(self) -> float:
        """Share of the total limits that it uses."""
        return max(self.size / limits.MAX_TOTAL_BYTES, self.series / limits.MAX_TOTAL_SERIES)


@dataclass(frozen=True, slots=True)
class _Look:
    """A file in this round, with the time of its content; without descriptor and time if it could not be opened."""

    file: JobFile
    descriptor: int | None
    modified_at: float | None
    known: _Known


@dataclass(slots=True)
class _Room:
    size: int = limits.MAX_TOTAL_BYTES
    series: int = limits.MAX_TOTAL_SERIES

    def limitations(self, known: _Known) -> str | None:
        """Why a file does not fit; None if it does."""
        if known.size > self.size:
            return limits.TOTAL_TOO_LARGE
        return limits.TOTAL_TOO_MANY_SERIES if known.series > self.series else None

    def take(self, known: _Known) -> None:
        """Count a file, even if it is rejected: parsing it costs the same."""
        self.size -= known.size
        self.series -= known.series


class TextFilesReader:
    """Reads ``*.prom`` files; parses a file again only if it was replaced or changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[JobFile, _Known] = {}
        self._answers: tuple[_Answer, ...] = ()
        self._merged = merge(())
        self._logged: set[tuple[str, str]] = set()

    def read(self, host: HostRound) -> TextFilesReading:
        """Read the files.

        Raises:
            HostReadFailed: the directory is missing or cannot be read.
        """
        user_names = read_user_names(host.machine.procfs)
        found = fairly(find_files(self._directory, user_names, host.failures), lambda file: file.owner, lambda _file: 1)
        looks, answers = self._read_files(sorted(found[: limits.MAX_FILES], key=lambda file: file.path), host)
        if not _same(self._answers, answers):
            self._answers, self._merged = answers, merge(answers)
        files = tuple(
            TextFile(_shown(look.file), look.file.owner, look.modified_at, errors)
            for look, errors in zip(looks, self._merged.errors, strict=True)
        )
        host.failures.extend(error for file in files for error in file.errors)
        if len(found) > limits.MAX_FILES:
            host.failures.append(limits.TOO_MANY_FILES)
        self._log(files)
        return TextFilesReading(files, self._merged.families)

    def _read_files(self, files: list[JobFile], host: HostRound) -> tuple[list[_Look], tuple[_Answer, ...]]:
        """Return the state of each file, and its content or the reason to reject it."""
        answers: dict[JobFile, _Answer] = {}
        room = _Room()
        before, self._known = self._known, {}
        with ExitStack() as opened:
            folders = _Folders(self._directory, opened)
            looks = [_look(file, folders, before.get(file), host) for file in files]
            for look in fairly(looks, lambda look: look.file.owner, lambda look: look.known.cost):
                self._known[look.file], answers[look.file] = _answered(look, room)
        return looks, tuple(answers[file] for file in files)

    def _log(self, files: tuple[TextFile, ...]) -> None:
        """Log each reason to reject a file once per process, so that jobs cannot fill the log."""
        for rejected, error in ((file, error) for file in files for error in file.errors):
            if (rejected.name, error) not in self._logged and len(self._logged) < _MOST_LOGGED:
                self._logged.add((rejected.name, error))
                facts = fields(file=rejected.name, owner=rejected.owner, reason=error, remedy=limits.ERRORS[error])
                log.warning("job's file rejected", extra=facts)


class _Folders:
    def __init__(self, directory: Path, opened: ExitStack) -> None:
        self._opened = opened
        self._directory = directory
        self._folders: dict[str, Folder] = {}

    def open(self, file: JobFile) -> int:
        """Open a file and return its descriptor.

        Raises:
            OSError: it cannot be opened.
        """
        descriptor = self._folder(file.folder).open(file.name)
        self._opened.callback(os.close, descriptor)
        return descriptor

    def _folder(self, name: str) -> Folder:
        if name not in self._folders:
            folder = self._folder("").folder(name) if name else Folder(self._directory)
            self._opened.callback(folder.close)
            self._folders[name] = folder
        return self._folders[name]


def _shown(file: JobFile) -> str:
    return os.fsencode(file.path).decode("utf-8", "replace")[:_LONGEST_NAME]


def _same(before: tuple[_Answer, ...], now: tuple[_Answer, ...]) -> bool:
    """Whether all parsed contents are the same objects, that is, nothing was parsed again."""
    pairs = zip(before, now, strict=False)
    same = all(one is other or (isinstance(one, str) and one == other) for one, other in pairs)
    return same and len(before) == len(now)


def _unread(answer: _Answer) -> _Known:
    return _Known(None, 0, 0, answer)


def _look(file: JobFile, folders: _Folders, before: _Known | None, host: HostRound) -> _Look:
    uuid = inspected_uuid(file.name)
    try:
        descriptor = folders.open(file)
        status = os.fstat(descriptor)
        if uuid is None:
            known = _weighed(descriptor, status, before)
        else:
            known = _inspected(descriptor, status, before, host, uuid)
    except LinkOutside:
        return _Look(file, None, None, _unread(limits.LINK_OUTSIDE))
    except OSError:
        return _Look(file, None, None, _unread(limits.UNREADABLE))
    return _Look(file, descriptor, known.modified_at or status.st_mtime, known)


def _inspected(descriptor: int, status: os.stat_result, before: _Known | None, host: HostRound, uuid: str) -> _Known:
    """State of a file of NCCL Inspector, which rewrites it in place, and leaves it as it is while NCCL is idle."""
    gpu = host.gpus.indices.get(uuid)
    if gpu is None:
        return _unread(limits.UNKNOWN_GPU if host.gpus.complete else _EMPTY)
    # Compared with the wall clock, which the file's time comes from.
    now = host.at.wall
    if abs(now - status.st_mtime) > limits.MAX_AGE_SECONDS:
        return _unread(limits.STALE)
    if before is not None and before.identity is not None and before.identity.gpu == gpu:
        being_written = 0 <= now - status.st_mtime < limits.BEING_WRITTEN_SECONDS
        if being_written and now - (before.modified_at or 0.0) <= limits.MAX_AGE_SECONDS:
            return before
    return _weighed(descriptor, status, before, gpu)


def _weighed(descriptor: int, status: os.stat_result, before: _Known | None, gpu: str = "") -> _Known:
    """Determine a file's size and series count; a changed file is read but not parsed, which takes far longer."""
    identity = _Identity(status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, gpu)
    if not stat.S_ISREG(status.st_mode):
        return _Known(identity, 0, 0, limits.NOT_A_FILE)
    if before is not None and before.identity == identity:
        return before
    content = _content(descriptor)
    size, series = len(content), _series_in(content)
    if size > limits.MAX_BYTES:
        return _Known(identity, 0, 0, limits.TOO_LARGE)
    if series > limits.MAX_SERIES:
        return _Known(identity, 0, 0, limits.TOO_MANY_SERIES)
    return _Known(identity, size, series, None)


def _answered(look: _Look, room: _Room) -> tuple[_Known, _Answer]:
    """Parse a file if it fits into the remaining room; return its new state, and its content or why it is rejected."""
    known = look.known
    limitation = room.limitations(known)
    if limitation is not None:
        return replace(known, answer=None), limitation
    answer = _parsed(look) if known.answer is None else known.answer
    room.take(known)
    return replace(known, answer=answer), answer


def _parsed(look: _Look) -> _Answer:
    try:
        content = b"" if look.descriptor is None else _content(look.descriptor)
        if (len(content), _series_in(content)) != (look.known.size, look.known.series):
            return limits.UNREADABLE  # it is being written to
        return parse(content, _form(look))
    except OSError:
        return limits.UNREADABLE
    except Refused as refused:
        return str(refused)


def _form(look: _Look) -> Form:
    uuid, identity = inspected_uuid(look.file.name), look.known.identity
    if uuid is None or identity is None:
        return of_a_job(look.file.owner)
    return of_nccl_inspector(look.file.owner, identity.gpu, uuid)


def _content(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        return file.read(limits.MAX_BYTES + 1)


def _series_in(content: bytes) -> int:
    """Count lines that can be series: those that do not start with ``#``."""
    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    return lines - content.count(b"\n#") - content.startswith(b"#")
