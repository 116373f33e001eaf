"""Lists of processes that were recorded with buffers of other lengths."""

import json
from ctypes import c_void_p

import pynvml
import pytest

from gpu_triage.driver.nvml.lists import read_list
from gpu_triage.record.recording import Recording, TimedAnswer
from gpu_triage.record.replay import ReplayedNvml

FUNCTION = "nvmlDeviceGetComputeRunningProcesses_v3"
_ENTRY = pynvml.c_nvmlProcessInfo_v3_t
PRESENT = 100.0


def answered(seconds: float, room: int | None, *pids: int, full: bool = False) -> TimedAnswer:
    """As an exporter recorded it that had a buffer of this many entries, or none."""
    size = None if room is None else room * 24
    key = json.dumps([FUNCTION, "@7", 4, size, "#0123456789abcdef"])
    count = None if full or (room is None and not pids) else len(pids).to_bytes(4, "little")
    if room is None:
        return TimedAnswer(seconds, key, 7 if pids else 0, (count,))
    entries = (_ENTRY * room)(*(_ENTRY(pid=pid) for pid in pids))
    return TimedAnswer(seconds, key, 0, (count, bytes(entries)))


MORE_BUFFERS = answered(1, 11, 4, 5, 6)._replace(outs=(*answered(1, 11, 4, 5, 6).outs, b"x"))
"""As no exporter records it."""


def replayed(monkeypatch: pytest.MonkeyPatch, *answers: TimedAnswer) -> list[int]:
    recording = Recording({}, 0.0, 0.0, PRESENT, (), answers, (), None)
    library = ReplayedNvml(recording, lambda: PRESENT)
    monkeypatch.setitem(pynvml._nvmlGetFunctionPointer_cache, FUNCTION, getattr(library, FUNCTION))
    return [process.pid for process in read_list(FUNCTION, c_void_p(7))]


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param((answered(1, None, 4, 5, 6), answered(1, 11, 4, 5, 6)), id="counted first"),
        pytest.param((answered(1, 405, 4, 5, 6),), id="a longer buffer"),
        pytest.param((answered(1, 3, 4, 5, 6, full=True),), id="a full buffer"),
        pytest.param((answered(1, None), answered(2, 11, 4, 5, 6)), id="the latest"),
        pytest.param((MORE_BUFFERS,), id="more buffers than there are"),
    ],
)
def test_a_recorded_list_fits_any_buffer(monkeypatch: pytest.MonkeyPatch, answers: tuple[TimedAnswer, ...]) -> None:
    assert replayed(monkeypatch, *answers) == [4, 5, 6]


def test_a_list_that_was_counted_as_empty_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replayed(monkeypatch, answered(1, 11, 4), answered(2, None)) == []


def test_a_list_longer_than_the_first_buffer_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replayed(monkeypatch, answered(1, 405, *range(200))) == list(range(200))
