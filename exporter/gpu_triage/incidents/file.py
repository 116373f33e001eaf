"""The ledger of incidents on disk: one small JSON file, replaced as a whole, believed only where it is right.

Whatever is in the file, reading it gives a memory or a named error, and never more than MOST_BYTES are read. An entry
that is wrong is refused alone; a file that is wrong as a whole is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar

from gpu_triage.documents import (
    Between,
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
from gpu_triage.incidents.ledger import DAY_SECONDS, MOST_INCIDENTS, Board, Incident, Memory, Name
from gpu_triage.nvml.session import MAX_GPUS

VERSION: Final = 1
MOST_BYTES: Final = 1 << 20

MOST_AHEAD_SECONDS: Final = DAY_SECONDS
"""A time that is further in the future is wrong. A host whose hardware clock keeps local time is up to 14 hours ahead
until the time is synchronized; no common fault of a clock makes it a day."""

_STEPS: Final = {
    "no_permission": "let the exporter's user write there",
    "missing": "create the directory or mount the volume",
    "no_space": "free some space",
    "read_only": "mount it writable, or name another directory with --state.directory",
    "not_a_file": "delete the link or directory that is in its place",
}

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class _Head:
    version: int
    boot: Name
    most_gpus: Annotated[int, Between(0, MAX_GPUS)]


@dataclass(frozen=True, slots=True)
class Found:
    """What was in a file.

    Attributes:
        memory: all of it that is right.
        refused: what is wrong, a line each: the file, the key, and what would be right.
    """

    memory: Memory
    refused: tuple[str, ...] = ()


def read_memory(path: Path, now: float) -> Found | None:
    """What the file remembers; None where there is no file. `now` in Unix seconds.

    Raises:
        StateError: ``no_permission``, ``io_error``, ``not_a_file``, ``too_large``, ``malformed`` or
            ``unknown_version``. After the last four the file is of no use: `set_aside` moves it away.
    """
    try:
        return decode(read_file(path, MOST_BYTES, "let the exporter's user read it"), str(path), _latest(path, now))
    except DocumentError as error:
        if error.reason == "missing":
            return None
        raise StateError(error.reason, str(error)) from error


def write_memory(path: Path, memory: Memory) -> None:
    """Replace the file atomically; once its directory is synced, a crash does not bring the old one back.

    Raises:
        StateError: ``no_permission``, ``missing``, ``no_space``, ``read_only`` or ``io_error``.
    """
    try:
        replace_file(path, encode(memory))
    except OSError as error:
        raise failure(path, error, "cannot be written") from error


def set_aside(path: Path) -> Path:
    """Move a file that is of no use away, over the one that was moved before; returns where it is now.

    Raises:
        StateError: as `write_memory`.
    """
    aside = _aside(path)
    try:
        path.replace(aside)
    except OSError as error:
        raise failure(path, error, "cannot be set aside") from error
    return aside


def copy_aside(path: Path) -> Path:
    """As `set_aside` with a file that is of some use: it stays where it is until it is written anew.

    Raises:
        StateError: as `write_memory`.
    """
    aside = _aside(path)
    try:
        write_file(aside, read_file(path, MOST_BYTES))
    except OSError as error:
        raise failure(aside, error, "cannot be written") from error
    except DocumentError as error:
        raise StateError(error.reason, str(error)) from error
    return aside


def encode(memory: Memory) -> bytes:
    """The file's content."""
    document = {
        "version": VERSION,
        "boot": memory.boot,
        "most_gpus": memory.most_gpus,
        "boards": [asdict(board) for board in memory.boards.values()],
        "incidents": [asdict(incident) for incident in memory.incidents],
    }
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()


def decode(content: bytes, file: str, latest: float) -> Found:
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
    if document.get("version", VERSION) != VERSION:
        message = f"{file}: has version {quoted(str(document['version']))}, and this program reads {VERSION}"
        raise DocumentError(message, reason="unknown_version")
    listed = {key: document.pop(key, None) for key in ("boards", "incidents")}
    head = read_value(_Head, document, where)

    def check_board(board: Board, place: Place) -> None:
        _check_time(board.first_seen_at, latest, place.at("first_seen_at"))

    def check_incident(incident: Incident, place: Place) -> None:
        _check_time(incident.last_at, latest, place.at("last_at"))
        if incident.first_at > incident.last_at:
            raise place.at("last_at").error("is before first_at")

    boards, no_boards = _entries(Board, listed["boards"], MAX_GPUS, where.at("boards"), check_board)
    incidents, none = _entries(Incident, listed["incidents"], MOST_INCIDENTS, where.at("incidents"), check_incident)
    known = MappingProxyType({board.uuid: board for board in boards})
    return Found(Memory(head.boot, head.most_gpus, known, incidents), no_boards + none)


def _entries(
    kind: type[Entry], listed: Any, most: int, where: Place, check: Callable[[Entry, Place], None]
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """The entries of a list that are right, the last ones if there are too many, and what is wrong with the others."""
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


def _check_time(at: float, latest: float, where: Place) -> None:
    if at > latest:
        told = datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise where.error(f"is {told}, more than {MOST_AHEAD_SECONDS / 3600:.0f} hours in the future")


def _latest(path: Path, now: float) -> float:
    """The latest time that can be true in a file.

    By the clock, or by when the file was last written if the clock is behind: with an empty battery, a host boots years
    in the past, and what it remembers is right nevertheless.
    """
    try:
        written_at = path.stat().st_mtime
    except OSError:
        written_at = 0.0
    return max(now, written_at) + MOST_AHEAD_SECONDS


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.corrupt")


def failure(path: Path, error: OSError, what: str) -> StateError:
    """An error of the operating system in this module's words."""
    reason = reason_of(error)
    step = _STEPS.get(reason, "check the disk")
    return StateError(reason, f"{path}: {what}: {error.strerror or error}; {step}")
