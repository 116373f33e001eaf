"""Renders the handbook's Markdown as HTML: headings with anchors, tables that scroll by themselves, no raw HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from gpu_triage.handbook.markdown import Token, parse, plain_text, served_address, slug

_BLOCKS = {
    "paragraph": "p",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "blockquote": "blockquote",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "td": "td",
}


def render_html(text: str) -> str:
    """The page's body. Links between pages are relative to ``/runbooks/``; what is not served is plain text."""
    return "".join(_blocks(parse(text)))


def _blocks(tokens: Sequence[Token]) -> Iterator[str]:
    for at, token in enumerate(tokens):
        kind, _, end = token.type.rpartition("_")
        if token.hidden:
            continue
        if token.type == "inline":
            yield "".join(_inline(token.children or ()))
        elif token.type == "fence":
            yield f"<pre><code>{escape(token.content)}</code></pre>\n"
        elif token.type == "hr":
            yield "<hr>\n"
        elif kind == "heading":
            anchor = f' id="{escape(slug(plain_text(tokens[at + 1])))}"' if end == "open" else ""
            yield f"<{token.tag}{anchor}>" if end == "open" else f"</{token.tag}>\n"
        elif kind == "table":
            # A table wider than a phone scrolls in its own box, and the page stays where it is.
            yield '<div class="wide" tabindex="0"><table>\n' if end == "open" else "</table></div>\n"
        elif kind == "th":
            yield '<th scope="col">' if end == "open" else "</th>"
        elif kind in _BLOCKS:
            yield f"<{_BLOCKS[kind]}>" if end == "open" else f"</{_BLOCKS[kind]}>\n"


def _inline(tokens: Sequence[Token]) -> Iterator[str]:
    plain = {"softbreak": "\n", "hardbreak": "<br>\n", "strong_open": "<strong>", "strong_close": "</strong>"}
    plain |= {"em_open": "<em>", "em_close": "</em>"}
    linked = False
    for token in tokens:
        if token.type == "text":
            yield escape(token.content)
        elif token.type == "code_inline":
            yield f"<code>{escape(token.content)}</code>"
        elif token.type == "link_open":
            address = served_address(str(token.attrs["href"]))
            linked = address is not None
            if address is not None:
                yield f'<a href="{escape(address)}" rel="noreferrer">'
        elif token.type == "link_close":
            yield "</a>" if linked else ""
        elif token.type in plain:
            yield plain[token.type]
