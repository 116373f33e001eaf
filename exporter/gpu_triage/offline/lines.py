"""Any bytes as lines of text: decoded and cut to a bounded length, and never held in memory as a whole."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from gpu_triage.offline.stream import Stream

LONGEST_LINE: Final = 1 << 20
"""Characters; a longer line is cut after about as many. Minified XML of eight GPUs is one line of a few hundred
thousand."""

_SAMPLE_BYTES: Final = 4096
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


class Piece(NamedTuple):
    """Lines that arrived together.

    Attributes:
        lines: without their ends, escape sequences of terminals and NUL bytes; what cannot be decoded is replaced.
        text: what holds all of them: what is not in it is in none of the lines.
    """

    lines: list[str]
    text: str


def pieces(stream: Stream) -> Iterator[Piece]:
    """All lines of a stream, a bounded number at a time."""
    rest = ""
    for decoded in _decoded(stream):
        if "\n" in decoded:
            text = rest + decoded
            *whole, rest = text.split("\n")
            yield _piece(whole, text)
        else:
            rest += decoded
        if len(rest) > LONGEST_LINE:
            yield _piece([rest], rest)
            rest = ""
    if rest:
        yield _piece([rest], rest)


def _piece(lines: list[str], text: str) -> Piece:
    if "\x1b" in text or "\0" in text or "\x0e" in text or "\x0f" in text:
        lines = [_ESCAPES.sub("", line) for line in lines]
        text = "\n".join(lines)
    return Piece(lines, text)


def _decoded(stream: Stream) -> Iterator[str]:
    encoding, mark = _encoding(stream.peek(_SAMPLE_BYTES))
    stream.skip(mark)
    # Windows' and old Macs' ends of lines become Unix', also where a piece ends in the middle of one.
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)("replace"), translate=True)
    for chunk in stream:
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)


def _encoding(sample: bytes) -> tuple[str, int]:
    """The encoding of a text by its first bytes, and the length of its byte order mark."""
    for mark, encoding in _BOMS:
        if sample.startswith(mark):
            return encoding, len(mark)
    half = len(sample) // 2
    # What PowerShell writes has a mark, and what was cut out of it has none.
    if half and sample[1::2].count(0) / half > _MOSTLY and sample[1::2].count(0) > 2 * sample[::2].count(0):
        return "utf-16-le", 0
    if half and sample[::2].count(0) / half > _MOSTLY and sample[::2].count(0) > 2 * sample[1::2].count(0):
        return "utf-16-be", 0
    return "utf-8", 0
