"""The life of a finding, each transition at its time and just before it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.finding_course import (
    ABSENT,
    CHECK,
    CONFIRMED,
    ENDED,
    EPSILON,
    HOLD,
    HOT,
    LATCHED,
    PENDING,
    WAIT,
    WINDOW,
    Course,
    confirmed,
    restarted,
)

from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.states import ENDED_SECONDS, MOST_FINDINGS, UNSEEN_SECONDS, EndReason, FindingStates


def test_it_is_confirmed_when_it_has_lasted_its_wait_and_not_before() -> None:
    course = Course()
    assert course.look() is ABSENT
    assert course.look(HOT) is PENDING
    assert course.look(HOT, after=WAIT - EPSILON) is PENDING
    assert course.look(HOT, after=EPSILON) is CONFIRMED
    assert (course.life.began_at, course.life.lasted_seconds) == (1000.0, WAIT)


def test_without_a_wait_it_is_confirmed_at_once() -> None:
    assert Course().look(LATCHED) is CONFIRMED


def test_a_pending_one_whose_condition_is_gone_was_nothing() -> None:
    course = Course()
    course.look(HOT)
    assert course.look(HOT, after=WAIT - 1) is PENDING
    assert course.look(after=5) is ABSENT
    assert course.ended == ()
    assert course.look(HOT, after=5) is PENDING
    assert course.look(HOT, after=WAIT - 1) is PENDING, "its wait begins anew"


def test_it_ends_when_it_has_been_gone_for_its_hold_and_not_before() -> None:
    course = confirmed()
    assert course.look(after=5) is CONFIRMED
    assert course.look(after=HOLD - EPSILON) is CONFIRMED
    assert course.look(after=EPSILON) is ENDED
    assert course.life.end is EndReason.GONE


def test_it_is_published_as_ended_for_twenty_minutes() -> None:
    course = confirmed()
    course.look()
    assert course.look(after=HOLD) is ENDED
    assert course.look(after=ENDED_SECONDS - EPSILON) is ENDED
    assert course.look(after=EPSILON) is ABSENT
    assert course.states.lives == ()


def test_one_that_returns_within_its_hold_is_the_same_incident_and_its_hold_begins_anew() -> None:
    course = confirmed()
    course.look(after=5)
    assert course.look(HOT, after=HOLD - EPSILON) is CONFIRMED
    assert course.life.began_at == 1000.0
    assert course.life.lasted_seconds == WAIT, "the time in between does not count"
    course.look(after=5)
    assert course.look(after=HOLD - EPSILON) is CONFIRMED


@pytest.mark.parametrize("looks", [0, 1])
def test_one_that_returns_after_its_hold_is_a_new_incident(looks: int) -> None:
    course = confirmed()
    course.look(after=5)
    if looks:
        assert course.look(after=HOLD) is ENDED
        course.now -= HOLD
    assert course.look(HOT, after=HOLD) is PENDING
    assert course.life.began_at == course.now
    assert course.look(HOT, after=WAIT) is CONFIRMED


def test_without_a_hold_it_ends_at_once_and_lasts_while_it_holds() -> None:
    default_samples = replace(HOT, check=replace(CHECK, hold_seconds=0.0))
    course = Course()
    course.look(default_samples)
    assert course.look(default_samples, after=WAIT) is CONFIRMED
    assert course.look(default_samples, after=5) is CONFIRMED
    assert course.look(after=5) is ENDED


def test_while_it_cannot_be_observed_a_pending_one_neither_lasts_nor_ends() -> None:
    course = Course()
    course.look(HOT)
    assert course.look(HOT, after=WAIT - 10) is PENDING
    assert course.look(after=5, blind=True) is PENDING
    assert course.look(after=3600, blind=True) is PENDING
    assert course.look(HOT, after=5) is PENDING
    assert course.life.lasted_seconds == WAIT - 10
    assert course.look(HOT, after=10 - EPSILON) is PENDING
    assert course.look(HOT, after=EPSILON) is CONFIRMED
    assert course.life.began_at == 1000.0


def test_while_it_cannot_be_observed_the_hold_stands_still() -> None:
    course = confirmed()
    course.look(after=5)
    assert course.look(after=HOLD - 10) is CONFIRMED
    assert course.look(after=5, blind=True) is CONFIRMED
    assert course.look(after=3600, blind=True) is CONFIRMED
    assert course.look(after=5) is CONFIRMED
    assert course.look(after=10 - EPSILON) is CONFIRMED
    assert course.look(after=EPSILON) is ENDED


@pytest.mark.parametrize(("found", "before", "after"), [(1, CONFIRMED, ENDED), (0, PENDING, ABSENT)])
def test_it_ends_after_a_day_unseen_and_says_so(found: int, before: State, after: State | None) -> None:
    course = confirmed() if found else Course()
    if not found:
        course.look(HOT)
    assert course.look(after=UNSEEN_SECONDS - EPSILON, blind=True) is before
    assert course.look(after=EPSILON, blind=True) is after
    assert [life.end for life in course.states.lives] == [EndReason.UNSEEN] * found


def test_a_day_unseen_begins_anew_once_it_was_seen() -> None:
    course = confirmed()
    course.look(after=UNSEEN_SECONDS - 1, blind=True)
    course.look(HOT, after=5)
    assert course.look(after=UNSEEN_SECONDS - 1, blind=True) is CONFIRMED


def test_a_gap_between_two_judgments_counts_only_if_it_held_before_and_after() -> None:
    course = Course()
    course.look(HOT)
    assert course.look(HOT, after=WAIT) is CONFIRMED, "the exporter was down, or its judge failed"
    course.look(after=10 * HOLD)
    assert course.life.state is CONFIRMED, "nobody knows when it went; the hold begins now"
    assert course.look(after=HOLD) is ENDED


def test_a_gpu_with_another_index_has_the_same_incident() -> None:
    course = confirmed()
    assert course.look(replace(HOT, gpu="5"), after=5) is CONFIRMED
    (life,) = course.states.lives
    assert (life.finding.gpu, life.began_at) == ("5", 1000.0)


def test_two_gpus_one_slot_and_the_host_have_lives_of_their_own() -> None:
    findings = (HOT, replace(HOT, uuid="GPU-b"), replace(HOT, gpu=None, uuid=""), Finding(CHECK, "", pci_bus_id="0:1"))
    states = FindingStates()
    states.judge(findings, lambda _finding: True, 0.0)
    present, _ = states.judge(findings[1:], lambda _finding: True, 5.0)
    assert [life.finding for life in present] == [*findings[1:]]


def test_of_several_with_one_key_the_first_counts() -> None:
    course = Course()
    course.look(HOT, replace(HOT, measured="hotter", value=0.9))
    assert [life.finding.value for life in course.states.lives] == [0.5]


def test_what_was_measured_last_is_what_is_told() -> None:
    course = Course()
    course.look(HOT)
    course.look(replace(HOT, measured="hotter", value=0.9), after=5)
    assert course.life.finding.value == 0.9
    course.look(after=5, blind=True)
    assert course.life.finding.measured == "hotter"


def test_a_judgment_that_fails_half_way_notes_nothing() -> None:
    course = confirmed()
    before = course.states.lives

    def broken(_finding: Finding) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        course.states.judge((replace(HOT, uuid="GPU-b"),), broken, course.now + 5)
    assert course.states.lives == before
    assert course.look(HOT, after=10) is CONFIRMED


def test_a_flood_is_bounded_and_ended_ones_go_first() -> None:
    def flood(first: int) -> list[Finding]:
        return [replace(LATCHED, uuid=f"GPU-{number}") for number in range(first, first + MOST_FINDINGS)]

    states = FindingStates()
    states.judge(flood(0), lambda _finding: True, 0.0)
    states.judge((), lambda _finding: True, 5.0)
    _, ended = states.judge((), lambda _finding: True, 5.0 + HOLD)
    assert len(ended) == MOST_FINDINGS
    present, ended = states.judge(flood(10_000)[1:], lambda _finding: True, 10.0 + HOLD)
    assert (len(present), len(ended)) == (MOST_FINDINGS - 1, 1)
    present, ended = states.judge(flood(20_000), lambda _finding: False, 15.0 + HOLD)
    assert (len(present), len(ended)) == (MOST_FINDINGS, 0)


def of_window() -> Course:
    """A course with a finding confirmed at 1600.0, by evidence that looks back for WINDOW."""
    course = Course(FindingStates(WINDOW))
    course.look(HOT)
    assert course.look(HOT, after=WAIT) is CONFIRMED
    return course


@pytest.mark.parametrize(
    ("reset_at", "after"), [(1600.0 - WINDOW, ENDED), (1599.0 - WINDOW, CONFIRMED), (1602.0, ENDED)]
)
def test_it_ends_at_once_when_its_gpu_is_reset_after_its_condition_last_held(reset_at: float, after: State) -> None:
    course = of_window()
    assert course.look(after=5, reset_at=reset_at) is after
    if after is ENDED:
        assert (course.life.end, course.life.seen_at) == (EndReason.RESET, course.now)


def test_a_reset_in_the_middle_of_its_hold_ends_it() -> None:
    course = of_window()
    assert course.look(after=5, reset_at=10.0) is CONFIRMED
    assert course.look(after=100, reset_at=10.0) is CONFIRMED
    assert course.look(after=5, reset_at=1703.0) is ENDED
    assert course.look(HOT, after=5, reset_at=1703.0) is PENDING, "a new incident"
    assert course.look(HOT, after=WAIT, reset_at=1703.0) is CONFIRMED
    assert course.look(after=5, reset_at=1703.0) is CONFIRMED, "the reset was before it"


def test_a_reset_that_did_not_help_ends_nothing() -> None:
    course = of_window()
    assert course.look(HOT, after=5, reset_at=1602.0) is CONFIRMED
    assert course.life.began_at == 1000.0
    assert course.look(HOT, after=WINDOW, reset_at=1602.0) is CONFIRMED
    assert course.look(after=5, reset_at=1602.0) is CONFIRMED, "it held on after the reset: its hold counts"


def test_after_a_reset_it_stays_until_somebody_could_look() -> None:
    always = replace(HOT, check=replace(CHECK, under_load=False))
    course = Course(FindingStates(WINDOW))
    course.look(always)
    assert course.look(always, after=WAIT) is CONFIRMED
    assert course.look(after=5, blind=True, reset_at=1602.0) is CONFIRMED
    assert course.look(after=100, blind=True, reset_at=1602.0) is CONFIRMED
    assert course.look(after=5, reset_at=1602.0) is ENDED


def test_what_only_load_shows_ends_with_a_reset_although_the_gpu_rests() -> None:
    course = of_window()
    assert HOT.check.under_load
    assert course.look(after=5, blind=True, reset_at=10.0) is CONFIRMED
    assert course.look(after=5, blind=True, reset_at=1606.0) is ENDED


def test_a_reset_while_the_exporter_was_down_ends_it_before_the_window_was_seen() -> None:
    course = restarted(of_window(), 20.0)
    assert course.look(reset_at=1610.0) is ENDED
