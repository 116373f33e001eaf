"""The docs site: its navigation has every page of docs/, and nothing that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

from deploy.generate.site import stage

NAV_FILE = re.compile(r"^ +- .*: ([\w./-]+\.md)$", re.MULTILINE)


def test_every_page_of_docs_is_in_the_navigation_and_all_of_it_exists(repository: Path, tmp_path: Path) -> None:
    named = NAV_FILE.findall((repository / "mkdocs.yml").read_text(encoding="utf-8"))
    stage(tmp_path / "pages")
    assert [name for name in named if not (tmp_path / "pages" / name).is_file()] == []
    assert {page.relative_to(repository).as_posix() for page in repository.glob("docs/**/*.md")} - set(named) == set()


def test_a_link_to_a_folder_leads_to_a_page(tmp_path: Path) -> None:
    stage(tmp_path / "pages")
    pages = tmp_path / "pages"
    assert "](../deploy/prometheus/README.md)" in (pages / "docs" / "install.md").read_text(encoding="utf-8")
    listed = (pages / "deploy" / "prometheus" / "README.md").read_text(encoding="utf-8")
    assert "[kubernetes.yml](kubernetes.yml)" in listed
