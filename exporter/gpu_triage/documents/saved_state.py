"""Persistent state: one small JSON document per file, replaced atomically, and used as far as it is valid.

Reading any file gives its valid content or a named error, and the number of bytes read is limited. An invalid entry is
skipped; any other error invalidates the whole file.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from gpu_triage.documents import Place, parse_json, quoted, read_file, read_value
from gpu_triage.documents.files import replace_file, unwritable, write_file
from gpu_triage.errors import DocumentError, HostReadFailed, StateError

MOST_AHEAD_SECONDS: Final = 86_400.0
"""Times further in the future are invalid. A host with its hardware clock in local time is up to 14 hours ahead
until its time is synchronized; no common clock error reaches 24 hours."""

T = TypeVar("T")
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class LoadedState(Generic[T]):
    memory: T  # the valid content
    refused: tuple[str, ...] = ()  # the invalid entries, one line each with file, key and remedy


@dataclass(frozen=True, slots=True)
class StateKind(Generic[T]):
    """One kind of state, and its file format."""

    name: str  # of the file, and of the collector that its errors are counted for
    things: str  # the entries' name in messages: ``incidents``
    history: str  # the whole state's name in messages: ``the incident history``
    version: int  # of the file format; files of other versions are unusable
    nothing: T  # the initial state
    to_document: Callable[[T], dict[str, Any]]  # converts the state to plain values, without the version
    # converts a document back, without the version; also takes its position for messages, and the latest plausible time
    # in Unix seconds. Raises DocumentError.
    from_document: Callable[[dict[str, Any], Place, float], LoadedState[T]]

    def read(self, path: Path, now: float) -> LoadedState[T] | None:
        """Read the file; None if it doesn't exist. `now` is in Unix seconds.

        Raises StateError: ``no_permission``, ``io_error``, ``not_a_file``, ``too_large``, ``malformed`` or
        ``unknown_version``. After the last four the file is unusable: move it away with `set_aside`.
        """
        try:
            content = read_file(path, step="let the exporter's user read it")
            return self.decode(content, str(path), _latest(path, now))
        except DocumentError as error:
            if error.reason == "missing":
                return None
            raise StateError(error.reason, str(error)) from error

    def write(self, path: Path, memory: T) -> None:
        """Replace the file atomically; a host crash may undo it until its directory is synced. Raises StateError."""
        try:
            replace_file(path, self.encode(memory))
        except OSError as error:
            raise failure(path, error, "cannot be written") from error

    def encode(self, memory: T) -> bytes:
        document = {"version": self.version, **self.to_document(memory)}
        return (json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode(errors="replace")

    def decode(self, content: bytes, file: str, latest: float) -> LoadedState[T]:
        """Parse a file; no time may be after `latest`. Raises DocumentError: ``malformed`` or ``unknown_version``."""
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
    """The valid entries (the last, if too many) by `check`, and problems of others. Raises DocumentError: no list."""
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
    """Move an unusable file away, replacing an earlier one; returns the new path. Raises StateError."""
    aside = _aside(path)
    try:
        path.replace(aside)
    except OSError as error:
        raise failure(path, error, "cannot be set aside") from error
    return aside


def copy_aside(path: Path) -> Path:
    """Copy a partially usable file to the path that `set_aside` would use; returns it. Raises StateError."""
    aside = _aside(path)
    try:
        write_file(aside, read_file(path))
    except OSError as error:
        raise failure(aside, error, "cannot be written") from error
    except DocumentError as error:
        raise StateError(error.reason, str(error)) from error
    return aside


def failure(path: Path, error: OSError, what: str) -> StateError:
    return StateError(*unwritable(path, error, "--state.directory", what))


@contextmanager
def read_by_a_collector(directory: Path) -> Iterator[None]:
    """Turn a StateError into the HostReadFailed that counts as a collector's error."""
    try:
        yield
    except StateError as error:
        raise HostReadFailed(error.reason, directory, error.detail) from error


def _latest(path: Path, now: float) -> float:
    """The latest plausible time in a file.

    If the clock is behind, the file's modification time is used: with an empty battery, a host boots with a date years
    in the past, and its saved state is still valid.
    """
    try:
        written_at = path.stat().st_mtime
    except OSError:
        written_at = 0.0
    return max(now, written_at) + MOST_AHEAD_SECONDS


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.corrupt")
