"""Phrases that CONTRIBUTING.md replaces do not come back in anything that a user reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PAIR = re.compile(r"^\| (?P<before>[^|]+?) \| [^|]+ \|$", re.MULTILINE)
PAGES = ("*.md", "docs/*.md", "dashboards/*.*", "deploy/**/*.*", "helm/**/*.*", "rules/**/*.*")
PACKAGE_TEXTS = {".md", ".yml", ".toml"}
NOT_READ = {"CHANGELOG.md", "CONTRIBUTING.md"}
"""History is not rewritten, and the list itself has the phrases."""


def banned(repository: Path) -> list[str]:
    """The phrases of the table, in lower case."""
    text = (repository / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("<!-- before and after -->\n", 1)[1].split("\n\n", 1)[0]
    return [before.lower() for before in PAIR.findall(table)[1:] if not before.startswith("-")]


def told(source: str) -> Iterator[str]:
    """The strings of a Python file that are no docstrings."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def texts(repository: Path) -> Iterator[tuple[Path, str]]:
    for pattern in PAGES:
        for path in repository.glob(pattern):
            if path.is_file() and path.suffix not in {".png", ".pyc"} and path.name not in NOT_READ:
                yield path, path.read_text(encoding="utf-8")
    for path in (repository / "exporter").rglob("*.*"):
        if path.suffix == ".py":
            yield path, "\n".join(told(path.read_text(encoding="utf-8")))
        elif path.suffix in PACKAGE_TEXTS:
            yield path, path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_no_text_has_a_phrase_that_was_replaced(repository: Path) -> None:
    phrases = banned(repository)
    assert len(phrases) > 10
    plain = [
        (path.relative_to(repository).as_posix(), " ".join(text.split()).lower()) for path, text in texts(repository)
    ]
    found = [(name, each) for each in phrases for name, text in plain if each in text]
    assert found == [], "write it as CONTRIBUTING.md's table does"
