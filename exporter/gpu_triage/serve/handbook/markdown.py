"""Parses the handbook's Markdown and renders it as HTML; the only module that uses markdown-it."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode as Node

__all__ = ["Node", "read", "render_html", "served_address"]

_OUTSIDE: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_SERVED: Final = {
    "playbook.md": "playbook",
    "xids.md": "xids",
    "METRICS.md": "metrics",
    "configuration.md": "configuration",
    "README.md": "./",
}


def _parser() -> MarkdownIt:
    """CommonMark; raw HTML is escaped."""
    return MarkdownIt("commonmark", {"html": False, "xhtmlOut": False})


def read(text: str) -> Sequence[Node]:
    return Node(_parser().parse(text)).children


# The longest page takes 0.2 s, and clients may request it in a flood; others are about 10 kB.
@lru_cache(maxsize=128)
def render_html(text: str) -> str:
    """The body of a page as HTML, with links relative to ``/runbooks/``; a link to a file not served becomes text."""
    parser = _parser()
    tokens = parser.parse(text)
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", _slug(tokens[at + 1]))
        elif token.type == "fence":
            token.info = ""
        elif token.children is not None:
            token.children = list(_with_served_links(token.children))
    return str(parser.renderer.render(tokens, parser.options, {}))


def _slug(heading: Token) -> str:
    """The anchor of a heading, generated as on GitHub."""
    text = "".join(each.content for each in heading.children or () if each.type in {"text", "code_inline"})
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def _with_served_links(inline: Sequence[Token]) -> Iterator[Token]:
    linked = False
    for token in inline:
        if token.type == "link_open":
            address = served_address(str(token.attrs["href"]))
            linked = address is not None
            token.attrs = {"href": address or "", "rel": "noreferrer"}
        if linked or token.type not in {"link_open", "link_close"}:
            yield token


def served_address(target: str) -> str | None:
    """The address of a handbook link on the exporter; None for a file it doesn't serve.

    The address is relative to ``/runbooks/``, so that it works behind any URL prefix. Only runbooks have file names
    starting with ``Gpu``; of the other documents, those that the package can render are served.
    """
    path, _, anchor = target.partition("#")
    if _OUTSIDE.match(path) or not path:
        return target
    name = path.rpartition("/")[2]
    if name.startswith("Gpu") and name.endswith(".md"):
        page: str | None = name.removesuffix(".md")
    else:
        page = None if "rules/" in path else _SERVED.get(name)
    return None if page is None else f"{page}#{anchor}" if anchor else page
