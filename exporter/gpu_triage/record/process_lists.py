"""Replays process lists into buffers of other sizes than those in the recording.

A list is requested with a buffer as large as the last one, so the sizes in a recording depend on the exporter's state.
"""

from __future__ import annotations

import ctypes
import json
from bisect import bisect_right
from typing import Any, Final

from gpu_triage.record.recording import TimedAnswer

_SUCCESS: Final = 0
_INSUFFICIENT_SIZE: Final = 7
_COUNT_AND_BUFFER: Final = 2


class ProcessLists:
    """Recorded process lists, by function and GPU, in chronological order."""

    def __init__(self) -> None:
        """Start with no lists."""
        self._answers: dict[str, list[TimedAnswer]] = {}

    def note(self, function: str, answer: TimedAnswer) -> None:
        """Add a recorded response if it is a process list; responses with only the required size are ignored."""
        if "RunningProcesses" in function and answer.code != _INSUFFICIENT_SIZE:
            self._answers.setdefault(_whose(answer.key), []).append(answer)

    def give(self, key: str, outs: tuple[Any, ...], elapsed: float) -> int | None:
        """Write the list as of this time; returns the NVML code, or None if none was recorded. `key`: of `CallKeys`."""
        answers = self._answers.get(_whose(key))
        if not answers or not outs:
            return None
        answer = answers[max(0, bisect_right(answers, elapsed, key=lambda each: each.seconds) - 1)]
        if answer.code != _SUCCESS:
            return answer.code
        count, *buffers = outs
        entry_bytes = ctypes.sizeof(buffers[0]) // len(buffers[0]) if buffers else 1
        raw = _listed(answer, entry_bytes)
        count.value = len(raw) // entry_bytes
        if not buffers or len(raw) > ctypes.sizeof(buffers[0]):
            return _INSUFFICIENT_SIZE if raw else _SUCCESS
        ctypes.memmove(ctypes.addressof(buffers[0]), raw, len(raw))
        return _SUCCESS


def _whose(key: str) -> str:
    return json.dumps(json.loads(key)[:2])


def _listed(answer: TimedAnswer, entry_bytes: int) -> bytes:
    if len(answer.outs) < _COUNT_AND_BUFFER:
        return b""  # a call without a buffer succeeded, so there were no processes
    count, raw = answer.outs
    # None means that the call left the count unchanged, so the buffer was full.
    return (raw or b"") if count is None else (raw or b"")[: int.from_bytes(count, "little") * entry_bytes]
