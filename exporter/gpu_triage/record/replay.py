"""A Machine that replays a recording; after the end, it stays in its final state."""

import ctypes
import json
import tempfile
import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from gpu_triage.driver.kernel.files import Answer, Question, hooked
from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Clock, Machine, Moment, RealClock, SteppedClock
from gpu_triage.record.bundle import read_recording
from gpu_triage.record.calls import EVENTS, GPM_ALLOC, GPM_FREE, CallKeys, fill, function_of, loose
from gpu_triage.record.recording import FAILED, FOUND, Recording, TimedAnswer

_SUCCESS: Final = 0
_NOT_SUPPORTED: Final = 3
_INSUFFICIENT_SIZE: Final = 7
_TIMEOUT: Final = 10
_LIBRARY_NOT_FOUND: Final = 12

_SUCCEED: Final = frozenset({"nvmlShutdown", "nvmlEventSetFree", GPM_FREE})
"""Called at the exporter's shutdown, which may be after the end of the recording."""

_INIT: Final = "nvmlInitWithFlags"
_PROCESS_LISTS: Final = "RunningProcesses"  # in the names of the functions
_FIRST_SAMPLE: Final = 0x7F5C_0000_0000


class _ReplayClock:
    """Time as on the recorded host, starting `skipped` seconds into the recording."""

    def __init__(self, base: Clock, recording: Recording, skipped: float) -> None:
        # Called with the elapsed seconds whenever the time is read.
        self.arrived: Callable[[float], None] = lambda _elapsed: None
        self._base = base
        self._start = Moment(recording.monotonic, recording.wall)
        self._base_start = base.now()
        self._skipped = skipped

    def elapsed(self) -> float:
        """Seconds since the recording began."""
        return self._skipped + max(0.0, self._base.now().monotonic - self._base_start.monotonic)

    def now(self) -> Moment:
        elapsed = self.elapsed()
        self.arrived(elapsed)
        return Moment(self._start.monotonic + elapsed, self._start.wall + elapsed)


class _SteppedReplayClock(_ReplayClock):
    """A replay clock that moves only when advanced."""

    _base: SteppedClock

    def advance(self, seconds: float) -> None:
        self._base.advance(seconds)


class ReplayedNvml:
    """NvmlLibrary of a replayed machine, and the library object it loads: returns recorded responses."""

    def __init__(self, recording: Recording, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._keys = CallKeys()
        self._lock = threading.Lock()
        self._answers: dict[str, list[TimedAnswer]] = {}  # by each key that finds them
        self._events: deque[TimedAnswer] = deque()
        self._functions = {*_SUCCEED, GPM_ALLOC, _INIT}
        known_function, known_loose = cache(function_of), cache(loose)
        for answer in recording.answers:
            function = known_function(answer.key)
            self._functions.add(function)
            if function in EVENTS and answer.code == _SUCCESS:
                self._events.append(answer)
                continue
            keys = {answer.key, known_loose(answer.key)}
            if _PROCESS_LISTS in function and answer.code != _INSUFFICIENT_SIZE:
                keys.add(_subject(answer.key))
            for key in keys:
                self._answers.setdefault(key, []).append(answer)
        self._next_sample = _FIRST_SAMPLE

    def load(self) -> object:
        return self

    def __getattr__(self, name: str) -> Any:
        if name == "nvmlErrorString":
            return lambda code: f"recorded error {getattr(code, 'value', code)}".encode()
        if name.startswith("_") or name not in self._functions:
            raise AttributeError(f"the recording has no {name}")

        def call(*arguments: Any) -> int:
            with self._lock:
                return self._call(name, arguments)

        return call

    def _call(self, name: str, arguments: tuple[Any, ...]) -> int:
        key, outs = self._keys.describe(name, arguments)
        if name == GPM_ALLOC:
            self._next_sample += 8
            fill(outs[0], self._next_sample.to_bytes(8, "little"))
            return _SUCCESS
        if name in EVENTS:
            if not self._events or self._events[0].seconds > self._elapsed():
                return _TIMEOUT
            return _give(self._events.popleft(), outs)
        return self._recorded(name, key, outs)

    def _recorded(self, name: str, key: str, outs: tuple[Any, ...]) -> int:
        if _PROCESS_LISTS in name and outs and (lists := self._answers.get(_subject(key))):
            return _give_list(_latest(lists, self._elapsed()), outs)
        if known := self._answers.get(key) or self._answers.get(loose(key)):
            return _give(_latest(known, self._elapsed()), outs)
        if name == _INIT:
            # There was no library to record.
            return _LIBRARY_NOT_FOUND
        return _SUCCESS if name in _SUCCEED else _NOT_SUPPORTED


def _give(answer: TimedAnswer, outs: tuple[Any, ...]) -> int:
    for out, raw in zip(outs, answer.outs, strict=False):
        if raw is not None and not fill(out, raw):
            return _INSUFFICIENT_SIZE
    return answer.code


def _subject(key: str) -> str:
    """The key of process lists of any size: their function and GPU."""
    return json.dumps(json.loads(key)[:2])


def _give_list(answer: TimedAnswer, outs: tuple[Any, ...]) -> int:
    """Write a process list into a buffer of any size.

    A list is requested with a buffer as large as the last one, so sizes in a recording depend on the exporter's state.
    """
    if answer.code != _SUCCESS:
        return answer.code
    count, *buffers = outs
    entry_bytes = ctypes.sizeof(buffers[0]) // len(buffers[0]) if buffers else 1
    raw = _listed(answer, entry_bytes)
    count.value = len(raw) // entry_bytes
    if not buffers or not fill(buffers[0], raw):
        return _INSUFFICIENT_SIZE if raw else _SUCCESS
    return _SUCCESS


def _listed(answer: TimedAnswer, entry_bytes: int) -> bytes:
    # A call without a buffer succeeded only if there were no processes.
    count, raw, *_ = (*answer.outs, None, None)
    entries = raw or b""
    # None means that the call left the count unchanged, so the buffer was full.
    return entries if count is None else entries[: int.from_bytes(count, "little") * entry_bytes]


class ReplayedFiles:
    """The recorded answers about files, as of the present time: a hook, in front of folders that don't exist."""

    def __init__(self, recording: Recording, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._answers: dict[str, list[TimedAnswer]] = {}
        for answer in recording.files:
            self._answers.setdefault(answer.key, []).append(answer)
        # With a slash at its end, a path is a prefix of itself and of what is below it.
        self._found = sorted({f"{each.key.partition(' ')[2]}/" for each in recording.files if each.code == FOUND})

    def __call__(self, question: Question, path: str, _answer: Answer) -> bytes | None:
        """See Hook. A path with an unknown presence exists if anything at or below it was read."""
        known = self._answers.get(f"{question} {path}")
        if known is None:
            first = bisect_left(self._found, f"{path}/")
            exists = any(each.startswith(f"{path}/") for each in self._found[first : first + 1])
            return b"" if question == "presence" and exists else None
        answer = _latest(known, self._elapsed())
        out = answer.outs[0] if answer.outs else None
        if answer.code == FAILED:
            raise HostReadFailed((out or b"").decode(), path, "could not be read when this was recorded")
        return out


def _latest(answers: Sequence[TimedAnswer], elapsed: float) -> TimedAnswer:
    """The answer in effect; the first one also before it was given."""
    return answers[max(0, bisect_right(answers, elapsed, key=lambda each: each.seconds) - 1)]


class _ReplayedLog:
    """The recorded kernel log as of a point in time: records appear when they were logged, the rest at the end."""

    def __init__(self, recording: Recording, path: Path) -> None:
        self._path = path
        self._lines = deque((recording.kmsg or "").splitlines(keepends=True))
        self._recording = recording
        self._lock = threading.Lock()
        path.touch()
        self.arrive(0.0)

    def arrive(self, seconds: float) -> None:
        """Append the records up to a time in seconds since the recording began."""
        with self._lock:
            due = []
            while self._lines and (seconds >= self._recording.seconds or self._written(self._lines[0]) <= seconds):
                due.append(self._lines.popleft())
            if due:
                with self._path.open("a", encoding="utf-8") as log:
                    log.writelines(due)

    def _written(self, line: str) -> float:
        """When a record was logged, in seconds since the recording began; an invalid line is due at once."""
        fields = line.split(",", 3)
        micros = fields[2] if len(fields) > 3 and fields[2].isdecimal() else "0"  # noqa: PLR2004 - see xid/kernel_log
        return int(micros[:20]) / 1e6 - self._recording.monotonic


@contextmanager
def replayed_machine(path: Path, *, clock: Clock | None = None, last_seconds: float | None = None) -> Iterator[Machine]:
    """The machine of a recording, a folder or ``.tar.gz``, inside a ``with`` block; RecordingError if it is unreadable.

    The `clock` drives the replay, else the real one. It starts `last_seconds` before the end, or at the beginning.
    """
    recording = read_recording(path)
    skipped = 0.0 if last_seconds is None else max(0.0, recording.seconds - last_seconds)
    kind = _SteppedReplayClock if isinstance(clock, SteppedClock) else _ReplayClock
    replayed = kind(clock or RealClock(), recording, skipped)
    with tempfile.TemporaryDirectory(prefix="gpu-triage-replayed-", ignore_cleanup_errors=True) as folder:
        # Only the log is on disk: nothing else can be read or written by a path of the recording.
        roots = {"sys": Path(folder, "sys"), "proc": Path(folder, "proc")}
        kmsg = None if recording.kmsg is None else Path(folder, "kmsg")
        if kmsg is not None:
            replayed.arrived = _ReplayedLog(recording, kmsg).arrive
        with hooked(roots, ReplayedFiles(recording, replayed.elapsed)):
            yield Machine(
                nvml=ReplayedNvml(recording, replayed.elapsed),
                sysfs=roots["sys"],
                procfs=roots["proc"],
                kmsg=kmsg,
                clock=replayed,
            )
