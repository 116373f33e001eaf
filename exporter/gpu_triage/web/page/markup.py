"""Pieces of HTML that every part of the page is made of; whatever comes from outside passes through `safe`."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from gpu_triage.diagnosis.text import printable
from gpu_triage.diagnosis.verdicts import COLOURS, Verdict

UNKNOWN: Final = '<span class="soft">&ndash;</span>'
"""In place of what is not reported."""


def safe(value: object) -> str:
    """The value as text that is neither markup nor able to hide or reorder what stands around it."""
    return escape(printable(str(value)), quote=True)


def foreign(value: object) -> str:
    """A name that others chose, as an element that keeps its direction of writing to itself."""
    return f"<bdi>{safe(value)}</bdi>"


def chip(text: str, tone: str) -> str:
    """A word on a ground of its tone."""
    return f'<span class="chip {safe(tone)}">{safe(text)}</span>'


def verdict_chip(verdict: Verdict) -> str:
    """The verdict in its colour."""
    return chip(verdict.words, COLOURS[verdict].tone)


def class_chip(name: str, verdict: Verdict = Verdict.KEEP) -> str:
    """A bottleneck class in its colour; grey for a GPU that was not read."""
    if verdict is Verdict.NOT_READ:
        return chip(name, COLOURS[verdict].tone)
    return f'<span class="chip class c-{safe(name)}">{safe(name)}</span>'


def soft(text: str) -> str:
    """A second line in small type, of text that is not escaped yet; "" for none."""
    return f'<br><small class="soft">{safe(text)}</small>' if text else ""


def bar(share: float) -> str:
    """A bar filled for this share, 0-1; decoration, as the number stands beside it."""
    width = 100 * min(1.0, max(0.0, share))
    return (
        '<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{width:.0f}" height="4"/></svg>'
    )


def table(caption: str, heads: Iterable[str], rows: Iterable[str], name: str = "") -> str:
    """A table in a box that scrolls sideways by itself.

    Args:
        caption: what it shows, for those who do not see it.
        heads: of the columns.
        rows: whole ``tr`` elements.
        name: its class.
    """
    columns = "".join(f'<th scope="col">{safe(head)}</th>' for head in heads)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{safe(caption)}">\n<table class="{safe(name)}">\n'
        f"<thead><tr>{columns}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>\n</div>"
    )


def section(name: str, title: str, body: str) -> str:
    """A section with a heading, which links can lead to."""
    return f'<section id="{safe(name)}">\n<h2>{safe(title)}</h2>\n{body}\n</section>'
