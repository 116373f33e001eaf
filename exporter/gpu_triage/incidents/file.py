"""The ledger of incidents on disk: one small JSON file, replaced as a whole, and used only as far as it is valid.

Whatever is in the file, reading it gives a memory or a named error, and never more than MOST_BYTES are read. A wrong
entry costs that entry, and anything else that is wrong the whole file.
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
"""A time further in the future is wrong. A host whose hardware clock keeps local time is up to 14 hours ahead until its
time is synchronized; no common clock fault reaches 24 hours."""

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
    boot: Name = ""
    most_gpus: Annotated[int, Between(0, MAX_GPUS)] = 0


@dataclass(frozen=True, slots=True)
class Found:
    """What is in a file.

    Attributes:
        memory: all that is valid.
        refused: what is not, a line each: the file, the key, and what would be right.
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
    """Replace the file atomically. Until its directory is synced, a crash of the host may bring the old file back.

    Raises:
        StateError: ``no_permission``, ``missing``, ``no_space``, ``read_only``, ``not_a_file`` or ``io_error``.
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
    """Copy a file of which only a part is usable to where `set_aside` would move it; returns the path of the copy.

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
    if "version" not in document:
        raise where.at("version").error("is missing")
    version, all_boards, all_incidents = (document.pop(key, None) for key in ("version", "boards", "incidents"))
    if version != VERSION:
        message = f"{file}: has version {quoted(str(version))}, and this program reads {VERSION}"
        raise DocumentError(message, reason="unknown_version")
    head, refused = _Head(), tuple[str, ...]()
    try:
        head = read_value(_Head, document, where)
    except DocumentError as error:
        refused = error.problems

    def check_board(board: Board, place: Place) -> None:
        _check_time(board.first_seen_at, latest, place.at("first_seen_at"))

    def check_incident(incident: Incident, place: Place) -> None:
        _check_time(incident.last_at, latest, place.at("last_at"))
        if incident.first_at > incident.last_at:
            raise place.at("last_at").error("is before first_at")

    boards, wrong_boards = _entries(Board, all_boards, MAX_GPUS, where.at("boards"), check_board)
    incidents, wrong = _entries(Incident, all_incidents, MOST_INCIDENTS, where.at("incidents"), check_incident)
    known = MappingProxyType({board.uuid: board for board in boards})
    return Found(Memory(head.boot, head.most_gpus, known, incidents), (*refused, *wrong_boards, *wrong))


def _entries(
    kind: type[Entry], listed: Any, most: int, where: Place, check: Callable[[Entry, Place], None]
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """The valid entries of a list, only the last ones if there are too many, and what is wrong with the others."""
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


def failure(path: Path, error: OSError, what: str) -> StateError:
    """An error of the operating system in this module's words."""
    reason = reason_of(error)
    step = _STEPS.get(reason, "check the disk")
    return StateError(reason, f"{path}: {what}: {error.strerror or error}; {step}")
