"""Any file as lines of text: decompressed, decoded and cut to a bounded length, and never held in memory as a whole."""

from __future__ import annotations

import bz2
import codecs
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

CHUNK_BYTES: Final = 1 << 16
"""Read at a time. What follows a member of an archive in it is copied once for each member."""
LONGEST_LINE: Final = 1 << 20
"""Characters; a longer line is cut into several. Minified XML of eight GPUs is one line of a few hundred thousand."""
MOST_BYTES: Final = 8 << 30
"""Of one file, unpacked: no log is as large, and an archive made to unpack for ever ends here."""

_GZIP: Final = b"\x1f\x8b"
_BZIP2: Final = b"BZh"
_XZ: Final = b"\xfd7zXZ\x00"
_ZSTANDARD: Final = b"\x28\xb5\x2f\xfd"
_ALL_MAGIC: Final = (_GZIP, _BZIP2, _XZ, _ZSTANDARD)
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ESCAPES: Final = re.compile("\x1b(?:\\[[0-9;?]{0,32}[A-Za-z]|[()][A-Z0-9]|[=>])|[\0\x0e\x0f]")
_MOSTLY: Final = 0.3
"""From this share of NUL bytes on one side of the pairs on, text without a byte order mark is UTF-16."""


class Bytes(Protocol):
    """What can be read: a file, or what stands for one."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""


class Opened:
    """One file, opened: its lines, and afterwards why they ended early.

    Attributes:
        damage: what is wrong with the file; "" while it is whole.
    """

    def __init__(self, raw: Bytes, count: Callable[[int], None] = lambda _bytes: None) -> None:
        """The file, and who is told how many of its bytes were read."""
        self.damage = ""
        self._raw = raw
        self._count = count

    def lines(self) -> Iterator[str]:
        """Lines without their ends, escape sequences of terminals and NUL bytes.

        What cannot be unpacked ends the lines and is the `damage`; what cannot be decoded is replaced. Raises nothing.
        """
        rest = ""
        for text in _decoded(self._chunks()):
            if "\r" in text:
                text = text.replace("\r\n", "\n").replace("\r", "\n")  # noqa: PLW2901 - the same text, in Unix' words
            if "\x1b" in text or "\0" in text or "\x0e" in text:
                text = _ESCAPES.sub("", text)  # noqa: PLW2901 - likewise
            *whole, rest = (rest + text).split("\n")
            for line in whole:
                yield from _cut(line) if len(line) > LONGEST_LINE else (line,)
            while len(rest) > LONGEST_LINE:
                yield rest[:LONGEST_LINE]
                rest = rest[LONGEST_LINE:]
        if rest:
            yield rest

    def _chunks(self) -> Iterator[bytes]:
        left = MOST_BYTES
        try:
            for chunk in _unpacked(self._read):
                yield chunk
                left -= len(chunk)
                if left <= 0:
                    self.damage = f"only the first {MOST_BYTES >> 30} GiB were read"
                    return
        except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
            self.damage = f"ends early: {getattr(error, 'strerror', None) or error}"

    def _read(self) -> bytes:
        raw = self._raw.read(CHUNK_BYTES)
        self._count(len(raw))
        return raw


def _cut(line: str) -> Iterator[str]:
    return (line[start : start + LONGEST_LINE] for start in range(0, len(line), LONGEST_LINE))


def _unpacked(read: Callable[[], bytes]) -> Iterator[bytes]:
    """The bytes, unpacked if they are packed, whatever the file is called.

    Raises:
        EOFError: what is packed ends early.
        OSError, zlib.error, lzma.LZMAError, ValueError: it is damaged.
    """
    first = read()
    if first.startswith(_GZIP):
        # A bug report is many gzip members one after the other.
        yield from _members(first, read, lambda: zlib.decompressobj(zlib.MAX_WBITS | 16))
    elif first.startswith(_BZIP2):
        yield from _members(first, read, bz2.BZ2Decompressor)
    elif first.startswith(_XZ):
        yield from _members(first, read, lzma.LZMADecompressor)
    elif first.startswith(_ZSTANDARD):
        raise ValueError("it is packed with Zstandard; unpack it first (zstd -d)")
    else:
        while first:
            yield first
            first = read()


def _members(chunk: bytes, read: Callable[[], bytes], new: Callable[[], object]) -> Iterator[bytes]:
    unpack: object | None = None
    while chunk:
        if unpack is None:
            if not chunk.startswith(_ALL_MAGIC):
                return  # padding after the last member
            unpack = new()
        pending = chunk
        while True:
            yield from _pieces(unpack, pending)
            if not getattr(unpack, "eof"):  # noqa: B009 - of three classes without a common one
                chunk = read()
                break
            unused: bytes = getattr(unpack, "unused_data")  # noqa: B009 - likewise
            if not unused:
                chunk, unpack = read(), None
                break
            if not unused.startswith(_ALL_MAGIC):
                return
            unpack, pending = new(), unused
    if unpack is not None:
        raise EOFError("the archive is not complete")


def _pieces(unpack: object, packed: bytes) -> Iterator[bytes]:
    """What a chunk unpacks to, a bounded piece at a time."""
    if isinstance(unpack, bz2.BZ2Decompressor | lzma.LZMADecompressor):
        piece = unpack.decompress(packed, CHUNK_BYTES)
        while piece:
            yield piece
            piece = b"" if unpack.eof or unpack.needs_input else unpack.decompress(b"", CHUNK_BYTES)
        return
    decompress = getattr(unpack, "decompress")  # noqa: B009 - zlib does not name its class
    while packed:
        piece = decompress(packed, CHUNK_BYTES)
        if piece:
            yield piece
        packed = getattr(unpack, "unconsumed_tail")  # noqa: B009 - likewise
        if not piece and not packed:
            return


def _decoded(chunks: Iterator[bytes]) -> Iterator[str]:
    decoder: codecs.IncrementalDecoder | None = None
    for chunk in chunks:
        if decoder is None:
            encoding, mark = _encoding(chunk)
            decoder = codecs.getincrementaldecoder(encoding)("replace")
            chunk = chunk[mark:]  # noqa: PLW2901 - the same chunk, without its mark
        yield decoder.decode(chunk)
    if decoder is not None:
        yield decoder.decode(b"", final=True)


def _encoding(start: bytes) -> tuple[str, int]:
    """The encoding of a text by its first bytes, and the length of its byte order mark."""
    for mark, encoding in _BOMS:
        if start.startswith(mark):
            return encoding, len(mark)
    sample = start[:4096]
    half = len(sample) // 2
    # What PowerShell writes has a mark, and what was cut out of it has none.
    if half and sample[1::2].count(0) / half > _MOSTLY and sample[1::2].count(0) > 2 * sample[::2].count(0):
        return "utf-16-le", 0
    if half and sample[::2].count(0) / half > _MOSTLY and sample[::2].count(0) > 2 * sample[1::2].count(0):
        return "utf-16-be", 0
    return "utf-8", 0
