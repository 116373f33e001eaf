"""Every state of a machine has its class in time, keeps it, and is not taken for another on the way."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from tests.parts import some
from tests.states.numbers_of_gpus import WAITS_FOR_LOADERS, waits
from tests.states.play import PHASES_SECONDS, PROMISED_SECONDS, State, play, steady_day
from tests.states.states import FAMILIES, STATES

from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES

BACK_SECONDS = 90
"""Within how long a GPU has its old class again when a state ends."""
BY_NAME = {state.name: state for state in STATES}
REPRESENTATIVES = [
    BY_NAME[name]
    for name in (
        *("memory-bound decoding on one l40s", "a collective on two a10", "a dead NFS server, not seen before, l40s"),
        *("a wide link that is full", "busy 74% behind one full thread", "clocks locked at half, l40s"),
        *("hardware slows it for heat", "its own CPU limit", "a full disk", "TCP retransmits", "Xid 48"),
        *("the job ends", "a checkpoint's pause at 85 W"),
    )
]
"""A state of each kind, which `make test` plays."""


def phase_of(state: State) -> float:
    """When the exporter starts, in seconds: another moment for each state, and always the same."""
    return Random(state.name).uniform(0.0, PHASES_SECONDS)


def of_all(usual: list[State]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("state", some(STATES, usual), ids=[state.name for state in STATES])


def full(states: list[State]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("state", some(states, []), ids=[state.name for state in states])


@of_all(REPRESENTATIVES)
def test_a_state_has_its_class_in_time_and_keeps_it(state: State) -> None:
    seen = play(state, phase_of(state))
    assert seen.before <= {state.was}
    assert seen.seconds <= (state.promised if state.must_change or state.unseen_before else 0)
    assert seen.flips == 0
    for gpu, wanted in state.classes.items():
        # Classes that a GPU may pass through on its way: they say that nothing is known to be wrong.
        assert set(seen.found[gpu]) <= {"compute", "unattributed"} | {wanted, state.was}


@full(REPRESENTATIVES)
def test_a_longer_fast_interval_may_add_as_much(state: State) -> None:
    seen = play(state, phase_of(state), fast_seconds=5.0)
    assert seen.seconds <= (state.promised + 5 if state.must_change or state.unseen_before else 0)
    assert seen.flips == 0


@full([state for state in REPRESENTATIVES if not state.unseen_before and "pause" not in state.name])
def test_an_exporter_that_starts_in_the_middle_of_it_has_the_class(state: State) -> None:
    assert play(replace(state, unseen_before=True), phase_of(state)).seconds <= PROMISED_SECONDS


# These two last beyond the end of what brings them about.
@full([state for state in REPRESENTATIVES if state.must_change and state.name not in {"the job ends", "Xid 48"}])
def test_a_class_ends_with_its_state(state: State) -> None:
    seen = play(state, phase_of(state), ends=True)
    assert seen.seconds <= state.promised
    assert seen.back_seconds <= BACK_SECONDS


@pytest.mark.parametrize("phase", some([0.5, 1.5, 2.5, 3.5, 4.5], [4.5]))
def test_a_short_wait_is_no_change_of_class(phase: float) -> None:
    state = State("waits for a moment", "compute", (waits(0.3),), threads=WAITS_FOR_LOADERS, lasts=12)
    seen = play(state, phase, ends=True)
    assert seen.changes[0][1:] == ()
    assert (seen.before, seen.back_seconds) == ({"compute"}, 0.0)


@pytest.mark.full
@pytest.mark.parametrize(
    ("scenario", "fast_seconds", "minutes"), [("h100-8", 1, 15), ("training-day", 1, 25), ("training-day", 5, 70)]
)
def test_the_class_of_a_healthy_gpu_stays_what_it_is(scenario: str, fast_seconds: int, minutes: int) -> None:
    changes = steady_day(scenario, fast_seconds, minutes / 60)
    assert set(changes) == {"0", "1"}
    assert max(changes.values()) <= 2


def test_states_are_named_apart_and_want_every_class() -> None:
    assert [name for name, count in Counter(state.name for state in STATES).items() if count > 1] == []
    assert {name for state in STATES for name in state.classes.values()} == set(BOTTLENECK_CLASSES)
    assert {state.kind for state in REPRESENTATIVES} | {"other cards", "other jobs", "hangs", "late readings"} == set(
        FAMILIES
    )
