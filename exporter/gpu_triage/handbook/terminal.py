"""Renders the handbook's Markdown for a terminal: headings, wrapped paragraphs, aligned tables, commands to copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click

from gpu_triage.handbook.markdown import Token, parse, plain_text

_INDENT: Final = "    "
_GAP: Final = "  "
_NARROWEST: Final = 8
"""A column of a table is never wrapped to less than this, however wide the others are."""


def render_terminal(text: str, width: int, *, styled: bool = True) -> str:
    """The page as text.

    Args:
        text: Markdown.
        width: columns; only commands and words that are longer go beyond it.
        styled: whether to mark headings, emphasis and code by weight and colour.
    """
    page = "\n".join(_blocks(parse(text), width)).strip("\n") + "\n"
    return page if styled else click.unstyle(page)


def _blocks(tokens: Sequence[Token], width: int) -> Iterator[str]:
    """Lines of a page; an empty one between blocks."""
    at = 0
    while at < len(tokens):
        token = tokens[at]
        end = _end_of(tokens, at)
        inner = tokens[at + 1 : end]
        if token.type == "heading_open":
            yield from _heading(plain_text(inner[0]), int(token.tag[1]), width)
        elif token.type == "paragraph_open":
            yield from wrapped(_words(inner[0]), width)
            yield from ("",) if not token.hidden else ()
        elif token.type == "fence":
            yield from (f"{_INDENT}{line}".rstrip() for line in token.content.splitlines())
            yield ""
        elif token.type in {"bullet_list_open", "ordered_list_open"}:
            yield from _list(inner, width, numbered=token.type.startswith("ordered"))
            yield ""
        elif token.type == "table_open":
            yield from _table(inner, width)
            yield ""
        elif token.type == "hr":
            yield from ("-" * width, "")
        at = end + 1


def _end_of(tokens: Sequence[Token], at: int) -> int:
    """Index of the token that closes the one at this index; the same index for one that stands alone."""
    depth = 0
    for index in range(at, len(tokens)):
        depth += tokens[index].nesting
        if depth == 0:
            return index
    return at


def _heading(text: str, level: int, width: int) -> Iterator[str]:
    lines = list(wrapped(text.split(), width))
    yield from (click.style(line, bold=True) for line in lines)
    if level <= 2:  # noqa: PLR2004 - a page's title and its sections
        yield ("=" if level == 1 else "-") * max(map(len, lines), default=0)
    yield ""


def _list(tokens: Sequence[Token], width: int, *, numbered: bool) -> Iterator[str]:
    at = number = 0
    while at < len(tokens):
        end = _end_of(tokens, at)
        number += 1
        mark = f"{number}. " if numbered else "- "
        lines = list(_blocks(tokens[at + 1 : end], width - len(mark)))
        while lines and not lines[-1]:
            lines.pop()
        for nth, line in enumerate(lines):
            yield f"{mark if nth == 0 else ' ' * len(mark)}{line}".rstrip()
        at = end + 1


def _table(tokens: Sequence[Token], width: int) -> Iterator[str]:
    rows: list[list[list[str]]] = []
    for at, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in {"th_open", "td_open"}:
            rows[-1].append(_words(tokens[at + 1]))
    widths = _column_widths(rows, width)
    yield from _row(rows[0], widths)
    yield _GAP.join("-" * columns for columns in widths)
    for row in rows[1:]:
        yield from _row(row, widths)


def _row(cells: list[list[str]], widths: list[int]) -> Iterator[str]:
    wraps = [list(wrapped(words, columns)) for words, columns in zip(cells, widths, strict=True)]
    for nth in range(max(map(len, wraps), default=0)):
        parts = [lines[nth] if nth < len(lines) else "" for lines in wraps]
        padded = (part + " " * (columns - _length(part)) for part, columns in zip(parts, widths, strict=True))
        yield _GAP.join(padded).rstrip()


def _column_widths(rows: list[list[list[str]]], width: int) -> list[int]:
    """Each column as wide as its text while there is room; the widest give way first."""
    columns = range(len(rows[0]))
    widths = [max(_length(" ".join(row[column])) for row in rows) for column in columns]
    longest = [max((_length(word) for row in rows for word in row[column]), default=0) for column in columns]
    room = width - len(_GAP) * (len(widths) - 1)
    while sum(widths) > room:
        shrinkable = [column for column in columns if widths[column] > max(_NARROWEST, longest[column])]
        if not shrinkable:
            break
        widths[max(shrinkable, key=lambda column: widths[column])] -= 1
    return widths


def wrapped(words: Sequence[str], width: int) -> Iterator[str]:
    """The words on lines of at most this width; a longer word has a line of its own."""
    line: list[str] = []
    used = 0
    for word in words:
        if line and used + 1 + _length(word) > width:
            yield " ".join(line)
            line, used = [], 0
        used += _length(word) + bool(line)
        line.append(word)
    if line:
        yield " ".join(line)


def _length(text: str) -> int:
    return len(click.unstyle(text))


def _words(inline: Token) -> list[str]:
    """The words of a block, each with its own style, so that lines can be broken between them."""
    text, bold = "", False
    for token in inline.children or ():
        if token.type in {"strong_open", "strong_close"}:
            bold = token.type == "strong_open"
        elif token.type in {"softbreak", "hardbreak"}:
            text += " "
        elif token.type in {"text", "code_inline"}:
            code = token.type == "code_inline"
            text += " ".join(_styled(word, code=code, bold=bold) for word in token.content.split(" "))
    return text.split()


def _styled(word: str, *, code: bool, bold: bool) -> str:
    if not word or not (code or bold):
        return word
    return click.style(word, fg="cyan" if code else None, bold=bold or None)
