"""State on disk: one small JSON document a file, replaced as a whole, and used only as far as it is valid.

Whatever is in a file, reading it gives what is valid in it or a named error, and never more than a set number of bytes
is read. A wrong entry costs that entry, and anything else that is wrong the whole file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from gpu_triage.documents import (
    Place,
    parse_json,
    quoted,
    read_file,
    read_value,
    reason_of,
    replace_file,
    write_file,
)
from gpu_triage.errors import DocumentError, StateError

MOST_BYTES: Final = 1 << 20
"""Bytes that are read of a file at most."""

MOST_AHEAD_SECONDS: Final = 86_400.0
"""A time further in the future is wrong. A host whose hardware clock keeps local time is up to 14 hours ahead until its
time is synchronized; no common clock fault reaches 24 hours."""

_STEPS: Final = {
    "no_permission": "let the exporter's user write there",
    "missing": "create the directory or mount the volume",
    "no_space": "free some space",
    "read_only": "mount it writable, or name another directory with --state.directory",
    "not_a_file": "delete the link or directory that is in its place",
}

T = TypeVar("T")
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """What is in a file.

    Attributes:
        memory: all that is valid.
        refused: what is not, a line each: the file, the key, and what would be right.
    """

    memory: T
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateKind(Generic[T]):
    """One kind of state and its file.

    Attributes:
        name: of the file, and of the collector that its errors are counted for.
        things: what is remembered, as messages call it: ``incidents``.
        history: all of it, as messages call it: ``the incident history``.
        version: of the file's format; a file of another version is of no use.
        nothing: the memory of a host of which nothing is remembered.
        to_document: the file's content as plain values, but for the version.
        from_document: the reverse, of a document without its version; also takes its place, for messages, and the
            latest plausible time in Unix seconds. Raises DocumentError.
    """

    name: str
    things: str
    history: str
    version: int
    nothing: T
    to_document: Callable[[T], dict[str, Any]]
    from_document: Callable[[dict[str, Any], Place, float], Found[T]]

    def read(self, path: Path, now: float) -> Found[T] | None:
        """What the file remembers; None if there is no file. `now` in Unix seconds.

        Raises:
            StateError: ``no_permission``, ``io_error``, ``not_a_file``, ``too_large``, ``malformed`` or
                ``unknown_version``. After the last four the file is of no use: `set_aside` moves it away.
        """
        try:
            content = read_file(path, MOST_BYTES, "let the exporter's user read it")
            return self.decode(content, str(path), _latest(path, now))
        except DocumentError as error:
            if error.reason == "missing":
                return None
            raise StateError(error.reason, str(error)) from error

    def write(self, path: Path, memory: T) -> None:
        """Replace the file atomically. Until its directory is synced, a crash of the host may bring the old file back.

        Raises:
            StateError: ``no_permission``, ``missing``, ``no_space``, ``read_only``, ``not_a_file`` or ``io_error``.
        """
        try:
            replace_file(path, self.encode(memory))
        except OSError as error:
            raise failure(path, error, "cannot be written") from error

    def encode(self, memory: T) -> bytes:
        """The file's content."""
        document = {"version": self.version, **self.to_document(memory)}
        return (json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode(errors="replace")

    def decode(self, content: bytes, file: str, latest: float) -> Found[T]:
        """What a file's content says.

        Args:
            content: of the file.
            file: what messages call it.
            latest: Unix seconds; a later time is refused.

        Raises:
            DocumentError: ``malformed`` or ``unknown_version``.
        """
        where = Place(file)
        document = parse_json(content, file)
        if not isinstance(document, dict):
            raise where.error("is not a table")
        if "version" not in document:
            raise where.at("version").error("is missing")
        version = document.pop("version")
        if version != self.version:
            message = f"{file}: has version {quoted(str(version))}, and this program reads {self.version}"
            raise DocumentError(message, reason="unknown_version")
        return self.from_document(document, where, latest)


def read_entries(
    kind: type[Entry], listed: Any, most: int, where: Place, check: Callable[[Entry, Place], None]
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """The valid entries of a list, only the last ones if there are too many, and what is wrong with the others.

    Args:
        kind: dataclass of an entry.
        listed: the list as read.
        most: entries that are used.
        where: the list's place, for messages.
        check: raises DocumentError for an entry whose values contradict each other.

    Raises:
        DocumentError: it is not a list.
    """
    if not isinstance(listed, list):
        raise where.error("is not a list")
    found: list[Entry] = []
    refused: list[str] = []
    surplus = max(0, len(listed) - most)
    if surplus:
        refused.append(f"{where}: has {len(listed)} entries, {most} at most; the first {surplus} are not used")
    for i in range(surplus, len(listed)):
        try:
            entry = read_value(kind, listed[i], where.at(i))
            check(entry, where.at(i))
        except DocumentError as error:
            refused += error.problems
        else:
            found.append(entry)
    return tuple(found), tuple(refused)


def set_aside(path: Path) -> Path:
    """Move a file that is of no use away, over the one that was moved before; returns where it is now.

    Raises:
        StateError: as `StateKind.write`.
    """
    aside = _aside(path)
    try:
        path.replace(aside)
    except OSError as error:
        raise failure(path, error, "cannot be set aside") from error
    return aside


def copy_aside(path: Path) -> Path:
    """Copy a file of which only a part is usable to where `set_aside` would move it; returns the path of the copy.

    Raises:
        StateError: as `StateKind.write`.
    """
    aside = _aside(path)
    try:
        write_file(aside, read_file(path, MOST_BYTES))
    except OSError as error:
        raise failure(aside, error, "cannot be written") from error
    except DocumentError as error:
        raise StateError(error.reason, str(error)) from error
    return aside


def failure(path: Path, error: OSError, what: str) -> StateError:
    """An error of the operating system in this module's words."""
    reason = reason_of(error)
    step = _STEPS.get(reason, "check the disk")
    return StateError(reason, f"{path}: {what}: {error.strerror or error}; {step}")


def _latest(path: Path, now: float) -> float:
    """The latest time that is plausible in a file.

    If the clock is behind, the time at which the file was last written counts: with an empty battery, a host boots
    years in the past, and what it remembers is valid nevertheless.
    """
    try:
        written_at = path.stat().st_mtime
    except OSError:
        written_at = 0.0
    return max(now, written_at) + MOST_AHEAD_SECONDS


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.corrupt")
