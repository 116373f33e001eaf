"""Renders handbook Markdown on a terminal: headings, wrapped paragraphs and lists, and commands to copy."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import click

from gpu_triage.serve.handbook.markdown import Node, read

_INDENT: Final = "    "


# As `render_html`: clients may request the longest page in a flood.
@lru_cache(maxsize=128)
def render_terminal(text: str, width: int) -> str:
    """Render Markdown as text of this width, bold and colored; only commands and long words exceed it."""
    return "\n".join(_blocks(read(text), width)).strip("\n") + "\n"


def _blocks(nodes: Sequence[Node], width: int) -> Iterator[str]:
    """The lines of a page, with an empty line between blocks."""
    for node in nodes:
        yield from _lines(node, width)
        if not node.hidden:  # hidden: a paragraph in a tight list
            yield ""


def _lines(node: Node, width: int) -> Iterator[str]:
    if node.type == "heading":
        yield from _heading(click.unstyle(_styled(node)), int(node.tag[1]), width)
    elif node.type == "paragraph":
        yield from _wrapped(_styled(node).split(), width)
    elif node.type == "fence":
        yield from (f"{_INDENT}{line}".rstrip() for line in node.content.splitlines())
    elif node.type in {"bullet_list", "ordered_list"}:
        yield from _list(node, width)
    elif node.type == "hr":
        yield "-" * width


def _heading(text: str, level: int, width: int) -> Iterator[str]:
    lines = list(_wrapped(text.split(), width))
    yield from (click.style(line, bold=True) for line in lines)
    if level <= 2:  # noqa: PLR2004 - page and section titles
        yield ("=" if level == 1 else "-") * max(map(len, lines), default=0)


def _list(node: Node, width: int) -> Iterator[str]:
    for number, item in enumerate(node.children, 1):
        mark = f"{number}. " if node.type == "ordered_list" else "- "
        lines = list(_blocks(item.children, width - len(mark)))
        while lines and not lines[-1]:
            lines.pop()
        for nth, line in enumerate(lines):
            yield f"{mark if nth == 0 else ' ' * len(mark)}{line}".rstrip()


def _wrapped(words: Sequence[str], width: int) -> Iterator[str]:
    """Wrap words to this width; a longer word gets its own line."""
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


def _styled(node: Node, *, bold: bool = False) -> str:
    """The text of a block with each word styled separately, so that lines can be wrapped between words."""
    if node.type in {"softbreak", "hardbreak"}:
        return " "
    if node.type in {"text", "code_inline"}:
        color = "cyan" if node.type == "code_inline" else None
        if not (color or bold):
            return node.content
        words = node.content.split(" ")
        return " ".join(click.style(word, fg=color, bold=bold or None) if word else "" for word in words)
    return "".join(_styled(child, bold=bold or node.type == "strong") for child in node.children)
