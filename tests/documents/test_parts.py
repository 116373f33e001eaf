"""What `make test` leaves out, `make full` runs, and the last lines say both."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.parts import FULL, NOT_FULL, ONLY_FULL, TESTS, full_part, some

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


@pytest.mark.slow
def test_the_last_lines_say_what_ran_and_what_is_beyond_it(repository: Path) -> None:
    told = run(
        repository,
        "-q",
        "-m",
        NOT_FULL,
        "tests/unit/test_mutations.py::test_a_seed_draws_the_same_of_each_kind_from_many_folders",
    )
    assert re.search(r"^tests/unit +1 tests +\d+ s of a worker$", told, re.MULTILINE)
    assert [what for what in FULL.values() if f"  {what}\n" not in told] == []
    assert re.fullmatch(r"1 passed in [0-9.]+s", told.splitlines()[-1])


@pytest.mark.full
@pytest.mark.slow
def test_what_a_path_of_the_readme_takes_is_printed_once(repository: Path) -> None:
    walked = "test_kubernetes_has_dashboards_with_names_of_pods_after_three_commands"
    told = run(repository, "-q", "-n", "1", f"tests/deploy/test_first_minute.py::{walked}")
    assert len(re.findall(r"^Kubernetes: 3 commands, rendered in [0-9.]+ s$", told, re.MULTILINE)) == 1


def test_what_is_left_to_make_full_is_found_by_the_begin_of_its_path() -> None:
    assert full_part(TESTS / "privilege" / "test_least_privilege.py") == FULL["privilege/"]
    assert full_part(TESTS / "rules" / "test_static.py") is None
    assert full_part(Path("/elsewhere/test_week.py")) is None


def test_the_usual_parameters_are_of_every_run_and_the_others_are_not() -> None:
    chosen = some(range(4), {2})
    assert [(each.values[0], [mark.name for mark in each.marks]) for each in chosen] == [
        (0, ["full"]),
        (1, ["full"]),
        (2, []),
        (3, ["full"]),
    ]


def test_continuous_integration_runs_both(repository: Path) -> None:
    assert re.search(r"\bmake test full\b", (repository / ".ci" / "run").read_text(encoding="utf-8"))
    recipes = (repository / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^\t.*-m '{NOT_FULL}' \$\(PYTEST_ARGS\)", recipes, re.MULTILINE)
    assert re.search(rf"^\t.*-m {ONLY_FULL} --fresh \$\(PYTEST_ARGS\)", recipes, re.MULTILINE)
