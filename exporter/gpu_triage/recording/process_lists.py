"""Recorded lists of processes, for buffers of other lengths than those of the recording.

A list is asked for with a buffer as long as the last one. Which lengths were recorded depends on what the exporter
knew, and on its version: earlier ones had a list counted first.
"""

from __future__ import annotations

import ctypes
import json
from bisect import bisect_right
from typing import Any, Final

from gpu_triage.recording.recording import NvmlAnswer

_SUCCESS: Final = 0
_INSUFFICIENT_SIZE: Final = 7
_COUNT_AND_BUFFER: Final = 2


class ProcessLists:
    """Answers of the functions that list processes, by function and GPU, in the order of time."""

    def __init__(self) -> None:
        """Start without any."""
        self._answers: dict[str, list[NvmlAnswer]] = {}

    def note(self, function: str, answer: NvmlAnswer) -> None:
        """Take in an answer of the recording, if it is one of a list; those that tell only its length are not."""
        if "RunningProcesses" in function and answer.code != _INSUFFICIENT_SIZE:
            self._answers.setdefault(_whose(answer.key), []).append(answer)

    def give(self, key: str, outs: tuple[Any, ...], elapsed: float) -> int | None:
        """Write what was listed at this time; NVML's code, or None where there is nothing about it.

        Args:
            key: of the call, as `CallKeys` describes it.
            outs: the count, and the buffer if there is one.
            elapsed: seconds since the recording began.
        """
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
    """Function and handle of a call's key."""
    return json.dumps(json.loads(key)[:2])


def _listed(answer: NvmlAnswer, entry_bytes: int) -> bytes:
    """The entries that an answer lists."""
    if len(answer.outs) < _COUNT_AND_BUFFER:
        return b""  # counted without a buffer, and with success: there were none
    count, raw = answer.outs
    # What a call left as it was is recorded as None: then the buffer was full.
    return (raw or b"") if count is None else (raw or b"")[: int.from_bytes(count, "little") * entry_bytes]
