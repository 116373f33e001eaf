"""What `make test` leaves out, `make full` runs, and the last lines say both."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.parts import NOT_FULL, ONLY_FULL

HALF = "tests/unit/read/gpu/test_short_events.py"
"""A file with a test of every run and two of `make full`."""
WHOLE = "tests/rules/test_week.py"
"""A file of `make full` alone."""


def run(repository: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=repository, check=False, capture_output=True, text=True).stdout


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "files"), [(NOT_FULL, {HALF: 1}), (ONLY_FULL, {HALF: 2, WHOLE: 3}), ("", {HALF: 3, WHOLE: 3})]
)
def test_a_test_is_run_by_make_test_or_by_make_full_and_by_name_always(
    repository: Path, chosen: str, files: dict[str, int]
) -> None:
    listed = run(repository, "--collect-only", "-q", "-m", chosen, HALF, WHOLE)
    found = re.findall(r"^(\S+\.py)::", listed, re.MULTILINE)
    assert {file: found.count(file) for file in found} == files


def test_continuous_integration_runs_both(repository: Path) -> None:
    assert re.search(r"\bmake test full\b", (repository / ".ci" / "run").read_text(encoding="utf-8"))
    recipes = (repository / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^\t.*-m '{NOT_FULL}' \$\(PYTEST_ARGS\)", recipes, re.MULTILINE)
    assert re.search(rf"^\t.*-m {ONLY_FULL} --fresh \$\(PYTEST_ARGS\)", recipes, re.MULTILINE)
