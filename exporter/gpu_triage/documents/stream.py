"""A byte stream that is read once from the start: decompressed and split into files in bounded chunks."""

import bz2
import lzma
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

CHUNK_BYTES: Final = 1 << 16
"""The most bytes decompressed at a time."""
MOST_BYTES: Final = 8 << 30
"""Limit per file after decompression: no log is that large, and it stops decompression bombs."""

MOST_SECONDS: Final = 600.0
"""Limit for all files of a command together. Twice as long as a slow host takes for the largest file."""

_PACKED_BYTES: Final = 1 << 13
"""The most bytes fed to a decompressor at a time: bytes after the end of a member are copied once per member."""
_MOST_LAYERS: Final = 4
_MOST_DICTIONARY_BYTES: Final = 20 << 20
"""For xz: presets up to 7 need less; 8 and 9 alone need more memory than the rest of the program."""

_GZIP: Final = b"\x1f\x8b"
_BZIP2: Final = b"BZh"
_XZ: Final = b"\xfd7zXZ\x00"
_UNREADABLE: Final = (
    (b"\x28\xb5\x2f\xfd", "it is packed with Zstandard; unpack it first (zstd -d)"),
    (b"\x04\x22\x4d\x18", "it is packed with LZ4; unpack it first (lz4 -d)"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7z archive; unpack it first"),
    (b"PK\x03\x04", "it is a zip archive inside another file or on standard input; unpack it first"),
    (b"LPKSHHRH", "it is a binary journal; convert it with journalctl -k --file"),
)
_LONGEST_MAGIC: Final = 8

DAMAGED: Final = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
"""Exceptions raised when reading damaged data."""


_EARLY: Final = "ends early: "


class Stream:
    """Bytes that are read once, from the start. Chunks may have any size; an error that they raise ends the stream."""

    def __init__(self, chunks: Iterable[bytes] = (), damage: str = "") -> None:
        self.damage = damage  # why the stream ended early; "" if it didn't
        self._chunks = iter(chunks)
        self._front = b""

    def take(self, most: int = MOST_BYTES) -> bytes:
        """The next chunk, at least one byte; empty at the end."""
        front = self._front or self._next()
        self._front = front[most:]
        return front[:most]

    def give_back(self, unread: bytes) -> None:
        self._front = unread + self._front

    def peek(self, size: int) -> bytes:
        """The next bytes without consuming them; fewer only at the end."""
        while len(self._front) < size and (chunk := self._next()):
            self._front += chunk
        return self._front[:size]

    def read(self, size: int) -> bytes:
        """The next bytes; fewer only at the end."""
        found = self.peek(size)
        self._front = self._front[size:]
        return found

    def skip(self, size: int) -> None:
        while size > 0 and (taken := self.take(size)):
            size -= len(taken)

    def cut_off(self, what: str) -> EOFError:
        """The error for data that needs more bytes than there are: the stream's own damage, or `what` is incomplete."""
        return EOFError(self.damage.removeprefix(_EARLY) or f"{what} is not complete")

    def __iter__(self) -> Iterator[bytes]:
        """Everything left, in chunks."""
        while taken := self.take():
            yield taken

    def _next(self) -> bytes:
        try:
            return next((chunk for chunk in self._chunks if chunk), b"")
        except DAMAGED as error:
            self.damage = f"{_EARLY}{getattr(error, 'strerror', None) or error}"
            return b""


class TimeLimit:
    """How long files may be read, from now on."""

    def __init__(self, seconds: float = MOST_SECONDS, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._ends_at = now() + seconds

    def check(self) -> None:
        """Raise ValueError if the time is up."""
        if self._now() > self._ends_at:
            raise ValueError(f"only what could be read within {self._seconds:.0f} s was read")


class Budget:
    """How much may still be decompressed for one file, over all layers and members: bytes, and time."""

    def __init__(self, size: int = MOST_BYTES, time_limit: TimeLimit | None = None) -> None:
        self._size = self._left = size
        self._time_limit = time_limit or TimeLimit()

    def spend(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Pass the chunks through until the budget is used up, then raise ValueError."""
        for chunk in chunks:
            self._left -= len(chunk)
            if self._left < 0:
                raise ValueError(f"only the first {self._size >> 20} MiB were read")
            self._time_limit.check()
            yield chunk


def opened(read: Callable[[int], bytes], count: Callable[[int], None] = lambda _size: None) -> Stream:
    """The raw bytes of a file, given its method `read`; `count` is called with the size of each chunk."""

    def chunks() -> Iterator[bytes]:
        while chunk := read(CHUNK_BYTES):
            count(len(chunk))
            yield chunk

    return Stream(chunks())


def unpacked(packed: Stream, budget: Budget) -> Stream:
    """Decompress repeatedly, also gzip in gzip; data that isn't compressed passes through unchanged."""
    stream = packed
    for _ in range(_MOST_LAYERS + 1):
        start = stream.peek(_LONGEST_MAGIC)
        if _decompressor(start) is None:
            why = next((why for magic, why in _UNREADABLE if start.startswith(magic)), None)
            return stream if why is None else Stream(damage=why)
        stream = Stream(budget.spend(_members(stream)))
    return Stream(damage=f"it is packed more than {_MOST_LAYERS} times")


class _GzipMember:
    """Gzip decompressor with the interface of bz2 and lzma."""

    def __init__(self) -> None:
        self.eof, self.needs_input, self.unused_data = False, True, b""
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._held = b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._member.decompress(self._held + data, max_length)
        self.eof, self.unused_data = self._member.eof, self._member.unused_data
        # At the end of the member, unconsumed_tail isn't reset; the remaining bytes are in unused_data as well.
        self._held = b"" if self.eof else self._member.unconsumed_tail
        self.needs_input = not self._held and not self.eof
        return piece


_Decompressor = _GzipMember | bz2.BZ2Decompressor | lzma.LZMADecompressor
"""Decompressor of one member."""


def _decompressor(start: bytes) -> _Decompressor | None:
    if start.startswith(_GZIP):
        return _GzipMember()
    if start.startswith(_BZIP2):
        return bz2.BZ2Decompressor()
    return lzma.LZMADecompressor(memlimit=_MOST_DICTIONARY_BYTES) if start.startswith(_XZ) else None


def _members(packed: Stream) -> Iterator[bytes]:
    """Decompress members, hundreds in a bug report. Raises EOFError if the last is incomplete, or another `DAMAGED`."""
    while (member := _decompressor(packed.peek(_LONGEST_MAGIC))) is not None:
        yield from _of_member(member, packed)
        packed.give_back(member.unused_data)
    if packed.peek(CHUNK_BYTES).strip(b"\0"):
        raise ValueError("what follows the packed data was not read")


def _of_member(member: _Decompressor, packed: Stream) -> Iterator[bytes]:
    while not member.eof:
        given = packed.take(_PACKED_BYTES) if member.needs_input else b""
        if member.needs_input and not given:
            raise packed.cut_off("the packed data")
        try:
            piece = member.decompress(given, CHUNK_BYTES)
        except lzma.LZMAError as error:
            if "limit" in str(error):
                raise ValueError("unpacking it takes too much memory (xz -8, -9); unpack it first (xz -d)") from error
            raise
        if piece:
            yield piece
        elif not given and not member.needs_input and not member.eof:
            raise ValueError("the packed data is damaged")


BLOCK_BYTES: Final = 512

_LONGEST_NAME: Final = 1 << 12
_OF_NEXT: Final = (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME)
"""Headers that contain the name of the file that follows."""
_WITHOUT_DATA: Final = (b"1", b"2", b"3", b"4", b"5", b"6")


class Member(NamedTuple):
    """A file, or a member of an archive; it must be consumed before requesting the next one."""

    name: str
    stream: Stream


def is_tar(start: bytes) -> bool:
    """Whether the bytes start with a tar header."""
    return _header(start[:BLOCK_BYTES]) is not None


def members(archive: Stream) -> Iterator[Member]:
    """The regular files of a tar archive, in order; never buffers more than one block because of a header.

    Format: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar's manual, "Basic Tar Format". Raises EOFError if the
    archive ends before its end mark; ValueError if the archive is damaged.
    """
    name = ""
    while header := archive.read(BLOCK_BYTES):
        if not header.strip(b"\0"):
            return
        if (about := _header(header)) is None:
            break
        size = 0 if about.type in _WITHOUT_DATA else about.size
        if about.type in _OF_NEXT:
            name = _long_name(about.type, archive.peek(min(size, _LONGEST_NAME))) or name
            archive.skip(size)
        else:
            if about.type == tarfile.GNUTYPE_SPARSE:
                _skip_map(header[482], archive)
            data = Stream(_data(archive, size))
            if about.isreg():
                yield Member(name or about.name, data)
            data.skip(size)
            name = ""
        archive.skip(-size % BLOCK_BYTES)
    raise archive.cut_off("the archive")


def _data(archive: Stream, size: int) -> Iterator[bytes]:
    while size:
        taken = archive.take(min(size, CHUNK_BYTES))
        if not taken:
            raise archive.cut_off("the archive")
        size -= len(taken)
        yield taken


def _header(block: bytes) -> tarfile.TarInfo | None:
    """The header in a block; None if it is invalid. The size of a hostile one may be negative, and is then 0."""
    try:
        found = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
    except tarfile.HeaderError:
        return None
    found.size = max(0, found.size)
    if block[257:262] != b"ustar" or block[262:264] == b"  ":
        # Without a prefix: GNU tar has times there.
        found.name = block[:100].partition(b"\0")[0].decode("utf-8", "replace")
    return found


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
