"""The ring of the last minutes: nothing is lost within its time, and it stays small."""

import json
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.record.calls import answer_of
from gpu_triage.record.recording import TimedAnswer
from gpu_triage.record.ring import BLOCK_SECONDS, KEPT_SECONDS, MOST_BYTES, Answer, Ring, unrolled

POWER = json.dumps(["nvmlDeviceGetPowerUsage", "@7f00"])
XID = json.dumps(["nvmlEventSetWait_v2", "@7f00", 32, 0])


class TimedRing(Ring):
    """A ring whose clock is set with each answer."""

    def __init__(self) -> None:
        self.seconds = 0.0
        super().__init__(lambda: self.seconds)

    def at(self, seconds: float, key: str, answer: Answer, *, passing: bool = False) -> None:
        self.seconds = seconds
        self.note(key, answer, passing=passing)


def watts(number: int) -> Answer:
    return answer_of(0, [(b"\xff" * 4, number.to_bytes(4, "little"))])


def answers(ring: Ring) -> list[TimedAnswer]:
    return list(unrolled(ring.content()))


def values(found: Iterable[TimedAnswer]) -> list[int]:
    return [int.from_bytes(each.outs[0] or b"", "little") for each in found]


def test_what_changed_is_kept_with_its_time_and_what_did_not_is_not() -> None:
    ring = TimedRing()
    assert answers(ring) == []
    for at, number in ((100.0, 5), (101.0, 5), (102.0, 7), (103.5, 5)):
        ring.at(at, POWER, watts(number))
    found = answers(ring)
    assert [(round(each.seconds, 3), each.code) for each in found] == [(0.0, 0), (2.0, 0), (3.5, 0)]
    assert values(found) == [5, 7, 5]
    assert {each.key for each in found} == {POWER}


def test_memory_that_a_call_left_alone_is_told_apart_from_zeros() -> None:
    ring = TimedRing()
    ring.at(0.0, POWER, answer_of(3, [(b"\1\0\0\0", b"\0\0\0\0"), (b"\0\0\0\0", b"\0\0\0\0")]))
    assert answers(ring)[0].outs == (b"\0\0\0\0", None)
    assert answers(ring)[0].code == 3


def test_an_event_counts_each_time_and_is_no_state() -> None:
    ring = TimedRing()
    for at in (0.0, 1.0, BLOCK_SECONDS + 1):
        ring.at(at, XID, watts(79))
    assert values(answers(ring)) == [79, 79, 79]
    for at in (2 * BLOCK_SECONDS + 2, 8 * BLOCK_SECONDS, 9 * BLOCK_SECONDS + 1, 10 * BLOCK_SECONDS + 2):
        ring.at(at, POWER, watts(int(at)))
    assert values(each for each in answers(ring) if each.key == XID) == []


def test_the_last_ten_minutes_stay_and_what_was_before_goes_but_for_the_state() -> None:
    ring = TimedRing()
    ring.at(0.0, POWER, watts(1))
    ring.at(0.0, XID, Answer(10, (), ()))
    for second in range(3600):
        ring.at(float(second), POWER, watts(1000 + second))
    found = answers(ring)
    power = values(each for each in found if each.key == POWER)
    assert power[-1] == 1000 + 3599
    assert KEPT_SECONDS <= len(power) <= KEPT_SECONDS + 2 * BLOCK_SECONDS
    assert power == list(range(power[0], 1000 + 3600))
    # What has not changed for an hour still holds.
    assert [(each.key, each.code, each.seconds) for each in found if each.key == XID] == [(XID, 10, 0.0)]


def test_what_is_passing_is_in_a_later_block_only_if_it_is_noted_there_again() -> None:
    ring = TimedRing()
    gone, there = "text proc/7/stat", "text proc/\udcff"
    ring.at(0.0, gone, watts(1), passing=True)
    for second in range(0, 3600, 10):
        ring.at(float(second), POWER, watts(second))
        ring.at(float(second), there, watts(2), passing=True)
        ring.drain()
    assert {each.key for each in answers(ring)} == {POWER, there}


@pytest.mark.slow
def test_noise_shortens_the_memory_and_does_not_grow_it() -> None:
    ring = TimedRing()
    dice = random.Random(1)
    for second in range(60):
        for gpu in range(8):
            noise = answer_of(0, [(b"\0" * 16_384, dice.randbytes(16_384))])
            ring.at(float(second), json.dumps(["nvmlDeviceGetSamples", gpu]), noise)
        ring.drain()
        assert ring.size <= MOST_BYTES
    assert 0 < len(answers(ring)) < 480


def test_an_answer_or_a_number_of_calls_beyond_all_measure_is_left_out() -> None:
    ring = TimedRing()
    ring.at(0.0, "text proc/stat", Answer(0, (b"x" * (1 << 20),), (1 << 20,)))
    assert answers(ring) == []
    for call in range(20_100):
        ring.at(0.0, json.dumps(["nvmlDeviceGetSamples", call]), watts(call))
    assert len(answers(ring)) == 20_000


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=24), st.integers(0, 2)), max_size=60))
def test_what_goes_in_comes_out(told: list[tuple[int, bytes, int]]) -> None:
    ring = TimedRing()
    expected: list[tuple[str, int, bytes]] = []
    last: dict[str, tuple[int, bytes]] = {}
    for second, (call, raw, code) in enumerate(told):
        key = json.dumps(["nvmlX", call])
        # Blocks end in between.
        ring.at(second * 50.0, key, answer_of(code, [(b"\xff" * len(raw) + b"\xff", raw + b"\0")]))
        if last.get(key) != (code, raw):
            expected.append((key, code, raw))
        last[key] = (code, raw)
    found = [(each.key, each.code, (each.outs[0] or b"\0")[:-1]) for each in answers(ring)]
    kept = len(found)
    # The oldest may have gone, but for the state that they left.
    assert found[-min(kept, 10) :] == expected[-min(kept, 10) :] or kept < len(expected)
    assert {each[0]: each[1:] for each in found} == last
