"""The life of a finding, each transition at its time and just before it; also over a restart of the exporter."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.judged import judged
from tests.rig import only, scenario_with

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.past import Memory
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.states import (
    ENDED_SECONDS,
    MOST_FINDINGS,
    UNSEEN_SECONDS,
    EndReason,
    FindingStates,
    Life,
)
from gpu_triage.judge.findings.table import BY_CODE, CHECKS, Check
from gpu_triage.judge.host_judge import HostJudge
from gpu_triage.judge.report.report import JudgedHost
from gpu_triage.machine import Moment

WAIT, HOLD, WINDOW = 600.0, 900.0, 60.0
ABSENT, ENDED, PENDING, CONFIRMED = None, State.ENDED, State.PENDING, State.CONFIRMED

CHECK = replace(BY_CODE["thermal.hw"], wait_seconds=WAIT, hold_seconds=HOLD)
HOT = Finding(CHECK, "hot", "0", "GPU-a", value=0.5)
LATCHED = Finding(replace(CHECK, wait_seconds=0.0), "hot", "0", "GPU-a")
EDGE = 0.25


@dataclass
class Course:
    """The states of one host, and the second that it is there."""

    states: FindingStates = field(default_factory=FindingStates)
    now: float = 1000.0
    ended: tuple[Life, ...] = ()

    def look(
        self, *found: Finding, after: float = 0.0, blind: bool = False, reset_at: float | None = None
    ) -> State | None:
        """Judge after some seconds; returns the state of HOT.

        Args:
            after: seconds since the last look.
            blind: what was not found could not be observed.
        """
        self.now += after
        present, self.ended = self.states.judge(found, lambda _finding: not blind, self.now, lambda _finding: reset_at)
        lives = [life for life in (*present, *self.ended) if life.key == (HOT.uuid, CHECK.code)]
        assert len(lives) <= 1
        return lives[0].state if lives else None

    @property
    def life(self) -> Life:
        (life,) = (life for life in self.states.lives if life.key == (HOT.uuid, CHECK.code))
        return life


def confirmed() -> Course:
    course = Course()
    course.look(HOT)
    assert course.look(HOT, after=WAIT) is CONFIRMED
    return course


def restarted(course: Course, down_seconds: float) -> Course:
    """The course of another exporter that was started later in this boot."""
    states = FindingStates(WINDOW)
    states.restore(course.states.lives)
    return Course(states, course.now + down_seconds)


Step = tuple[str, float, "State | EndReason | None"]
H, G, B = "hot", "gone", "blind"
"""What is seen after some seconds (`blind`: nobody could look), and what follows."""
DOWN, RESET, BEGAN, LASTED = "down", "reset", "began", "lasted"
"""The exporter is started again after some seconds; when the GPU was reset last; what is known of the life by now."""
P, C, A, E, UNSEEN, CURED = PENDING, CONFIRMED, ABSENT, EndReason.GONE, EndReason.UNSEEN, EndReason.RESET

SURE: Final = ((H, 0, P), (H, WAIT, C))
NEARLY: Final = ((H, 0, P), (H, WAIT - 100, P))
THIRD: Final = ((DOWN, UNSEEN_SECONDS / 3 - 1, A), (G, 0, C))

LIVES: Final = MappingProxyType[str, "tuple[Step, ...]"](
    {
        "is confirmed when it has lasted its wait and not before": (
            *((H, 0, P), (H, WAIT - EDGE, P), (H, EDGE, C), (BEGAN, 1000, A), (LASTED, WAIT, A)),
        ),
        "is confirmed when it has lasted its wait within three, with gaps in which nothing is told": (
            *((H, 0, P), (H, WAIT - 10, P), (G, 5, A), (G, WAIT, A), (H, 5, P), (LASTED, WAIT - 10, A)),
            *((H, 10 - EDGE, P), (H, EDGE, C), (BEGAN, 1000, A)),
        ),
        "was nothing if its condition held longer ago, and its wait begins anew": (
            *((H, 0, P), (H, 300, P), (G, 5, A), (G, 3 * WAIT - EDGE, A), (H, 5, P), (LASTED, 0, A)),
        ),
        "does not end in a gap like the longest before": (
            *((H, 0, P), (H, 400, P), (G, 0, A), (G, 800, A), (H, 0, P), (H, 200, C), (G, 0, C)),
            *((G, 1200 - EDGE, C), (G, EDGE, E)),
        ),
        "has a gap only as far as somebody looked": (
            *((H, 0, P), (H, 400, P), (G, 0, A), (B, 2000, A), (B, 2000, A), (H, 0, P), (LASTED, 400, A)),
        ),
        "ends when it has been gone for its hold and not before": (*SURE, (G, 5, C), (G, HOLD - EDGE, C), (G, EDGE, E)),
        "is published as ended for twenty minutes": (
            *(*SURE, (G, 0, C), (G, HOLD, E), (G, ENDED_SECONDS - EDGE, E), (G, EDGE, A)),
        ),
        "is the same incident if it returns within its hold, which begins anew; the time in between does not count": (
            *(*SURE, (G, 5, C), (H, HOLD - EDGE, C), (BEGAN, 1000, A), (LASTED, WAIT, A)),
            *((G, 5, C), (G, HOLD - EDGE, C)),
        ),
        "is a new incident if it returns after its hold": (
            *(*SURE, (G, 5, C), (H, HOLD, P), (BEGAN, 1605 + HOLD, A), (H, WAIT, C)),
        ),
        "is a new incident if it returns once it was seen to end": (
            *(*SURE, (G, 5, C), (G, HOLD, E), (H, 0, P), (BEGAN, 1605 + HOLD, A), (H, WAIT, C)),
        ),
        "neither lasts nor ends while it is pending and cannot be observed": (
            *((H, 0, P), (H, WAIT - 10, P), (B, 5, P), (B, 3600, P), (H, 5, P), (LASTED, WAIT - 10, A)),
            *((H, 10 - EDGE, P), (H, EDGE, C), (BEGAN, 1000, A)),
        ),
        "has a hold that stands still while it cannot be observed": (
            *(*SURE, (G, 5, C), (G, HOLD - 10, C), (B, 5, C), (B, 3600, C)),
            *((G, 5, C), (G, 10 - EDGE, C), (G, EDGE, E)),
        ),
        "ends after a day unseen and says so": (*SURE, (B, UNSEEN_SECONDS - EDGE, C), (B, EDGE, UNSEEN)),
        "is nothing if it is pending for a day unseen": ((H, 0, P), (B, UNSEEN_SECONDS - EDGE, P), (B, EDGE, A)),
        "has a day unseen that begins anew once it was seen": (
            *(*SURE, (B, UNSEEN_SECONDS - 1, C), (H, 5, C), (B, UNSEEN_SECONDS - 1, C)),
        ),
        "lasts in a gap between two judgments, and its hold begins after one": (*SURE, (G, 10 * HOLD, C), (G, HOLD, E)),
        # With the resets of its GPU:
        "ends at once by a reset just as long ago as evidence looks back": (
            *(*SURE, (RESET, 1600 - WINDOW, A), (G, 5, CURED)),
        ),
        "does not end by a reset before that": (*SURE, (RESET, 1599 - WINDOW, A), (G, 5, C)),
        "ends at once by a reset after it was seen": (*SURE, (RESET, 1602, A), (G, 5, CURED)),
        "ends by a reset in the middle of its hold, and a new incident does not by that one": (
            *(*SURE, (RESET, 10, A), (G, 5, C), (G, 100, C), (RESET, 1703, A), (G, 5, CURED)),
            *((H, 5, P), (H, WAIT, C), (G, 5, C)),
        ),
        "goes on after a reset that did not help, and then has its hold": (
            *(*SURE, (RESET, 1602, A), (H, 5, C), (BEGAN, 1000, A), (H, WINDOW, C), (G, 5, C)),
        ),
        "ends with a reset although the GPU rests, if only load shows it": (
            *(*SURE, (RESET, 10, A), (B, 5, C), (RESET, 1606, A), (B, 5, CURED)),
        ),
        "ends by a reset while the exporter was down before the window was seen": (
            *(*SURE, (RESET, 1610, A), (DOWN, 20, A), (G, 0, CURED)),
        ),
        # With restarts of the exporter:
        "lasts while the exporter is down if its condition holds then": (
            *(*NEARLY, (DOWN, 99, A), (H, 0, P), (H, 1, C), (BEGAN, 1000, A), (LASTED, WAIT, A)),
        ),
        "is not taken for gone before the window is full": (
            *(*NEARLY, (DOWN, 30, A), (G, 0, P), (G, WINDOW - EDGE, P), (H, 0, P), (LASTED, WAIT - 10 - EDGE, A)),
        ),
        "is gone once the window is full": (*NEARLY, (DOWN, 30, A), (G, 0, P), (G, WINDOW, A)),
        "has gaps over a restart": (
            *(*NEARLY, (G, 5, A), (DOWN, WAIT, A), (G, 0, A), (G, WINDOW, A), (H, 0, P), (H, 99, P), (H, 1, C)),
        ),
        "ends after a day if it is restored again and again and never seen": (
            *(*SURE, *THIRD, *THIRD, *THIRD, (DOWN, 3, A), (B, 0, UNSEEN)),
        ),
        "stays confirmed over a restart until its hold has run out": (
            *(*SURE, (DOWN, 3600, A), (G, 0, C), (G, WINDOW, C), (G, HOLD - EDGE, C), (G, EDGE, E)),
        ),
        "is published as ended for the rest of its twenty minutes after a restart": (
            *(*SURE, (G, 0, C), (G, HOLD, E), (DOWN, ENDED_SECONDS - 10, A), (G, 0, E), (G, 10, A)),
        ),
    }
)
"""Lives from second 1000 on; a sure finding is confirmed at 1600."""


def follow(steps: Sequence[Step], found: Finding = HOT) -> None:
    course, reset_at = Course(FindingStates(WINDOW)), None
    for number, (what, seconds, then) in enumerate(steps):
        if what == DOWN:
            course = restarted(course, seconds)
        elif what == RESET:
            reset_at = seconds
        elif what in {BEGAN, LASTED}:
            assert (course.life.began_at if what == BEGAN else course.life.lasted_seconds) == seconds
        else:
            state = course.look(*[found] * (what == H), after=seconds, blind=what == B, reset_at=reset_at)
            assert (course.life.end if state is ENDED else state) is then, (number, what)
            assert state is not ABSENT or all(life.state is PENDING and not life.holds for life in course.states.lives)
            assert then is not CURED or course.life.seen_at == course.now


@pytest.mark.parametrize("steps", LIVES.values(), ids=LIVES)
def test_a_finding(steps: Sequence[Step]) -> None:
    follow(steps)


@pytest.mark.parametrize(
    ("found", "steps"),
    [
        pytest.param(LATCHED, [(H, 0, C)], id="no wait"),
        pytest.param(replace(HOT, check=replace(CHECK, hold_seconds=0.0)), [*SURE, (H, 5, C), (G, 5, E)], id="no hold"),
        pytest.param(
            replace(HOT, check=replace(CHECK, continuous=True)),
            [(H, 0, P), (H, 300, P), (G, 5, A), (H, 5, P), (LASTED, 0, A)],
            id="a gap begins the wait of what is continuous anew",
        ),
        pytest.param(
            replace(HOT, check=replace(CHECK, under_load=False)),
            [*SURE, (RESET, 1602, A), (B, 5, C), (B, 100, C), (G, 5, CURED)],
            id="after a reset, somebody must look at what a GPU at rest shows",
        ),
    ],
)
def test_a_finding_of_another_check(found: Finding, steps: Sequence[Step]) -> None:
    follow(steps, found)


PERIODIC: Final = [check for check in CHECKS if check.wait_seconds and not check.continuous]
CONTINUOUS: Final = [check for check in CHECKS if check.wait_seconds and check.continuous]


def played(check: Check, duty: float, spell_waits: float, loss: float | None = None) -> list[State | None]:
    """Return its states over ten windows of a condition that lasts so many waits at a time, for a share of the time."""
    course, found, states = Course(), replace(HOT, check=check, loss=loss), list[State | None]()
    step, waits = check.wait_seconds / 30, 10 * 3
    for number in range(30 * waits):
        lasts = number / 30 % (spell_waits / duty) < spell_waits
        course.look(*[found] * lasts, after=step)
        states.append(next((life.state for life in course.states.lives), ABSENT))
    return states


@pytest.mark.parametrize("check", PERIODIC, ids=lambda check: check.code)
@pytest.mark.parametrize(("duty", "spell_waits"), [(0.8, 0.9), (0.5, 0.5), (0.5, 0.9), (0.4, 0.3), (0.4, 0.9)])
def test_a_fault_that_comes_and_goes_is_one_incident(check: Check, duty: float, spell_waits: float) -> None:
    states = played(check, duty, spell_waits)
    assert list(dict.fromkeys(states)) == [PENDING, CONFIRMED]
    assert states.index(CONFIRMED) <= 3 * 30
    assert set(states[states.index(CONFIRMED) :]) == {CONFIRMED}


@pytest.mark.parametrize("check", PERIODIC, ids=lambda check: check.code)
@pytest.mark.parametrize(("duty", "spell_waits"), [(0.1, 0.3), (0.2, 0.3), (0.2, 0.45)])
def test_a_short_spell_now_and_then_is_healthy(check: Check, duty: float, spell_waits: float) -> None:
    assert CONFIRMED not in played(check, duty, spell_waits)


@pytest.mark.parametrize("check", CONTINUOUS, ids=lambda check: check.code)
def test_a_gap_proves_that_a_job_did_not_hang_and_bridged_errors_were_few(check: Check) -> None:
    assert CONFIRMED not in played(check, 0.8, 0.9)
    assert CONFIRMED in played(check, 0.9, 1.1)


def test_what_a_job_loses_now_and_then_does_not_add_up() -> None:
    assert CONFIRMED not in played(CHECK, 0.2, 0.3, loss=0.5)


def test_two_gpus_one_slot_and_the_host_have_lives_of_their_own() -> None:
    findings = (HOT, replace(HOT, uuid="GPU-b"), replace(HOT, gpu=None, uuid=""), Finding(CHECK, "", pci_bus_id="0:1"))
    states = FindingStates()
    states.judge(findings, lambda _finding: True, 0.0)
    present, _ = states.judge(findings[1:], lambda _finding: True, 5.0)
    assert [life.finding for life in present] == [*findings[1:]]


def test_of_several_with_one_key_the_first_counts_and_what_was_measured_last_is_told() -> None:
    course, hotter = Course(), replace(HOT, measured="hotter", value=0.9, detail="91 °C")
    course.look(replace(HOT, detail="87 °C"), hotter)
    assert course.life.finding.value == 0.5
    course.look(hotter, after=5)
    course.look(after=5, blind=True)
    found = course.life.finding
    assert (found.value, found.measured, found.detail) == (0.9, "hotter", "91 °C")


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


def test_of_a_flood_those_are_kept_that_come_first_in_the_playbook() -> None:
    flood = [replace(HOT, uuid=f"GPU-{number}") for number in range(MOST_FINDINGS)]
    host, silent = HostEvidence(0.0, Moment(NOW, NOW), {}, Memory()), Finding(BY_CODE["driver.unavailable"], "")
    report = HostJudge(JudgedHost("gpu-7")).judge(host, more=(*flood, silent)).report
    assert [each.check.code for each in report.findings[:2]] == ["driver.unavailable", "thermal.hw"]


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
    early = Course(FindingStates(), course.now - 1)
    early.states.restore(course.states.lives)
    assert early.look() is ABSENT, "of a time that this boot has not reached"
    later = late.life
    late.states.restore([replace(later, seen_at=later.seen_at + 1, lasted_seconds=9e9)])
    assert late.life == later


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


NOW = 100_000.0
STEP = only("power", "recovery", "activity", "identity", sample_fast_seconds=5.0)


def test_while_nothing_was_read_the_findings_of_before_stay_as_they_were() -> None:
    missing = Finding(BY_CODE["gpu.missing"], "7 of 8", value=1)
    judge = HostJudge(JudgedHost("gpu-7", continuous=True), longest_gap_seconds=WINDOW)
    judge.states.restore(Life(each, CONFIRMED, 5000.0, 900.0, NOW - 20, NOW - 40, None) for each in (HOT, missing))
    for now in (NOW, NOW + 1, NOW + WINDOW - 1):
        report = judge.judge(HostEvidence(0.0, Moment(now, 1.7e9 + now), {}, Memory())).report
        kept = {(each.check.code, each.state, each.lasted_seconds) for each in report.findings}
        assert kept == {("thermal.hw", CONFIRMED, 900.0), ("gpu.missing", CONFIRMED, 900.0)}
        assert report.ended == ()


ASKED = 'at = 20\nuntil = 100\ngpu = 0\neffect = { kind = "recovery_action", action = 1 }'
LOST = 'at = 20\nuntil = 100\ngpu = 1\neffect = { kind = "lost" }'
RELOADED = 'at = 100\nuntil = 110\neffect = { kind = "driver_not_loaded" }'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("events", "gpu", "code"),
    [((ASKED,), "0", "recovery.action"), ((LOST, RELOADED), "1", "gpu.lost"), ((LOST, RELOADED), "1", "xid.79")],
)
def test_what_a_reset_cured_is_over_with_the_reset(
    tmp_path: Path, events: tuple[str, ...], gpu: str, code: str
) -> None:
    with judged(scenario_with(tmp_path, "idle-downshift", *events), STEP) as seen:
        seen.run_to(95)
        assert [state for _, state in seen.lives[gpu, code]] == [State.CONFIRMED]
        assert seen.running.value("gpu_verdict", gpu=gpu) == 2
        assert seen.running.value("gpu_finding_since_timestamp_seconds", gpu=gpu, code=code) is not None
        seen.run_to(200)
        assert [state for _, state in seen.lives[gpu, code]] == [State.CONFIRMED, State.ENDED]
        assert seen.running.value("gpu_verdict", gpu=gpu) == 0
        assert seen.running.value("gpu_finding_since_timestamp_seconds", gpu=gpu, code=code) is None, "it is over"
        (ended,) = (each for each in seen.report.ended if each.check.code == code)
        assert ended.end == EndReason.RESET.value
