"""Builds gzip files from separately compressed parts, so that unchanged parts are compressed only once.

A deflate stream can be split at full flushes, because the data after one doesn't refer to the data before it. So the
flushed parts form one stream, and the result is a single gzip member, which every client supports. Source: RFC 1951,
RFC 1952.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final

_LEVEL: Final = 1
"""Level 9 would take five times as long to save a tenth."""

_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
"""No name, no timestamp, fastest level, unknown operating system."""

_LAST_BLOCK: Final = b"\x03\x00"
"""An empty block, marked as the last."""


def deflated(part: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(part) + packer.flush(zlib.Z_FULL_FLUSH)


def gzip_of(parts: Iterable[bytes], packed: Iterable[bytes]) -> bytes:
    """A gzip file of these parts; `packed` are the same parts, each compressed with `deflated`."""
    checksum = length = 0
    for part in parts:
        checksum, length = zlib.crc32(part, checksum), length + len(part)
    trailer = checksum.to_bytes(4, "little") + (length & 0xFFFFFFFF).to_bytes(4, "little")
    return b"".join((_HEADER, *packed, _LAST_BLOCK, trailer))
