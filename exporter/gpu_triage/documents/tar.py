"""Reads the files of a tar archive in one pass, never buffering more than one block because of a header.

Format: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar's manual, "Basic Tar Format".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpu_triage.documents.stream import CHUNK_BYTES, Stream

BLOCK_BYTES: Final = 512

_LONGEST_NAME: Final = 1 << 12
_SUM: Final = slice(148, 156)
_SPARSE: Final = b"S"
_REGULAR: Final = (b"0", b"\0", b"7", _SPARSE)
_OF_NEXT: Final = (b"x", b"L")
"""Headers that contain the name of the file that follows."""
_WITHOUT_DATA: Final = (b"1", b"2", b"3", b"4", b"5", b"6")


class Member(NamedTuple):
    """A regular file of the archive; `stream` must be consumed before requesting the next one."""

    name: str
    stream: Stream


def is_tar(start: bytes) -> bool:
    """Whether the bytes start with a tar header."""
    return len(start) >= BLOCK_BYTES and _has_right_sum(start[:BLOCK_BYTES])


def members(archive: Stream) -> Iterator[Member]:
    """The regular files, in order.

    Raises:
        EOFError: the archive ends before its end mark.
        ValueError: the archive is damaged.
    """
    name = ""
    while header := archive.read(BLOCK_BYTES):
        if not header.strip(b"\0"):
            return
        if len(header) < BLOCK_BYTES or not _has_right_sum(header):
            break
        size, kind = _number(header[124:136]), header[156:157]
        left = 0 if kind in _WITHOUT_DATA else size
        padding = -left % BLOCK_BYTES
        if kind in _OF_NEXT:
            name = _long_name(kind, archive.peek(min(size, _LONGEST_NAME))) or name
        elif kind in _REGULAR:
            if kind == _SPARSE:
                _skip_map(header[482], archive)
            body = _Body(archive, size)
            yield Member(name or _name(header), Stream(body.chunks()))
            left = body.left
        archive.skip(left + padding)
        if kind not in _OF_NEXT:
            name = ""
    raise EOFError(archive.damage.removeprefix("ends early: ") or "the archive is not complete")


class _Body:
    """The data of one file; `left` bytes are still unread."""

    def __init__(self, archive: Stream, size: int) -> None:
        self.left = size
        self._archive = archive

    def chunks(self) -> Iterator[bytes]:
        while self.left:
            taken = self._archive.take(min(self.left, CHUNK_BYTES))
            if not taken:
                raise EOFError(self._archive.damage.removeprefix("ends early: ") or "the archive is not complete")
            self.left -= len(taken)
            yield taken


def _has_right_sum(header: bytes) -> bool:
    """Whether the header's checksum matches; some old archives sum signed bytes."""
    try:
        noted = int(header[_SUM].strip(b" \0") or b"-1", 8)
    except ValueError:
        return False
    summed = header[: _SUM.start] + b" " * 8 + header[_SUM.stop :]
    return noted in (sum(summed), sum(byte - (byte >> 7 << 8) for byte in summed))


def _number(field: bytes) -> int:
    """Parse a size: octal digits, or base 256 if the highest bit is set; raises ValueError if it is neither."""
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    return int(field.strip(b" \0") or b"0", 8)


def _name(header: bytes) -> str:
    name, prefix = (header[part].split(b"\0")[0] for part in (slice(0, 100), slice(345, 500)))
    has_prefix = header[257:262] == b"ustar" and header[262:264] != b"  "
    return (prefix + b"/" + name if prefix and has_prefix else name).decode("utf-8", "replace")


def _long_name(kind: bytes, data: bytes) -> str:
    """The name in a header that precedes the file's own header."""
    if kind == b"L":
        return data.split(b"\0")[0].decode("utf-8", "replace")
    record = next((line for line in data.split(b"\n") if b" path=" in line), b"")
    return record.partition(b" path=")[2].decode("utf-8", "replace")


def _skip_map(goes_on: int, archive: Stream) -> None:
    """Skip the blocks that map the holes of a sparse file."""
    while goes_on:
        block = archive.read(BLOCK_BYTES)
        goes_on = block[504] if len(block) == BLOCK_BYTES else 0
