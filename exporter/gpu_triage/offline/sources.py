"""The files to read: named ones, standard input, what is in folders and in archives of folders."""

from __future__ import annotations

import io
import lzma
import os
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from gpu_triage.errors import ConfigError
from gpu_triage.offline.lines import Bytes

STANDARD_INPUT: Final = "-"
DAMAGED: Final = (OSError, EOFError, ValueError, TypeError, tarfile.TarError, zlib.error, lzma.LZMAError)
"""What reading a damaged archive raises; TypeError is tarfile's own, of a header that ends early."""

_ABOUT_RECORDING: Final = "recording.json"
_FEW_FILES: Final = 100
"""In a folder with no more than these, every file is read; in a larger one, such as a sosreport, those named right."""
_MOST_FILES: Final = 20_000
_NAMES: Final = ("nvidia", "smi", "dmesg", "kern", "messages", "syslog", "journal", "lspci", "bug-report", "bug_report")
_BOUNDARY: Final = b"\n" + b"_" * 44 + b"\n\n"
"""Between two files, as bug reports write it between theirs."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file.

    Attributes:
        name: for people.
        size: bytes on disk; None where unknown.
        modified_at: Unix seconds; None where unknown.
    """

    name: str
    size: int | None
    modified_at: float | None
    open: Callable[[], AbstractContextManager[Bytes]]


def is_recording(path: Path) -> bool:
    """Whether this is what ``gpu-triage record`` wrote."""
    if path.is_dir():
        return (path / _ABOUT_RECORDING).is_file()
    try:
        if not path.name.endswith(".tar.gz") or not path.is_file():
            return False
        with tarfile.open(path, "r|gz") as archive:
            first = archive.next()
    except DAMAGED:
        return False
    return first is not None and first.name.rpartition("/")[2] == _ABOUT_RECORDING


def sources(path: str) -> Iterator[Source]:
    """The files that a path stands for.

    Raises:
        ConfigError: there is nothing to read under this name.
    """
    if path == STANDARD_INPUT:
        yield Source("standard input", None, None, lambda: nullcontext(sys.stdin.buffer))
        return
    place = Path(path)
    try:
        found = place.stat()
        if stat.S_ISDIR(found.st_mode):
            yield from _of_folder(place)
        elif stat.S_ISREG(found.st_mode) and zipfile.is_zipfile(place):
            yield from _of_zip(place, found.st_mtime)
        elif stat.S_ISREG(found.st_mode) and _is_archive(place):
            yield Source(path, found.st_size, found.st_mtime, lambda: _ArchiveText(place))
        else:
            yield Source(path, found.st_size or None, found.st_mtime, lambda: place.open("rb"))
            if stat.S_ISREG(found.st_mode):
                place.open("rb").close()
    except OSError as error:
        raise ConfigError(f"--from: {path}: {error.strerror or error}; name a file that can be read") from error


def _of_folder(folder: Path) -> Iterator[Source]:
    found: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(parent, name) for name in sorted(names)]
        if len(found) > _MOST_FILES:
            break
    if len(found) > _FEW_FILES:
        found = [each for each in found if _is_named_right(str(each.relative_to(folder)))]
    for each in found:
        try:
            about = each.lstat()
            # A link of a sosreport leads to the same file again, or out of it.
            if stat.S_ISREG(about.st_mode) and about.st_size and os.access(each, os.R_OK):
                yield Source(str(each), about.st_size, about.st_mtime, lambda each=each: each.open("rb"))  # type: ignore[misc]
        except OSError:
            continue


def _of_zip(path: Path, modified_at: float) -> Iterator[Source]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [each for each in archive.infolist()[:_MOST_FILES] if each.file_size]
    except (*DAMAGED, zipfile.BadZipFile) as error:
        raise OSError(None, str(error)) from error
    few = len(members) <= _FEW_FILES
    for member in members:
        if few or _is_named_right(member.filename):
            name = member.filename
            yield Source(f"{path}: {name}", member.compress_size, modified_at, lambda name=name: _member(path, name))  # type: ignore[misc]


@contextmanager
def _member(path: Path, name: str) -> Iterator[Bytes]:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(name) as member:
            yield _Guarded(member)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise OSError(None, str(error)) from error


class _Guarded:
    """A member of an archive whose damage is an OSError, as that of any file."""

    def __init__(self, member: IO[bytes]) -> None:
        self._member = member

    def read(self, size: int, /) -> bytes:
        """At most so many bytes."""
        try:
            return self._member.read(size)
        except (*DAMAGED, zipfile.BadZipFile) as error:
            raise OSError(None, str(error)) from error


def _is_named_right(path: str) -> bool:
    lower = path.lower()
    return any(name in lower for name in _NAMES)


def _is_archive(path: Path) -> bool:
    """Whether a file is a tar archive, packed or not; a log that is packed is none."""
    try:
        with tarfile.open(path, "r|*") as archive:
            return archive.next() is not None
    except DAMAGED:
        return False


class _ArchiveText(io.RawIOBase):
    """The files of an archive, those named right, as one text. Nothing is ever unpacked to a disk."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._raw = path.open("rb")
        self._archive = tarfile.open(fileobj=self._raw, mode="r|*")  # noqa: SIM115 - closed with this
        self._members = iter(self._archive)
        self._member: IO[bytes] | None = None

    def readable(self) -> bool:
        """As io.RawIOBase."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """As io.RawIOBase."""
        while True:
            if self._member is not None:
                chunk = self._read_member(size)
                if chunk:
                    return chunk
                self._member = None
                return _BOUNDARY
            try:
                member = next(self._members)
            except StopIteration:
                return b""
            except DAMAGED as error:
                raise OSError(str(error)) from error
            if member.isreg() and _is_named_right(member.name):
                self._member = self._archive.extractfile(member)

    def _read_member(self, size: int) -> bytes:
        assert self._member is not None  # noqa: S101 - the caller looked
        try:
            return self._member.read(size)
        except DAMAGED as error:
            raise OSError(str(error)) from error

    def close(self) -> None:
        """As io.RawIOBase."""
        self._archive.close()
        self._raw.close()
        super().close()
