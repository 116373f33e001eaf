from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.read.metrics.monotone import MonotoneSum


def test_a_member_that_is_gone_keeps_what_it_counted() -> None:
    total: MonotoneSum[str] = MonotoneSum()
    assert total.add({"a": 10, "b": 20}) == 30
    assert total.add({"a": 11}) == 31
    assert total.add({"a": 12, "b": 25}) == 37


def test_a_member_that_joins_later_brings_no_past_with_it() -> None:
    total: MonotoneSum[str] = MonotoneSum()
    assert total.add({"a": 10}) == 10
    assert total.add({"a": 10, "b": 1000}) == 10
    assert total.add({"a": 11, "b": 1005}) == 16


def test_where_no_member_answers_there_is_no_sum() -> None:
    total: MonotoneSum[str] = MonotoneSum()
    assert total.add({}) is None
    assert total.add({"a": 3}) == 3
    assert total.add({}) is None
    assert total.add({"a": 4}) == 4


@given(st.lists(st.dictionaries(st.integers(0, 5), st.floats(0, 1e15)), max_size=30))
def test_no_sum_goes_back_whoever_is_in_it(steps: list[dict[int, float]]) -> None:
    total: MonotoneSum[int] = MonotoneSum()
    counters, before = dict.fromkeys(range(6), 0.0), 0.0
    for grown in steps:
        for member, by in grown.items():
            counters[member] += by
        now = total.add({member: counters[member] for member in grown})
        assert now is None or now >= before
        before = before if now is None else now
