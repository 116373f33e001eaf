"""The life of a finding over a restart of the exporter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.finding_course import (
    ABSENT,
    CONFIRMED,
    ENDED,
    EPSILON,
    HOLD,
    HOT,
    PENDING,
    WAIT,
    WINDOW,
    Course,
    confirmed,
    restarted,
)

from gpu_triage.judge.findings.states import ENDED_SECONDS, UNSEEN_SECONDS, FindingStates


def test_time_in_which_the_exporter_was_down_counts_if_the_condition_holds_on_its_return() -> None:
    course = Course()
    course.look(HOT)
    course.look(HOT, after=WAIT - 100)
    again = restarted(course, down_seconds=99)
    assert again.look(HOT) is PENDING
    assert again.look(HOT, after=1) is CONFIRMED
    assert (again.life.began_at, again.life.lasted_seconds) == (1000.0, WAIT)


def test_what_does_not_hold_on_its_return_is_not_taken_for_gone_before_the_window_is_full() -> None:
    course = Course()
    course.look(HOT)
    course.look(HOT, after=WAIT - 100)
    again = restarted(course, down_seconds=30)
    assert again.look() is PENDING
    assert again.look(after=WINDOW - EPSILON) is PENDING
    assert again.look(HOT) is PENDING
    assert again.life.lasted_seconds == WAIT - 10 - EPSILON, "it held all the time"
    other = restarted(course, down_seconds=30)
    assert other.look() is PENDING
    assert other.look(after=WINDOW) is ABSENT


def test_one_that_is_restored_again_and_again_and_never_seen_ends_after_a_day() -> None:
    course = confirmed()
    for _ in range(3):
        course = restarted(course, down_seconds=UNSEEN_SECONDS / 3 - 1)
        assert course.look() is CONFIRMED
    assert restarted(course, down_seconds=3).look(blind=True) is ENDED


def test_a_confirmed_one_stays_so_over_a_restart_until_its_hold_has_run_out() -> None:
    again = restarted(confirmed(), down_seconds=3600)
    assert again.look() is CONFIRMED
    assert again.look(after=WINDOW) is CONFIRMED
    assert again.look(after=HOLD - EPSILON) is CONFIRMED
    assert again.look(after=EPSILON) is ENDED


def test_an_ended_one_is_published_for_the_rest_of_its_twenty_minutes() -> None:
    course = confirmed()
    course.look()
    course.look(after=HOLD)
    again = restarted(course, down_seconds=ENDED_SECONDS - 10)
    assert again.look() is ENDED
    assert again.look(after=10) is ABSENT


def test_what_is_restored_late_goes_on_from_what_was_seen_meanwhile() -> None:
    course = Course()
    course.look(HOT)
    course.look(HOT, after=WAIT - 100)
    late = Course(FindingStates(WINDOW), course.now + 50)
    assert late.look(HOT) is PENDING
    assert late.look(HOT, after=20) is PENDING
    late.states.restore(course.states.lives)
    assert (late.life.began_at, late.life.lasted_seconds) == (1000.0, WAIT - 30)
    assert late.look(HOT, after=30) is CONFIRMED


def test_what_is_restored_late_does_not_undo_what_was_seen_meanwhile() -> None:
    course = confirmed()
    late = Course(FindingStates(WINDOW), course.now + 50)
    late.look(HOT)
    late.look(after=5, blind=True)
    late.states.restore(course.states.lives)
    assert (late.life.state, late.life.holds, late.life.began_at) == (CONFIRMED, None, 1000.0)
    later = late.life
    late.states.restore([replace(later, seen_at=later.seen_at + 1, lasted_seconds=9e9)])
    assert late.life == later


def test_a_life_of_a_time_that_this_boot_has_not_reached_is_not_used() -> None:
    course = confirmed()
    early = Course(FindingStates(), course.now - 1)
    early.states.restore(course.states.lives)
    assert early.look() is ABSENT


LOOKS = st.lists(st.tuples(st.floats(0, 2000), st.sampled_from(("holds", "gone", "blind", "restart"))), max_size=60)


@given(looks=LOOKS)
def test_on_any_course_the_times_agree_and_no_state_is_skipped(looks: Sequence[tuple[float, str]]) -> None:
    course, before = Course(), ABSENT
    for after, what in looks:
        if what == "restart":
            course = restarted(course, after)
            continue
        state = course.look(*((HOT,) if what == "holds" else ()), after=after, blind=what == "blind")
        for life in course.states.lives:
            assert 0 <= life.lasted_seconds <= life.seen_at - life.began_at + 1e-6
            assert life.seen_at <= course.now
            assert (life.state is CONFIRMED) <= (life.lasted_seconds >= WAIT)
        assert state is not ENDED or before in (CONFIRMED, ENDED)
        assert state is not CONFIRMED or before in (PENDING, CONFIRMED)
        before = state
