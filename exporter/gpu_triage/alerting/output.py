"""Writes rules, inhibitions and dashboards into a folder, and touches no file that is not ours."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpu_triage.alerting.writer import MARK
from gpu_triage.errors import ConfigError, RulesNotWritten

_MARKS: Final = (MARK, '"uid": "gpu-triage-')
"""By these a file is known as one that this program wrote: rules and inhibitions, dashboards."""

_MODE: Final = 0o644
_FOLDERS: Final = ("rules", "rules/compat")


def write_files(folder: Path, files: Mapping[str, str], *, force: bool) -> tuple[str, ...]:
    """Write every file, each in whole or not at all; returns the paths of rules of ours that are gone.

    A file of rules that was written before and is not wanted any more is removed: Prometheus would go on with it.

    Args:
        folder: where to write; made if it is missing.
        files: text by path below the folder.
        force: whether to replace files that this program did not write.

    Raises:
        ConfigError: a file of somebody else is in the way; nothing is written then.
        RulesNotWritten: the file system refuses.
    """
    try:
        foreign = [] if force else [name for name in files if not _ours_or_missing(folder / name)]
        if foreign:
            raise ConfigError(
                f"{folder / foreign[0]}: was not written by gpu-triage rules; choose another folder, "
                "or replace it with --force"
            )
        for name, text in files.items():
            _write(folder / name, text)
        gone = tuple(sorted(_ours(folder) - files.keys()))
        for name in gone:
            (folder / name).unlink()
    except OSError as error:
        cause = error.strerror or str(error)
        raise RulesNotWritten(f"{error.filename or folder}: {cause}; choose a folder that you may write to") from error
    return gone


def _ours(folder: Path) -> set[str]:
    paths = (path for below in _FOLDERS for path in (folder / below).glob("*.yml"))
    return {path.relative_to(folder).as_posix() for path in paths if _is_marked(path)}


def _ours_or_missing(path: Path) -> bool:
    return not path.exists() or _is_marked(path)


def _is_marked(path: Path) -> bool:
    if not path.is_file():
        return False
    text = path.read_bytes()
    return any(mark.encode() in text for mark in _MARKS)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), _MODE)
            os.fsync(file.fileno())
        Path(partial).replace(path)
    except OSError:
        Path(partial).unlink(missing_ok=True)
        raise
