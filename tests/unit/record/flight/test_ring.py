"""The ring of the last minutes: nothing is lost within its time, and it stays small."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.record.flight.ring import BLOCK_SECONDS, KEPT_SECONDS, MOST_BYTES, Ring, unrolled
from gpu_triage.record.library import Answer, answer_of
from gpu_triage.record.recording import FileState, NvmlAnswer

POWER = json.dumps(["nvmlDeviceGetPowerUsage", "@7f00"])
XID = json.dumps(["nvmlEventSetWait_v2", "@7f00", 32, 0])


def watts(number: int) -> Answer:
    return answer_of(0, [b"\xff" * 4], [number.to_bytes(4, "little")])


def stat(text: str, kind: str = "file") -> FileState:
    return FileState(0.0, "proc/stat", kind, text)  # type: ignore[arg-type]


def answers(ring: Ring) -> list[NvmlAnswer]:
    return [each for each in unrolled(ring.content()) if isinstance(each, NvmlAnswer)]


def files(ring: Ring) -> list[FileState]:
    return [each for each in unrolled(ring.content()) if isinstance(each, FileState)]


def values(found: Iterable[NvmlAnswer]) -> list[int]:
    return [int.from_bytes(each.outs[0] or b"", "little") for each in found]


def test_an_empty_ring_holds_nothing() -> None:
    assert list(unrolled(Ring().content())) == []


def test_what_changed_is_kept_with_its_time_and_what_did_not_is_not() -> None:
    ring = Ring()
    for at, number in ((100.0, 5), (101.0, 5), (102.0, 7), (103.5, 5)):
        ring.answer(at, POWER, watts(number))
    found = answers(ring)
    assert [(round(each.seconds, 3), each.code) for each in found] == [(0.0, 0), (2.0, 0), (3.5, 0)]
    assert values(found) == [5, 7, 5]
    assert {each.key for each in found} == {POWER}


def test_memory_that_a_call_left_alone_is_told_apart_from_zeros() -> None:
    ring = Ring()
    ring.answer(0.0, POWER, answer_of(3, [b"\1\0\0\0", b"\0\0\0\0"], [b"\0\0\0\0", b"\0\0\0\0"]))
    assert answers(ring)[0].outs == (b"\0\0\0\0", None)
    assert answers(ring)[0].code == 3


def test_an_event_counts_each_time_and_is_no_state() -> None:
    ring = Ring()
    for at in (0.0, 1.0, BLOCK_SECONDS + 1):
        ring.answer(at, XID, watts(79))
    assert values(answers(ring)) == [79, 79, 79]
    for at in (2 * BLOCK_SECONDS + 2, 8 * BLOCK_SECONDS, 9 * BLOCK_SECONDS + 1, 10 * BLOCK_SECONDS + 2):
        ring.answer(at, POWER, watts(int(at)))
    assert values(each for each in answers(ring) if each.key == XID) == []


def test_the_last_ten_minutes_stay_and_what_was_before_goes_but_for_the_state() -> None:
    ring = Ring()
    ring.answer(0.0, POWER, watts(1))
    ring.answer(0.0, XID, Answer(10, (), ()))
    ring.file(0.0, stat("one"))
    for second in range(3600):
        ring.answer(float(second), POWER, watts(1000 + second))
    found = answers(ring)
    power = values(each for each in found if each.key == POWER)
    assert power[-1] == 1000 + 3599
    assert KEPT_SECONDS <= len(power) <= KEPT_SECONDS + 2 * BLOCK_SECONDS
    assert power == list(range(power[0], 1000 + 3600))
    # What has not changed for an hour still holds.
    assert [(each.key, each.code, each.seconds) for each in found if each.key == XID] == [(XID, 10, 0.0)]
    assert [(each.text, each.seconds) for each in files(ring)] == [("one", 0.0)]


def test_files_are_kept_from_the_beginning_and_again_when_they_change() -> None:
    ring = Ring()
    ring.answer(50.0, POWER, watts(1))
    ring.drain()
    ring.file(60.0, stat("one"))
    ring.file(65.0, stat("two \udcff"))
    ring.file(70.0, stat("", kind="gone"))
    assert [(each.seconds, each.kind, each.text) for each in files(ring)] == [
        (0.0, "file", "one"),
        (15.0, "file", "two \udcff"),
        (20.0, "gone", ""),
    ]


def test_a_forgotten_file_is_in_no_later_block() -> None:
    ring = Ring()
    ring.file(0.0, stat("one"))
    ring.forget(["proc/stat", "proc/other"])
    for second in range(0, 3600, 10):
        ring.answer(float(second), POWER, watts(second))
    assert files(ring) == []


@pytest.mark.slow
def test_noise_shortens_the_memory_and_does_not_grow_it() -> None:
    ring = Ring()
    dice = random.Random(1)
    for second in range(60):
        for gpu in range(8):
            noise = answer_of(0, [b"\0" * 16_384], [dice.randbytes(16_384)])
            ring.answer(float(second), json.dumps(["nvmlDeviceGetSamples", gpu]), noise)
        ring.drain()
        assert ring.size <= MOST_BYTES
    assert 0 < len(answers(ring)) < 480


def test_a_file_or_a_number_of_calls_beyond_all_measure_is_left_out() -> None:
    ring = Ring()
    ring.file(0.0, stat("x" * (1 << 20)))
    assert files(ring) == []
    for call in range(20_100):
        ring.answer(0.0, json.dumps(["nvmlDeviceGetSamples", call]), watts(call))
    assert len(ring.content().keys) == 20_000


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=24), st.integers(0, 2)), max_size=60))
def test_what_goes_in_comes_out(told: list[tuple[int, bytes, int]]) -> None:
    ring = Ring()
    expected: list[tuple[str, int, bytes]] = []
    last: dict[str, tuple[int, bytes]] = {}
    for second, (call, raw, code) in enumerate(told):
        key = json.dumps(["nvmlX", call])
        # Blocks end in between.
        ring.answer(second * 50.0, key, answer_of(code, [b"\xff" * len(raw) + b"\xff"], [raw + b"\0"]))
        if last.get(key) != (code, raw):
            expected.append((key, code, raw))
        last[key] = (code, raw)
    found = [(each.key, each.code, (each.outs[0] or b"\0")[:-1]) for each in answers(ring)]
    kept = len(found)
    # The oldest may have gone, but for the state that they left.
    assert found[-min(kept, 10) :] == expected[-min(kept, 10) :] or kept < len(expected)
    assert {each[0]: each[1:] for each in found} == last
