"""Continuous integration must not turn green because tests were skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SKIPS = """
import pytest

@pytest.mark.skip(reason="marked")
def test_marked(): ...

def test_missing_program(requires_tool):
    requires_tool("no-such-program-anywhere")

@pytest.mark.xfail(reason="known")
def test_expected_failure():
    raise AssertionError
"""

SKIPPED_MODULE = """
import pytest

pytest.skip("whole module", allow_module_level=True)
"""


def _run(directory: Path, repository: Path, source: str, ci: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(repository / "tests" / "conftest.py", directory)
    (directory / "test_sample.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", "--rootdir", str(directory), "."],
        cwd=directory,
        env={**os.environ, "CI": ci},
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_skip_is_only_a_skip_on_a_persons_machine(tmp_path: Path, repository: Path) -> None:
    result = _run(tmp_path, repository, SKIPS, ci="")
    assert "2 skipped, 1 xfailed" in result.stdout
    assert "no-such-program-anywhere is not installed here" in result.stdout
    assert result.returncode == 0


@pytest.mark.parametrize(
    ("source", "outcome"),
    [(SKIPS, "1 failed, 1 xfailed, 1 error"), (SKIPPED_MODULE, "1 error")],
    ids=["tests", "module"],
)
def test_a_skip_fails_continuous_integration(tmp_path: Path, repository: Path, source: str, outcome: str) -> None:
    result = _run(tmp_path, repository, source, ci="true")
    assert outcome in result.stdout
    assert result.returncode != 0
