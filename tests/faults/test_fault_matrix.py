"""Every row of the fault matrix is staged: `make test` plays some of the rows, `make full` all others."""

from collections.abc import Mapping
from functools import cache

import pytest
from tests.faults import play
from tests.faults.kinds import CODE_OF, KINDS
from tests.faults.page import misjudged
from tests.faults.play import play_alone, play_together
from tests.faults.row import Row, Seen, agrees
from tests.faults.rows import BRIEF, ROWS
from tests.faults.rows_calls import ONE_CALL, ONE_CODE
from tests.faults.rows_driver import COUNT, HANDLE, INIT
from tests.parts import some

BY_KEY = {row.key: row for row in ROWS}


SHARED = tuple(sorted((row for row in ROWS if row.shared), key=lambda row: row not in BRIEF))
"""Those of `make test` first: they are played without the others."""
TOGETHER = 20
"""How many are played for the first test that asks, within its time limit."""


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


@pytest.mark.timeout(600)  # the first row of a stage plays its healthy twin and 20 rows, 16 s of a CPU that may be busy
@pytest.mark.parametrize("key", some(BY_KEY, {row.key for row in BRIEF}))
def test_a_fault_is_told_costs_its_own_and_is_over_when_it_is_over(key: str) -> None:
    row, seen = BY_KEY[key], seen_of(BY_KEY[key])
    assert agrees(seen.says, row.says), seen.says
    assert seen.strayed == ()
    assert seen.went_back == ()
    assert seen.left == ()
    assert seen.lasting == ()


def test_a_finding_whose_condition_goes_on_after_the_fault_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = next(row for row in ROWS if row.fault.startswith("lost") and row.leaves)
    monkeypatch.setattr(play, "JUDGED_HISTORY", {})
    (lasting,) = play_alone(lost).lasting
    assert lasting.endswith(": xid.79")


def test_a_verdict_that_does_not_follow_from_the_findings_is_noticed() -> None:
    page = {
        'gpu_verdict{gpu="0",uuid="GPU-a"}': 2.0,
        'gpu_finding{gpu="0",uuid="GPU-a",code="xid.79",severity="critical",action="drain"}': 2.0,
        "gpu_host_verdict": 2.0,
    }
    assert misjudged(page) == {}
    ended = {series: 0.0 if series.startswith("gpu_finding") else value for series, value in page.items()}
    assert misjudged(ended) == {"GPU-a": (2.0, 0.0), "": (2.0, 0.0)}
    assert misjudged(page | {"gpu_host_verdict": 1.0}) == {}, "it is held"
    assert misjudged(page | {"gpu_host_verdict": 0.0}) == {"": (0.0, 2.0)}


def test_some_rows_have_a_call_of_each_collector_and_every_kind_of_code_at_each_way_to_the_driver() -> None:
    staged = {(row.group, row.fault) for row in BRIEF}
    assert {str(row.says) for row in ROWS if row.group == ONE_CALL} == {
        str(row.says) for row in BRIEF if row.group == ONE_CALL
    }
    assert {(group, kind.staged) for group in (INIT, COUNT, HANDLE, ONE_CODE) for kind in KINDS} <= staged
    assert {row.group for row in BRIEF} == {row.group for row in ROWS}
    assert len(BRIEF) < len(ROWS) / 5


def test_rows_are_told_apart() -> None:
    assert len(BY_KEY) == len(ROWS)


@pytest.mark.parametrize("code", CODE_OF)
def test_a_code_is_of_one_kind_that_is_staged_at_init_at_enumeration_and_at_readings(code: str) -> None:
    (kind,) = (kind for kind in KINDS if code in kind.names)
    assert {row.group for row in ROWS if row.fault == kind.staged} == {INIT, COUNT, HANDLE, ONE_CODE}
