"""What `make test` leaves out, `make full` runs, and continuous integration never turns green because of a skip."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.parts import NOT_FULL, ONLY_FULL


def test_continuous_integration_runs_both(repository: Path) -> None:
    assert re.search(r"\bmake test full\b", (repository / ".ci" / "run").read_text(encoding="utf-8"))
    recipes = (repository / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^\t.*-m '{NOT_FULL}' \$\(PYTEST_ARGS\)", recipes, re.MULTILINE)
    assert re.search(rf"^\t.*-m {ONLY_FULL} \$\(PYTEST_ARGS\)", recipes, re.MULTILINE)


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


@pytest.mark.slow
@pytest.mark.parametrize(("ci", "outcome"), [("", "3 skipped, 1 xfailed"), ("true", "1 failed, 1 xfailed, 2 errors")])
def test_a_skip_fails_in_ci_alone(tmp_path: Path, repository: Path, ci: str, outcome: str) -> None:
    shutil.copy(repository / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_sample.py").write_text(SKIPS)
    (tmp_path / "test_module.py").write_text(SKIPPED_MODULE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    environment = {**os.environ, "CI": ci}
    command += ["--rootdir", str(tmp_path), "."]
    result = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert outcome in result.stdout
    assert (result.returncode == 0) is (ci == "")
