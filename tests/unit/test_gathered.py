"""A test of all cases of a rule tells all cases that break it."""

from __future__ import annotations

import pytest
from tests.gathered import for_each


@for_each("number", [1, 2, 3, 4])
def rule_that_two_break(number: int) -> None:
    assert number % 2, "is even"


def test_all_cases_that_break_the_rule_are_told_by_name() -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        rule_that_two_break()
    assert "2 of 4 break the rule" in str(failed.value)
    assert "\n2: is even" in str(failed.value)
    assert "\n4: is even" in str(failed.value)


def test_a_rule_that_all_cases_keep_passes_and_gets_its_fixtures() -> None:
    seen = []

    @for_each("number", lambda: range(3))
    def rule(number: int, allowed: int) -> None:
        seen.append(number)
        assert number < allowed

    rule(allowed=3)
    assert seen == [0, 1, 2]


def test_a_rule_without_cases_fails() -> None:
    @for_each("number", [])
    def rule(number: int) -> None: ...

    with pytest.raises(AssertionError, match="no case"):
        rule()


def test_a_case_that_cannot_be_tried_is_named() -> None:
    @for_each("word", ["12", "a dozen"])
    def rule(word: str) -> None:
        assert int(word)

    with pytest.raises(RuntimeError, match="a dozen") as failed:
        rule()
    assert isinstance(failed.value.__cause__, ValueError)
