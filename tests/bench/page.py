"""docs/benchmarks.md: each benchmark writes its own section, between markers with its name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deploy.generate.pages import between

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Replace the section of a benchmark, and nothing else.

    Args:
        name: name of the section's markers: ``<!-- fleet -->`` and ``<!-- /fleet -->``.
        text: the new section, from its heading on; ends with a newline.
        page: the page.

    Raises:
        ValueError: the page has no such markers.
    """
    before = page.read_text(encoding="utf-8")
    if f"<!-- {name} -->\n" not in before:
        raise ValueError(f"{page} has no markers for {name}")
    page.write_text(between(before, name, lambda _: f"\n{text}\n"), encoding="utf-8")
