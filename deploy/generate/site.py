"""The docs site in build/site/html (``python -m deploy.generate.site``): stages the pages, and has MkDocs' hook.

MkDocs needs all pages below one folder. They are copied with their paths in the repository, together with the files
they link to, so that relative links work on the site as in a checkout.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "Dockerfile", "Makefile"),
    *("dashboards/README.md", "helm/gpu-triage-exporter/README.md", "helm/gpu-triage-exporter/values.yaml"),
    *("deploy", "docs", "exporter/gpu_triage/serve/handbook", "rules"),
)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)\)")
LIST_ITEM = re.compile(r" *([-*]|\d+\.) ")
LIST_INDENT = 2
"""Indentation of a list item's content; Python-Markdown's default is 4."""


def stage(pages: Path) -> None:
    """Copy the pages and the files they link to into a new folder.

    A folder without a README gets one that lists its files; a link to a folder becomes a link to its README.
    """
    shutil.rmtree(pages, ignore_errors=True)
    for source in SOURCES:
        (pages / source).parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / source).is_dir():
            shutil.copytree(REPOSITORY / source, pages / source, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        else:
            shutil.copy2(REPOSITORY / source, pages / source)
    for page in sorted(pages.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        text = LINK.sub(partial(_to_a_file, page.parent), text)
        page.write_text("".join(_with_lists_apart(text.splitlines(keepends=True))), encoding="utf-8")


def _with_lists_apart(lines: Iterable[str]) -> Iterator[str]:
    """Insert a blank line between a paragraph and a following list item, which Python-Markdown needs."""
    fenced = in_paragraph = after_blank = False
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced, in_paragraph = not fenced, False
        elif not line.strip() or fenced:
            in_paragraph = False
        elif LIST_ITEM.match(line):
            if in_paragraph:
                yield "\n"
            in_paragraph = False
        elif after_blank:
            in_paragraph = True
        after_blank = not line.strip() or line.lstrip().startswith("```")
        yield line


def _to_a_file(folder: Path, link: re.Match[str]) -> str:
    target = (folder / link[1]).resolve()
    if not target.is_dir():
        return link[0]
    readme = target / "README.md"
    if not readme.exists():
        files = sorted(path for path in target.rglob("*") if path.is_file())
        listed = "".join(f"- [{path.relative_to(target)}]({path.relative_to(target)})\n" for path in files)
        readme.write_text(f"# {target.name}\n\n{listed}", encoding="utf-8")
    return f"]({link[1].rstrip('/')}/README.md)"


def on_config(config: Any) -> Any:
    """MkDocs hook: allow list indentation as in CommonMark and GitHub."""
    from markdown import Extension  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415 - only installed with MkDocs

    class ListIndent(Extension):  # type: ignore[misc, unused-ignore]
        def extendMarkdown(self, md: Any) -> None:  # noqa: N802 - Python-Markdown's method name
            md.tab_length = LIST_INDENT
            md.build_parser()  # block processors read the width when created

    config["markdown_extensions"].insert(0, ListIndent())  # before extensions that add to the parser
    return config


def build() -> None:
    """Build the site with MkDocs, which has an environment of its own because nothing else needs its packages."""
    built = REPOSITORY / "build"
    stage(built / "site" / "pages")
    python = str(built / "site-venv" / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", built / "site-venv"], check=True)
    locked = ("--require-hashes", "-r", str(REPOSITORY / "requirements" / "site.txt"))
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *locked], check=True)
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [str(python), "-m", "mkdocs", "build", "--strict", "--quiet"]
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True)


if __name__ == "__main__":
    build()
