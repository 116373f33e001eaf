"""YAML's folded scalars, broken where a reader expects it and never inside a quoted string of a template."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ACTION: Final = re.compile(r"\{\{(?:[^`\"}]|`[^`]*`|\"(?:[^\"\\]|\\.)*\"|\}(?!\}))*\}\}")
_STRING: Final = re.compile(r"`[^`]*`|\"(?:[^\"\\]|\\.)*\"")
_SHORT_ACTION: Final = 32
"""Characters up to which ``{{ … }}`` stays on one line."""


def folded(text: str, width: int) -> list[str]:
    """Lines of a folded scalar that YAML reads as `text` again; longer than `width` where nothing can be broken."""
    lines: list[str] = []
    for word in _words(text):
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _words(text: str) -> Iterator[str]:
    start = 0
    for at in sorted(_breaks(text)):
        yield text[start:at]
        start = at + 1
    yield text[start:]


def _breaks(text: str) -> set[int]:
    # YAML keeps a line break before or after further spaces, so only a single space can become one.
    breaks = {found.start() + 1 for found in re.finditer(r"[^ ] (?=[^ ])", text)}
    for action in _ACTION.finditer(text):
        if len(action[0]) <= _SHORT_ACTION:
            breaks -= set(range(*action.span()))
        for string in _STRING.finditer(text, *action.span()):
            breaks -= set(range(*string.span()))
    return breaks
