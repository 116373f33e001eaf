"""Tables of docs/benchmarks.md and docs/sizing.md: each benchmark writes its own, between markers with its name."""

import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import click
from deploy.generate import REPOSITORY
from deploy.generate.pages import between

BENCHMARKS: Final = REPOSITORY / "docs" / "benchmarks.md"
SIZING: Final = REPOSITORY / "docs" / "sizing.md"


def report(name: str, lines: Iterable[str], *, to_screen: bool, page: Path = BENCHMARKS) -> None:
    """Print a section, or replace what is between the markers of its name, and nothing else.

    Raises:
        ValueError: the page has no such markers.
    """
    text = "\n".join(("", *lines, "", ""))
    if to_screen:
        click.echo(text)
        return
    before = page.read_text(encoding="utf-8")
    if f"<!-- {name} -->\n" not in before:
        raise ValueError(f"{page.name}: no markers for {name}")
    page.write_text(between(before, name, text), encoding="utf-8")


def table(rows: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """A table of rows with the same columns; one that ends with ``<`` is aligned to the left."""
    for number, row in enumerate(rows):
        if number == 0:
            yield f"|{'|'.join(each.removesuffix('<') for each in row)}|"
            yield "|" + "".join("---|" if each.endswith("<") else "---:|" for each in row)
        yield f"|{'|'.join(map(str, row.values()))}|"


TO_SCREEN = click.option("--print", "to_screen", is_flag=True, help="Print the tables; otherwise, write the page.")


def conditions() -> str:
    """The line above a table: the command, when and where it ran, and the load average at the end."""
    command = " ".join(["python -m tests.bench", *sys.argv[1:]])
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"{os.cpu_count()} cores ({_processor()}), {memory_gib:.0f} GiB, Python {platform.python_version()}"
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return f"- `{command}`, {date}, {machine}, load {os.getloadavg()[0]:.1f}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
