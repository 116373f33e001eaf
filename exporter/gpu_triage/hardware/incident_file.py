"""The ledger of incidents on disk: one small JSON file, replaced as a whole, believed only where it is right.

Whatever is in the file, reading it gives a memory or a named error: never more than MOST_BYTES are read, and nothing
of a file is used unless all of it is valid.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from gpu_triage.errors import StateError
from gpu_triage.hardware.incident_ledger import LOST, MOST_INCIDENTS, RESET, UNCORRECTED, Board, Incident, Memory
from gpu_triage.hardware.nvml import MAX_GPUS

VERSION: Final = 1
MOST_BYTES: Final = 1 << 20

_MODE: Final = 0o644
_REASONS: Final = {
    errno.EACCES: "no_permission",
    errno.EPERM: "no_permission",
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.ENOSPC: "no_space",
    errno.EDQUOT: "no_space",
    errno.EROFS: "read_only",
}
_STEPS: Final = {
    "no_permission": "let the exporter's user write there",
    "missing": "create the directory or mount the volume",
    "no_space": "free some space",
    "read_only": "mount it writable, or name another directory with --state.directory",
}
_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{0,80}")
_KIND: Final = re.compile(rf"[0-9]{{1,5}}|{LOST}|{UNCORRECTED}|{RESET}")
_MOST_SECONDS: Final = 1e11
_MOST_ERRORS: Final = 1 << 48
_MOST_ACTION: Final = 1 << 16

Fields = dict[str, Any]
"""An object of the file, before it is checked."""


def read_memory(path: Path) -> Memory | None:
    """What the file remembers; None where there is no file.

    Raises:
        StateError: ``no_permission``, ``io_error``, ``not_a_file``, ``too_large``, ``malformed`` or
            ``unknown_version``. After the last four the file is of no use: `set_aside` moves it away.
    """
    try:
        # A pipe would not return.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        failed = failure(path, error, "cannot be read")
        if failed.reason == "missing":
            return None
        raise failed from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StateError("not_a_file", f"{path}: is no file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise failure(path, error, "cannot be read") from error
    finally:
        os.close(descriptor)
    if len(content) > MOST_BYTES:
        raise StateError("too_large", f"{path}: is larger than {MOST_BYTES >> 20} MiB")
    try:
        return decode(content)
    except StateError as error:
        raise StateError(error.reason, f"{path}: {error.detail}") from error


def write_memory(path: Path, memory: Memory) -> None:
    """Replace the file atomically; after a crash there is the old file or the new one.

    Raises:
        StateError: ``no_permission``, ``missing``, ``no_space``, ``read_only`` or ``io_error``.
    """
    # Always the same name: a crash leaves one such file behind at most.
    partial = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(encode(memory))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
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


def decode(content: bytes) -> Memory:
    """What a file's content says.

    Raises:
        StateError: ``malformed`` or ``unknown_version``.
    """
    try:
        document = _object(json.loads(content.decode("utf-8")))
        version = document["version"]
        if version == VERSION:
            return _memory(document)
    except (ValueError, KeyError, RecursionError) as error:
        raise StateError("malformed", f"cannot be understood: {error}") from error
    raise StateError("unknown_version", f"has version {str(version)[:20]!r}, and this program reads {VERSION}")


def failure(path: Path, error: OSError, what: str) -> StateError:
    """An error of the operating system in this module's words."""
    reason = _REASONS.get(error.errno or 0, "io_error")
    step = _STEPS.get(reason, "check the disk")
    return StateError(reason, f"{path}: {what}: {error.strerror or error}; {step}")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _memory(document: Fields) -> Memory:
    boards = tuple(_board(_object(each)) for each in _list(document, "boards", MAX_GPUS))
    return Memory(
        boot=_name(document, "boot"),
        most_gpus=_whole(document, "most_gpus", MAX_GPUS),
        boards=MappingProxyType({board.uuid: board for board in boards}),
        incidents=tuple(_incident(_object(each)) for each in _list(document, "incidents", MOST_INCIDENTS)),
    )


def _incident(fields: Fields) -> Incident:
    kind = fields["kind"]
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise ValueError("an incident of no known kind")
    first_at, last_at = _seconds(fields, "first_at"), _seconds(fields, "last_at")
    if first_at > last_at:
        raise ValueError("an incident that ends before it begins")
    return Incident(
        kind=kind,
        uuid=_name(fields, "uuid"),
        serial=_name(fields, "serial"),
        slot=_name(fields, "slot"),
        first_at=first_at,
        last_at=last_at,
        boot=_name(fields, "boot"),
        uptime_seconds=_seconds(fields, "uptime_seconds"),
    )


def _board(fields: Fields) -> Board:
    return Board(
        uuid=_name(fields, "uuid"),
        serial=_name(fields, "serial"),
        slot=_name(fields, "slot"),
        first_seen_at=_seconds(fields, "first_seen_at"),
        boot=_name(fields, "boot"),
        uncorrected=_optional(fields, "uncorrected", lambda: _number(fields, "uncorrected", _MOST_ERRORS)),
        recovery_action=_optional(fields, "recovery_action", lambda: _whole(fields, "recovery_action", _MOST_ACTION)),
    )


def _object(value: object) -> Fields:
    if not isinstance(value, dict):
        raise ValueError("something else where an object should be")  # noqa: TRY004 - a fault of the file, not a bug
    return value


def _list(fields: Fields, key: str, most: int) -> list[object]:
    value = fields[key]
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"{key} is no list of at most {most}")
    return value


def _name(fields: Fields, key: str) -> str:
    value = fields[key]
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"{key} is no name")
    return value


def _number(fields: Fields, key: str, most: float) -> float:
    value = fields[key]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 <= value <= most:
        raise ValueError(f"{key} is no number from 0 to {most:g}")
    return float(value)


def _whole(fields: Fields, key: str, most: int) -> int:
    value = fields[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{key} is no whole number from 0 to {most}")
    return value


def _seconds(fields: Fields, key: str) -> float:
    return _number(fields, key, _MOST_SECONDS)


def _optional(fields: Fields, key: str, read: Callable[[], Any]) -> Any:
    return None if fields[key] is None else read()
