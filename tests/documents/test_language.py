"""Phrases that docs/dev/writing.md replaces do not come back; docstrings and comments are in the same plain English."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from tests.gathered import every

PAIR = re.compile(r"^\| (?P<before>[^|]+?) \| (?P<after>[^|]+) \|$", re.MULTILINE)
PAGES = ("*.md", "docs/**/*.*", "dashboards/*.*", "deploy/**/*.*", "exporter/**/*.*", "helm/**/*.*", "rules/**/*.*")
READ = {".md", ".py", ".sh", ".toml", ".tpl", ".txt", ".yaml", ".yml"}
NOT_READ = {"CHANGELOG.md", "writing.md"}
"""History is not rewritten, and the list itself has the phrases."""

PROGRAMS = ("exporter/**/*.py", "dashboards/**/*.py", "deploy/**/*.py")

WORDS: Mapping[str, str] = yaml.safe_load(Path(__file__).with_name("words.yml").read_bytes())

GAP = re.compile(r"""(?:\s|#|"|\bf")+""")
"""Between the words of a phrase that is wrapped: in a paragraph, a comment, or a string of several parts."""

PROSE = re.compile(
    r"""(?P<docstring>^[ \t]*r?"{3}.*?"{3})|"{3}.*?"{3}|"(?:[^"\\\n]|\\.)*"|(?P<comment>\#[^\n]*)""",
    re.DOTALL | re.MULTILINE,
)
NAMES = re.compile(r"``.*?``|`[^`]*`|^\s*\w+: |^\s*>>>.*")
"""Names in a docstring, which are no prose."""


def prose(source: str) -> Iterator[tuple[int, str]]:
    """The lines of docstrings and comments, by number."""
    for match in PROSE.finditer(source):
        if match["docstring"] is not None or match["comment"] is not None:
            first = source.count("\n", 0, match.start()) + 1
            yield from enumerate(match.group().split("\n"), first)


def files(repository: Path, patterns: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        for path in repository.glob(pattern):
            if path.is_file() and path.suffix in READ and path.name not in NOT_READ:
                yield path.relative_to(repository).as_posix(), path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_no_text_has_a_phrase_that_was_replaced(repository: Path) -> None:
    text = (repository / "docs" / "dev" / "writing.md").read_text(encoding="utf-8")
    table = text.split("<!-- before and after -->\n", 1)[1].split("\n\n", 1)[0]
    phrases = {before: after for before, after in PAIR.findall(table)[1:] if not before.startswith("-")}
    assert len(phrases) > 5
    found = []
    for name, text in files(repository, PAGES):
        plain = GAP.sub(" ", text).lower()
        for before, after in phrases.items():
            if before.lower() in plain:
                match = re.search(GAP.pattern.join(map(re.escape, before.split())), text, re.IGNORECASE)
                line = text.count("\n", 0, match.start()) + 1 if match else 1
                found.append(f"{name}:{line}: {before!r}: write: {after}")
    assert found == [], "\n".join(found)


def test_docstrings_and_comments_are_plain_american_english(repository: Path) -> None:
    patterns = {re.compile(word, re.IGNORECASE): instead for word, instead in WORDS.items()}
    found = [
        f"{name}:{number}: {match.group()!r}: write: {instead}"
        for name, source in every(files(repository, PROGRAMS))
        for number, line in prose(source)
        for pattern, instead in patterns.items()
        if (match := pattern.search(NAMES.sub("", line)))
    ]
    assert found == [], "\n".join(found)
