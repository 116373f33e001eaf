"""Undoes what copy and paste does to output: quote marks, non-breaking spaces, colors, and shell prompts in between."""

from __future__ import annotations

import re
from typing import Final

_QUOTE: Final = re.compile(r"(?:>[ ]?)+")
_COLOR: Final = re.compile(r"\x1b\[[0-9;]{0,20}m")
_PROMPT: Final = re.compile(
    r"(?:\([\w.-]{1,40}\) ?)?"
    r"(?:\[?[\w.-]{1,60}@[\w.-]{1,60}[^#$%>]{0,80}[#$%>]|[$#%>\u276f\u279c]|(?:PS )?[A-Za-z]:\\[^>]{0,80}>)\s*"
    r"(?:sudo )?(?=[\w./~-])"
)


def cleaned(line: str) -> str:
    """A line without quote marks and terminal colors, and with plain spaces."""
    if line[:1] == ">":
        found = _QUOTE.match(line)
        line = line if found is None else line[found.end() :]
    if line[:2] == "\\#":
        line = line[1:]  # escaped in Markdown, where it would start a heading
    if "\x1b" in line:
        line = _COLOR.sub("", line)
    return line.replace("\xa0", " ") if "\xa0" in line else line


def command_of(line: str) -> str:
    """The command typed at a shell prompt; "" if the line has no prompt."""
    found = _PROMPT.match(line.strip())
    return "" if found is None else line.strip()[found.end() :]
