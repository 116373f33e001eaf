"""The documents to read: files, standard input, folder contents, and archive members, nested archives included."""

import os
import stat
import struct
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.documents import stream as streams
from gpu_triage.documents.stream import DAMAGED, Budget, Member, Stream, TimeLimit
from gpu_triage.errors import ConfigError

STANDARD_INPUT: Final = "-"

_ABOUT_RECORDING: Final = "recording.json"
_FEW_FILES: Final = 100
"""Up to this size, all files of a folder or archive are read; in a larger one, only those with a known name."""
_MOST_FILES: Final = 200_000  # the most files examined in a folder or tar archive
_MOST_IN_ZIP: Final = 20_000  # lower than for tar, because the zip directory is held in memory
_MOST_NESTED: Final = 3  # the deepest nesting of archives
_NAMES: Final = ("nvidia", "smi", "dmesg", "kern", "messages", "syslog", "journal", "lspci", "bug-report", "bug_report")
_ZIP_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # methods that zipfile decompresses in bounded chunks
_ZIP_END: Final = b"PK\x05\x06"
_ZIP_END_BYTES: Final = (1 << 16) + 22
_ZIP_ENTRY: Final = b"PK\x01\x02"
_ZIP_LIST_BYTES: Final = 4 << 20


class InputFile(NamedTuple):
    name: str  # for display
    path: Path | None = None  # None for standard input, as `about`
    about: os.stat_result | None = None


def is_recording(path: Path) -> bool:
    """Whether this was written by ``gpu-triage record``."""
    if path.is_dir():
        return (path / _ABOUT_RECORDING).is_file()
    with suppress(*DAMAGED):
        if path.name.endswith(".tar.gz") and path.is_file():
            with path.open("rb") as raw:
                archive = streams.unpacked(streams.opened(raw.read), Budget())
                names = (each.name.rpartition("/")[2] for each in streams.members(archive))
                return next(names, "") == _ABOUT_RECORDING
    return False


def sources(path: str) -> Iterator[InputFile]:
    """The files at a path; raises ConfigError if there is nothing to read."""
    if path == STANDARD_INPUT:
        yield InputFile("standard input")
        return
    place = Path(path)
    try:
        about = place.stat()
        if stat.S_ISREG(about.st_mode):
            place.open("rb").close()
        yield from _of_folder(place) if stat.S_ISDIR(about.st_mode) else (InputFile(path, place, about),)
    except OSError as error:
        raise ConfigError(f"--from: {path}: {error.strerror or error}; name a file that can be read") from error


def _of_folder(folder: Path) -> Iterator[InputFile]:
    found: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(parent, name) for name in sorted(names)]
        if len(found) > _MOST_FILES:
            break
    if len(found) > _FEW_FILES:
        found = [each for each in found if _is_named_right(str(each.relative_to(folder)))]
    for each in found:
        with suppress(OSError):
            about = each.lstat()
            # Symlinks are skipped: in a sosreport they point to the same file again, or outside of it.
            if stat.S_ISREG(about.st_mode) and about.st_size and os.access(each, os.R_OK):
                yield InputFile(str(each), each, about)


def documents(source: InputFile, count: Callable[[int], None], time_limit: TimeLimit) -> Iterator[Member]:
    """The texts in a file: itself, or its members if it is an archive; `count` is called with the bytes read."""
    budget = Budget(time_limit=time_limit)

    def read(size: int) -> None:
        count(size)
        time_limit.check()

    if source.path is None or source.about is None:
        yield from _of_stream(source.name, streams.opened(sys.stdin.buffer.read, read), budget, _MOST_NESTED)
    elif stat.S_ISREG(source.about.st_mode) and zipfile.is_zipfile(source.path):
        yield from _of_archive(source.name, _zip_members(source.path, count, budget), budget, _MOST_NESTED)
    else:
        with source.path.open("rb") as raw:
            yield from _of_stream(source.name, streams.opened(raw.read, read), budget, _MOST_NESTED)


def _of_stream(name: str, packed: Stream, budget: Budget, nested: int) -> Iterator[Member]:
    stream = streams.unpacked(packed, budget)
    if nested and streams.is_tar(stream.peek(streams.BLOCK_BYTES)):
        yield from _of_archive(name, streams.members(stream), budget, nested - 1)
    else:
        yield Member(name, stream)


def _of_archive(name: str, members: Iterable[Member], budget: Budget, nested: int) -> Iterator[Member]:
    try:
        for place, member in enumerate(members):
            if place >= _MOST_FILES:
                raise ValueError(f"only the first {_MOST_FILES} files were read")
            if place < _FEW_FILES or _is_named_right(member.name):
                yield from _of_stream(f"{name}: {member.name}", member.stream, budget, nested)
    except (*DAMAGED, zipfile.BadZipFile) as error:
        yield Member(name, Stream(damage=f"ends early: {error}"))


def _zip_members(path: Path, count: Callable[[int], None], budget: Budget) -> Iterator[Member]:
    _check_directory(path)
    with zipfile.ZipFile(path) as archive:
        found = [each for each in archive.infolist() if each.file_size]
        for member in found:
            if len(found) <= _FEW_FILES or _is_named_right(member.filename):
                yield Member(member.filename, Stream(budget.spend(_of_zip_member(archive, member))))
            count(member.compress_size)


def _check_directory(path: Path) -> None:
    """Refuse (ValueError) a zip archive with a long directory, since zipfile holds all of it in memory."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(0, size - _ZIP_END_BYTES))
        tail = file.read()
        end = tail.rfind(_ZIP_END)
        (length,) = struct.unpack_from("<L", tail, end + 12) if 0 <= end <= len(tail) - 16 else (0,)
        file.seek(max(0, start + end - length))
        if length > _ZIP_LIST_BYTES or file.read(length).count(_ZIP_ENTRY) > _MOST_IN_ZIP:
            raise ValueError("its list of files is too long; unpack it first")


def _of_zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    if member.compress_type not in _ZIP_METHODS:
        raise ValueError("it is packed by a method that gpu-triage does not read; unpack it first")
    try:
        with archive.open(member) as file:
            while chunk := file.read(streams.CHUNK_BYTES):
                yield chunk
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise OSError(None, str(error)) from error


def _is_named_right(path: str) -> bool:
    lower = path.lower()
    return any(name in lower for name in _NAMES)
