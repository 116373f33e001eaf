"""One command renews everything that is generated, and runs no other test on the way."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = """
import pytest

@pytest.fixture
def page(regenerate):
    return "written" if regenerate else "read"

def test_held_against_a_file(page):
    assert page == "written"

def test_about_something_else():
    raise AssertionError
"""
IN_ORDER = ("test_notifications", "docs.build", "docs.man_pages", "dashboards", "build_chart", "deploy.examples")
"""Each reads what those before it write; all read the rules."""


@pytest.mark.slow
def test_only_tests_that_write_files_run(tmp_path: Path, repository: Path) -> None:
    shutil.copy(repository / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", ".", "--regenerate", "."]
    result = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert "1 passed, 1 deselected" in result.stdout


def test_the_command_runs_every_generator_in_order(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    recipes = {
        target: makefile.split(f"\n{target}:")[1].split("\n\n")[0]
        for target in ("regenerate", "regenerate-pages", "regenerate-texts")
    }
    assert recipes["regenerate"].startswith(" rules ")
    places = [recipes["regenerate-texts"].index(name) for name in IN_ORDER]
    assert places == sorted(places)
    assert "tests/golden" in recipes["regenerate-pages"]
    assert "tests/drivers" in recipes["regenerate-pages"]


@pytest.mark.parametrize("step", ["docs", "rules", "chart", "examples", "dashboards", "golden"])
def test_no_message_names_a_single_step(repository: Path, step: str) -> None:
    told = re.compile(rf"run `make {step}`")
    tests = (path for path in (repository / "tests").rglob("test_*.py") if path.name != "test_regenerate.py")
    assert [path.name for path in tests if told.search(path.read_text(encoding="utf-8"))] == []
