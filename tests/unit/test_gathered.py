"""A test of all cases of a rule tells all cases that break it, and fails without any."""

from __future__ import annotations

import pytest
from tests.gathered import every, for_each


def test_all_cases_that_break_the_rule_are_told_by_name() -> None:
    @for_each("number", lambda: range(5))
    def rule(number: int, divisor: int) -> None:
        assert number % divisor, "is a multiple"

    with pytest.raises(pytest.fail.Exception, match=r"(?s)3 of 5 break the rule.*\n2: is a multiple.*\n4: is a"):
        rule(divisor=2)


def test_a_rule_without_cases_fails() -> None:
    with pytest.raises(AssertionError, match="no case"):
        every(iter(()))


def test_a_case_that_cannot_be_tried_is_named() -> None:
    @for_each("word", ["12", "a dozen"])
    def rule(word: str) -> None:
        assert int(word)

    with pytest.raises(RuntimeError, match="a dozen"):
        rule()
