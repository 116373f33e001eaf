"""The ledger of incidents on disk: one small JSON file, replaced as a whole, believed only where it is right.

Whatever is in the file, reading it gives a memory or a named error: never more than MOST_BYTES are read, and nothing
of a file is used unless all of it is valid.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

from gpu_triage.documents import (
    AtMost,
    Between,
    Place,
    parse_json,
    quoted,
    read_file,
    read_value,
    reason_of,
    write_file,
)
from gpu_triage.errors import DocumentError, StateError
from gpu_triage.incidents.ledger import MOST_INCIDENTS, Board, Incident, Memory, Name
from gpu_triage.nvml.session import MAX_GPUS

VERSION: Final = 1
MOST_BYTES: Final = 1 << 20

_STEPS: Final = {
    "no_permission": "let the exporter's user write there",
    "missing": "create the directory or mount the volume",
    "no_space": "free some space",
    "read_only": "mount it writable, or name another directory with --state.directory",
}


@dataclass(frozen=True, slots=True)
class _Document:
    version: int
    boot: Name
    most_gpus: Annotated[int, Between(0, MAX_GPUS)]
    boards: Annotated[tuple[Board, ...], AtMost(MAX_GPUS)]
    incidents: Annotated[tuple[Incident, ...], AtMost(MOST_INCIDENTS)]


def read_memory(path: Path) -> Memory | None:
    """What the file remembers; None where there is no file.

    Raises:
        StateError: ``no_permission``, ``io_error``, ``not_a_file``, ``too_large``, ``malformed`` or
            ``unknown_version``. After the last four the file is of no use: `set_aside` moves it away.
    """
    try:
        return decode(read_file(path, MOST_BYTES, "let the exporter's user read it"), str(path))
    except DocumentError as error:
        if error.reason == "missing":
            return None
        raise StateError(error.reason, str(error)) from error


def write_memory(path: Path, memory: Memory) -> None:
    """Replace the file atomically; after a crash there is the old file or the new one.

    Raises:
        StateError: ``no_permission``, ``missing``, ``no_space``, ``read_only`` or ``io_error``.
    """
    try:
        write_file(path, encode(memory))
    except OSError as error:
        raise failure(path, error, "cannot be written") from error


def set_aside(path: Path) -> Path:
    """Move a file that is of no use away, over the one that was moved before; returns where it is now.

    Raises:
        StateError: as `write_memory`.
    """
    aside = path.with_name(f"{path.name}.corrupt")
    try:
        path.replace(aside)
    except OSError as error:
        raise failure(path, error, "cannot be set aside") from error
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


def decode(content: bytes, file: str) -> Memory:
    """What a file's content says; `file` is what messages call it.

    Raises:
        DocumentError: ``malformed`` or ``unknown_version``.
    """
    where = Place(file)
    document = parse_json(content, file)
    if isinstance(document, dict) and document.get("version", VERSION) != VERSION:
        message = f"{file}: has version {quoted(str(document['version']))}, and this program reads {VERSION}"
        raise DocumentError(message, reason="unknown_version")
    found = read_value(_Document, document, where)
    for i, incident in enumerate(found.incidents):
        if incident.first_at > incident.last_at:
            raise where.at("incidents", i).error("ends before it begins")
    boards = MappingProxyType({board.uuid: board for board in found.boards})
    return Memory(found.boot, found.most_gpus, boards, found.incidents)


def failure(path: Path, error: OSError, what: str) -> StateError:
    """An error of the operating system in this module's words."""
    reason = reason_of(error)
    step = _STEPS.get(reason, "check the disk")
    return StateError(reason, f"{path}: {what}: {error.strerror or error}; {step}")
