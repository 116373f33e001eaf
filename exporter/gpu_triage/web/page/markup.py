"""Pieces of HTML that every part of the page is made of; whatever comes from outside passes through `safe`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from types import MappingProxyType
from typing import Final

from gpu_triage.diagnosis.findings.table import Severity
from gpu_triage.diagnosis.findings.verdicts import COLOURS, Verdict
from gpu_triage.diagnosis.report.text import printable

UNKNOWN: Final = '<span class="soft">&ndash;</span>'
"""In place of what is not reported."""

OF_SEVERITY: Final[Mapping[Severity, str]] = MappingProxyType(
    {Severity.CRITICAL: "sick", Severity.WARNING: "held", Severity.INFO: "starved"}
)
"""Tone of a finding; the tone of a verdict is in the table of verdicts."""


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
    return chip(name, COLOURS[verdict].tone if verdict is Verdict.NOT_READ else f"class c-{name}")


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


def row(first: str, cells: Iterable[str], **attributes: object) -> str:
    """A row of a table: its heading, its cells (all HTML), and attributes (not escaped yet; ``data_gpu``: data-gpu)."""
    written = "".join(f' {name.replace("_", "-")}="{safe(value)}"' for name, value in attributes.items())
    return f'<tr{written}><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


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


def whole_page(title: str, icon: str, sheet: str, body: str, head: str = "") -> bytes:
    """The page, HTML in UTF-8.

    Args:
        title: of the browser's tab, not escaped yet.
        icon: URL of its icon.
        sheet: its style sheet.
        body: HTML.
        head: what else stands in the head.
    """
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{head}<title>{safe(title)}</title>
<link rel="icon" href="{icon}">
<style>{sheet}</style>
</head>
<body>
{body}
</body>
</html>
"""
    return page.encode("utf-8", "replace")
