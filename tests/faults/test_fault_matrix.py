"""Every row of the fault matrix is staged, and the printed matrix says what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from tests.faults.injections import CODES
from tests.faults.play import play_alone, play_together
from tests.faults.report import printed
from tests.faults.row import Row, Seen, agrees
from tests.faults.rows import ROWS

BY_KEY = {row.key: row for row in ROWS}


SHARED = tuple(row for row in ROWS if row.shared)
TOGETHER = 60


@cache
def together(number: int) -> Mapping[str, Seen]:
    """What was seen of some of the rows that share stages."""
    return play_together(SHARED[number * TOGETHER : (number + 1) * TOGETHER])


@cache
def alone(key: str) -> Seen:
    """What was seen of a row that has a stage of its own."""
    return play_alone(BY_KEY[key])


def seen_of(row: Row) -> Seen:
    """What was seen of a row; it is played once, however often it is asked about."""
    return together(SHARED.index(row) // TOGETHER)[row.key] if row.shared else alone(row.key)


@pytest.mark.parametrize("key", BY_KEY)
def test_a_fault_is_told_costs_its_own_and_is_over_when_it_is_over(key: str) -> None:
    row, seen = BY_KEY[key], seen_of(BY_KEY[key])
    assert agrees(seen.says, row.says), seen.says
    assert seen.strayed == ()
    assert seen.went_back == ()
    assert seen.left == ()


def test_the_printed_matrix_is_what_was_seen(repository: Path, request: pytest.FixtureRequest) -> None:
    path = repository / "docs" / "fault-matrix.md"
    text = printed({row.key: (row, seen_of(row)) for row in ROWS})
    if request.config.getoption("--regenerate"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "print it anew with: pytest tests/faults --regenerate"


def test_rows_are_told_apart() -> None:
    assert len(BY_KEY) == len(ROWS)


@pytest.mark.parametrize("code", CODES)
def test_every_code_of_the_header_is_staged_at_init_at_enumeration_and_at_readings(code: str) -> None:
    groups = {row.group for row in ROWS if row.fault == code.removeprefix("NVML_ERROR_")}
    assert len(groups) == 4
