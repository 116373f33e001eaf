"""Lines of text: decoded from any bytes at bounded length, and cleaned of what copy and paste adds."""

import codecs
import io
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from html import unescape
from typing import Final, NamedTuple

from gpu_triage.documents.stream import Stream

LONGEST_LINE: Final = 1 << 20
"""In characters; longer lines are split at about this length. Minified XML of eight GPUs is one line of a few hundred
thousand characters."""

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
"""Encodings by their byte order mark. Read as UTF-8, text in UTF-16 without a mark only has NUL bytes between."""
_ESCAPES: Final = re.compile("\x1b(?:\\[[0-9;?]{0,32}[A-Za-z]|[()][A-Z0-9]|[=>])|[\x0e\x0f]|\\[[04]m")
_ESCAPED: Final = ("\x1b", "\x0e", "\x0f", "[4m", "[0m")
"""Copying leaves of nvidia-smi's underlined headings the escape sequences without the first character."""


class Piece(NamedTuple):
    lines: list[str]  # without line endings, terminal escape sequences or NUL bytes; undecodable bytes are replaced
    text: str  # contains all of the lines, so a substring missing from it is in none of them


def pieces(stream: Stream) -> Iterator[Piece]:
    """All lines of a stream, in chunks of bounded size."""
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
    if any(each in text for each in _ESCAPED):
        lines = [_ESCAPES.sub("", line) for line in lines]
        text = "\n".join(lines)
    return Piece(lines, text)


def _decoded(stream: Stream) -> Iterator[str]:
    start = stream.peek(len(codecs.BOM_UTF8))
    mark, encoding = next((each for each in _MARKS if start.startswith(each[0])), (b"", "utf-8"))
    stream.skip(len(mark))
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    # Converts Windows and old Mac line endings to Unix ones, even when a CRLF is split between two chunks.
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    for chunk in stream:
        yield newlines.decode(decoder.decode(chunk).replace("\0", ""))
    yield newlines.decode(decoder.decode(b"", final=True), final=True)


_QUOTE: Final = re.compile(r"(?:\[pod/[^\]]{1,600}\] )?(?:>[ ]?)*")  # of mails, and of kubectl logs --prefix
_ENTITY: Final = re.compile(r"&(?:[gl]t|amp|quot|nbsp|apos|#x?[0-9A-Fa-f]{1,5});")
CRI: Final = re.compile(r"^\S{20,40} (?:stdout|stderr) [FP] ")
"""How containerd and CRI-O begin each line of a container's log."""
_DOCKER: Final = ('{"log":"', '{"log": "')
_PROMPT: Final = re.compile(
    r"(?:\([\w.-]{1,40}\) ?)?"
    r"(?:\[?[\w.-]{1,60}@[\w.-]{1,60}[^#$%>]{0,80}[#$%>]|[$#%>\u276f\u279c]|(?:PS )?[A-Za-z]:\\[^>]{0,80}>)\s*"
    r"(?:sudo )?(?=[\w./~-])"
)


def cleaned(line: str) -> str:
    """A line without quote marks and entities of HTML, and with plain spaces."""
    if "&" in line and _ENTITY.search(line) is not None:
        line = unescape(line)
    if line[:1] in (">", "["):
        found = _QUOTE.match(line)
        line = line if found is None else line[found.end() :]
    if line[:2] == "\\#":
        line = line[1:]  # escaped in Markdown, where it would start a heading
    return line.replace("\xa0", " ") if "\xa0" in line else line


def of_container(line: str) -> str:
    """What a program in a container printed, without the time that the container runtime adds; "" for other lines."""
    if line.startswith(_DOCKER):
        with suppress(ValueError, AttributeError, TypeError):
            return str(json.loads(line)["log"]).rstrip("\n")
    found = CRI.match(line)
    return "" if found is None else line[found.end() :]


BROKEN_XID: Final = re.compile(r"NVRM:(?:\s*Xid(?:\s*\([\w:.]{0,24}\)?:?)?)?\s*$")
"""A line that ends within an Xid, as in a mail or a narrow terminal."""
_XID: Final = re.compile(r"NVRM:\s*Xid\s*(\([\w:.]{8,24}\):)\s*(?=\d)")


def joined_xid(line: str, more: str) -> str:
    """A line that ends within an Xid, and the next one; "" if they don't make an Xid together."""
    for between in () if "NVRM:" in more else (" ", ""):
        text, count = _XID.subn(r"NVRM: Xid \1 ", f"{line.rstrip()}{between}{more.lstrip()}", count=1)
        if count:
            return text
    return ""


def command_of(line: str) -> str:
    """The command typed at a shell prompt; "" if the line has no prompt."""
    found = _PROMPT.match(line.strip())
    return "" if found is None else line.strip()[found.end() :]
