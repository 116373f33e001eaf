"""Paragraphs and tables of docs/benchmarks.md and docs/sizing.md."""

from __future__ import annotations

import textwrap

WIDTH = 130


def paragraph(text: str, *, point: bool = False) -> list[str]:
    """Text, wrapped anew; as a point of a list if `point`, else with an empty line after it."""
    lines = textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent="- " if point else "",
        subsequent_indent="  " if point else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines if point else [*lines, ""]


def table(*columns: str) -> list[str]:
    """The head of a table; a column whose name ends with ``<`` is aligned to the left."""
    names = " | ".join(each.removesuffix("<") for each in columns)
    return [f"| {names} |", "|" + "".join("---|" if each.endswith("<") else "---:|" for each in columns)]


def row(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"
