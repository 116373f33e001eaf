"""Reads the handbook's Markdown; the only place that talks to markdown-it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = ["Token", "parse", "plain_text", "served_address", "slug"]

_OUTSIDE: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_SERVED: Final = {"playbook.md": "playbook", "xids.md": "xids", "METRICS.md": "metrics"} | {
    "configuration.md": "configuration",
    "README.md": "./",
}


def parse(text: str) -> Sequence[Token]:
    """The blocks of a page: CommonMark with tables; raw HTML is text."""
    return MarkdownIt("commonmark", {"html": False}).enable("table").parse(text)


def slug(heading: str) -> str:
    """The anchor of a heading's text, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def plain_text(inline: Token) -> str:
    """The text of a block without its markup."""
    return "".join(each.content for each in inline.children or () if each.type in {"text", "code_inline"})


def served_address(target: str) -> str | None:
    """Where a link of the handbook leads when the exporter serves it; None for a file that it does not serve.

    Relative to ``/runbooks/``, so that it holds behind any prefix. Only runbooks have a file name that begins with
    ``Gpu``; of the other documents those that the package can render are served.
    """
    path, _, anchor = target.partition("#")
    if _OUTSIDE.match(path) or not path:
        return target
    name = path.rpartition("/")[2]
    if name.startswith("Gpu") and name.endswith(".md"):
        page: str | None = name.removesuffix(".md")
    elif name == "README.md" and "rules/" in path:
        page = None
    else:
        page = _SERVED.get(name)
    return None if page is None else f"{page}#{anchor}" if anchor else page
