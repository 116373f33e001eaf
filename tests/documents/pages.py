"""The commands that the pages show, each with the output that the page shows below it."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

FENCE: Final = r"^ *```(?P<language>\w*)\n(?P<fenced>.*?)^ *```$"
INDENTED: Final = r"^ {4,}(?P<indented>(?:amlint|amtool|gpu-triage|kubectl|make|python -m|sh) \S[^\n]*)$"
BLOCK: Final = re.compile(f"{FENCE}|{INDENTED}", re.MULTILINE | re.DOTALL)


class Shown(NamedTuple):
    """A command, and the lines that the page shows as its output."""

    command: str
    output: str


def documents(repository: Path) -> list[Path]:
    """Every page for a reader, the handbook among them."""
    handbook = repository / "exporter" / "gpu_triage" / "serve" / "handbook"
    folders = (repository / name for name in ("dashboards", "deploy", "docs", "helm", "rules"))
    return [*repository.glob("*.md"), *(page for folder in (*folders, handbook) for page in folder.rglob("*.md"))]


def shown(page: Path, heading: str | None = None) -> list[Shown]:
    """The commands of a page, or of one of its sections, in their order."""
    text = page.read_text(encoding="utf-8")
    if heading is not None:
        text = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    blocks = (_block(each) for each in BLOCK.finditer(text))
    return [command for block in blocks for command in _of_block(block)]


def _block(found: re.Match[str]) -> str:
    """A block of commands with their prompts; "" for one of another language."""
    if found["indented"]:
        return f"$ {found['indented']}"
    return found["fenced"] if found["language"] == "console" else ""


def _of_block(block: str) -> Iterator[Shown]:
    lines = [line.strip() for line in re.sub(r"\\\n\s*", " ", block).splitlines()]
    starts = [place for place, line in enumerate(lines) if line.startswith(("$ ", "# "))]
    for place, end in pairwise([*starts, len(lines)]):
        yield Shown(lines[place][2:], "\n".join(lines[place + 1 : end]))
