"""Texts that become values, whatever the text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.options.values import parse_duration, show_duration


@given(st.floats(min_value=0.001, max_value=1e6))
def test_any_duration_is_written_so_that_it_reads_back(seconds: float) -> None:
    assert parse_duration(show_duration(seconds)) == seconds


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_refused_on_one_line(text: str) -> None:
    try:
        assert parse_duration(text) >= 0
    except ValueError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - either outcome is right
        assert "; write " in str(error)  # noqa: PT017
