"""Reads and writes files of bounded size, in UTF-8; duplicate keys are errors."""

import errno
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pkgutil import get_data
from typing import Any, BinaryIO, Final

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
    errno.ELOOP: "not_a_file",  # a symbolic link where none is allowed
    errno.EISDIR: "not_a_file",
}

FileIdentity = tuple[int, int, int, int]


def reason_of(error: OSError) -> str:
    """The reason for an error, as used in metrics: ``missing``, ``no_permission``, …, ``io_error``."""
    return _REASONS.get(error.errno or 0, "io_error")


def unwritable(path: Path, error: OSError, option: str, what: str = "cannot be written") -> tuple[str, str]:
    """The reason and message, with the next step, for a file in a directory that is named by an option."""
    steps = {
        "no_permission": "let the exporter's user write there",
        "missing": "create the directory or mount the volume",
        "no_space": "free some space",
        "read_only": f"mount it writable, or name another directory with {option}",
        "not_a_file": "delete the link or directory that is in its place",
    }
    reason = reason_of(error)
    return reason, f"{path}: {what}: {error.strerror or error}; {steps.get(reason, 'check the disk')}"


def read_file(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES, step: str = "name a readable file") -> bytes:
    """The content of a regular file. Raises DocumentError with the reason, and `step`, if it is unreadable."""
    try:
        # O_NONBLOCK, so that opening a pipe doesn't wait for a writer.
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


def packaged(package: str, name: str) -> str:
    """The text of a file that is part of a package; the running daemon's package may exist only in memory."""
    content = get_data(package, name)
    assert content is not None  # noqa: S101 - every loader of ours reads files
    return content.decode()


def packaged_toml(package: str, name: str) -> dict[str, Any]:
    return parse_toml(packaged(package, name).encode(), name)


def identity_of(path: Path) -> FileIdentity | None:
    """A value that changes when a file is replaced or written to; None if the file can't be examined."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def write_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace a file atomically and durably, with this `mode` whatever the umask. Raises OSError, as do those below."""
    with replacing(path, mode) as file:
        file.write(content)
    sync_directory(path.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Like `write_file`, but not durable until `sync_directory` is called: a host crash may restore the old file."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """A new file, which replaces the one at `path` when the block has ended without an exception."""
    # Always the same name, so that crashes leave at most one such file.
    partial = _partial(path)
    # Never write to an existing file: in a world-writable directory it may be a link planted by an attacker.
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def sync_directory(directory: Path) -> None:
    """Make directory entries survive a host crash (fsync). Raises OSError: from open or fsync."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard_partials(path: Path) -> None:
    """Delete leftovers of interrupted writes of this file and its copies. No other process may be writing them."""
    with suppress(OSError):
        for partial in path.parent.glob(_partial(path.with_name(f"{path.name}*")).name):
            # It may belong to another user and be undeletable: harmless, since nothing is written to it.
            with suppress(OSError):
                partial.unlink()


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def parse_toml(content: bytes, file: str) -> dict[str, Any]:
    """The table of a TOML document; `file` is its name in messages. Raises DocumentError if it is invalid."""
    # Imported lazily: the daemon's child processes use no TOML.
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
    """The value of a JSON document named `file`. Raises DocumentError if it is invalid, or has a key twice."""

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
        except ValueError as error:  # a number with thousands of digits
            raise DocumentError(f"{file}: is not valid JSON: {error}") from error


def parse_yaml(content: bytes, file: str) -> Any:
    """The value of a YAML document: tables, lists and `Text`; None for empty values, ``~`` and ``null``.

    Tags are ignored, so no objects are constructed. An alias refers to the same value, so repeating it a million times
    costs nothing. `file` is the name for error messages, which never quote the content. Raises DocumentError if the
    content is not UTF-8 or not YAML, or a key is duplicated or isn't a plain word.
    """
    from gpu_triage.documents import yaml_values  # noqa: PLC0415 - scrapes don't need it in memory

    with _decoded(content, file) as text:
        return yaml_values.parse(text, file)


@contextmanager
def _decoded(content: bytes, file: str) -> Iterator[str]:
    try:
        yield content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(f"{file}: is not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except RecursionError as error:
        raise DocumentError(f"{file}: is nested too deeply; write it flatter") from error
