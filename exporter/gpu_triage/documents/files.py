"""Files as plain values: bounded, in UTF-8, and without a key that is written twice."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from gpu_triage.documents.place import quoted
from gpu_triage.errors import DocumentError

MOST_BYTES: Final = 1 << 20

_REASONS: Final = {
    errno.EACCES: "no_permission",
    errno.EPERM: "no_permission",
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.ENOSPC: "no_space",
    errno.EDQUOT: "no_space",
    errno.EROFS: "read_only",
    errno.ELOOP: "not_a_file",  # a symbolic link where none is followed
    errno.EISDIR: "not_a_file",
}


def reason_of(error: OSError) -> str:
    """The name of a cause, as it is counted: ``missing``, ``no_permission``, …, ``io_error``."""
    return _REASONS.get(error.errno or 0, "io_error")


def read_file(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES, step: str = "name a readable file") -> bytes:
    """The content of a regular file; `step` is what to do where it cannot be read.

    Raises:
        DocumentError: with the reason ``missing``, ``no_permission``, ``io_error``, ``not_a_file`` or ``too_large``.
    """
    try:
        # Not to wait for a writer where the path is a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DocumentError(f"{path}: is not a regular file; {step}", reason="not_a_file")
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(most_bytes + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}; {step}"
        raise DocumentError(message, reason=reason_of(error)) from error
    if len(content) > most_bytes:
        message = f"{path}: is larger than {most_bytes >> 20} MiB; name a smaller file"
        raise DocumentError(message, reason="too_large")
    return content


def write_file(path: Path, content: bytes) -> None:
    """Replace a file as a whole: after a crash or an error there is the old one or the new one.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(path, content)
    sync_directory(path.parent)


def replace_file(path: Path, content: bytes) -> None:
    """As `write_file`, but until `sync_directory` is called, a crash of the host may bring the old file back.

    Raises:
        OSError: it cannot be written.
    """
    # Always the same name: crashes leave at most one such file.
    partial = _partial(path)
    # Never write to what is there already: in a world-writable directory it may be a link that somebody planted.
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a crash of the host (fsync).

    Raises:
        OSError: as from fsync.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard_partials(path: Path) -> None:
    """Delete what interrupted writes of this file and of its copies left. Nobody else may be writing them."""
    with suppress(OSError):
        for partial in path.parent.glob(_partial(path.with_name(f"{path.name}*")).name):
            partial.unlink()


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def parse_toml(content: bytes, file: str) -> dict[str, Any]:
    """The top table of a TOML document; `file` is what messages call it.

    Raises:
        DocumentError: not UTF-8, or not TOML.
    """
    # Here and not above: only simulated hosts are TOML, and a daemon on a real host is to take no memory for it.
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415
    else:
        import tomli as tomllib  # noqa: PLC0415
    with _decoded(content, file) as text:
        try:
            return tomllib.loads(text)
        except ValueError as error:
            raise DocumentError(f"{file}: is not valid TOML: {error}") from error


def parse_json(content: bytes, file: str) -> Any:
    """The value of a JSON document; `file` is what messages call it.

    Raises:
        DocumentError: not UTF-8, not JSON, or a key is written twice.
    """

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise DocumentError(f"{file}: the key {quoted(twice)} is written twice; keep one of them")
        return found

    with _decoded(content, file) as text:
        try:
            return json.loads(text, object_pairs_hook=table)
        except json.JSONDecodeError as error:
            raise DocumentError(f"{file}: line {error.lineno}: is not valid JSON: {error.msg}") from error
        except ValueError as error:  # a number of thousands of digits
            raise DocumentError(f"{file}: is not valid JSON: {error}") from error


def parse_yaml(content: bytes, file: str) -> Any:
    """The value of a YAML document: tables, lists and `Text`; None for what is left empty, ``~`` and ``null``.

    Tags are ignored, so no object is ever made. An alias is the same value again, so one repeated a million times
    costs nothing. `file` is what messages call the document; they repeat nothing of its content.

    Raises:
        DocumentError: not UTF-8, not YAML, a key is written twice, or is no plain word.
    """
    from gpu_triage.documents import yaml_values  # noqa: PLC0415 - no scrape needs its memory

    with _decoded(content, file) as text:
        return yaml_values.parse(text, file)


@contextmanager
def _decoded(content: bytes, file: str) -> Iterator[str]:
    """The text to parse; what every parser may raise is raised as DocumentError."""
    try:
        yield content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(f"{file}: is not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except RecursionError as error:
        raise DocumentError(f"{file}: is nested too deeply; write it flatter") from error
