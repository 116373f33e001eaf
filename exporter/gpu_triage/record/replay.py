"""A Machine that replays a recording; after the end, it stays in its final state."""

from __future__ import annotations

import shutil
import tempfile
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gpu_triage.errors import RecordingError
from gpu_triage.machine import Clock, Machine, Moment, RealClock, SteppedClock
from gpu_triage.record.bundle import read_recording
from gpu_triage.record.calls import EVENTS, GPM_ALLOC, GPM_FREE, CallKeys, fill, function_of, loose
from gpu_triage.record.process_lists import ProcessLists
from gpu_triage.record.recording import FileState, NvmlAnswer, Recording

_SUCCESS: Final = 0
_NOT_SUPPORTED: Final = 3
_INSUFFICIENT_SIZE: Final = 7
_TIMEOUT: Final = 10
_LIBRARY_NOT_FOUND: Final = 12

_SUCCEED: Final = frozenset({"nvmlShutdown", "nvmlEventSetFree", GPM_FREE})
"""Called at the exporter's shutdown, which may be after the end of the recording."""

_INIT: Final = "nvmlInitWithFlags"
_FIRST_SAMPLE: Final = 0x7F5C_0000_0000


class _ReplayClock:
    """Time as on the recorded host, starting at `start`. Each reading calls `arrive` with the elapsed seconds.

    Replay starts `skipped` seconds into the recording.
    """

    def __init__(self, base: Clock, start: Moment, arrive: Callable[[float], None], skipped: float) -> None:
        self._base = base
        self._start = start
        self._base_start = base.now()
        self._arrive = arrive
        self._skipped = skipped

    @property
    def elapsed(self) -> float:
        return self._skipped + max(0.0, self._base.now().monotonic - self._base_start.monotonic)

    def now(self) -> Moment:
        """See Clock."""
        elapsed = self.elapsed
        self._arrive(elapsed)
        return Moment(self._start.monotonic + elapsed, self._start.wall + elapsed)


class _SteppedReplayClock(_ReplayClock):
    """A replay clock that moves only when advanced."""

    def __init__(self, base: SteppedClock, start: Moment, arrive: Callable[[float], None], skipped: float) -> None:
        super().__init__(base, start, arrive, skipped)
        self._stepped = base

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self._stepped.advance(seconds)


class ReplayedNvml:
    """NvmlLibrary of a replayed machine, and the library object it loads: returns recorded responses."""

    def __init__(self, recording: Recording, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._keys = CallKeys()
        self._lock = threading.Lock()
        self._exact: dict[str, list[NvmlAnswer]] = {}
        self._loose: dict[str, list[NvmlAnswer]] = {}
        self._events: list[NvmlAnswer] = []
        self._process_lists = ProcessLists()
        self._functions = {*_SUCCEED, GPM_ALLOC, _INIT}
        for answer in recording.answers:
            function = function_of(answer.key)
            self._functions.add(function)
            if function in EVENTS and answer.code == _SUCCESS:
                self._events.append(answer)
                continue
            self._exact.setdefault(answer.key, []).append(answer)
            self._loose.setdefault(loose(answer.key), []).append(answer)
            self._process_lists.note(function, answer)
        self._next_sample = _FIRST_SAMPLE

    def load(self) -> object:
        """See NvmlLibrary."""
        return self

    def __getattr__(self, name: str) -> Any:
        """Look up a function.

        Raises:
            AttributeError: the recording has no calls of it.
        """
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
            return _give(self._events.pop(0), outs)
        return self._recorded(name, key, outs)

    def _recorded(self, name: str, key: str, outs: tuple[Any, ...]) -> int:
        listed = self._process_lists.give(key, outs, self._elapsed())
        if listed is not None:
            return listed
        known = self._exact.get(key) or self._loose.get(loose(key))
        if known is not None:
            return _give(known[max(0, bisect_right(known, self._elapsed(), key=lambda each: each.seconds) - 1)], outs)
        if name == _INIT:
            # There was no library to record.
            return _LIBRARY_NOT_FOUND
        return _SUCCESS if name in _SUCCEED else _NOT_SUPPORTED


def _give(answer: NvmlAnswer, outs: tuple[Any, ...]) -> int:
    for out, raw in zip(outs, answer.outs, strict=False):
        if raw is not None and not fill(out, raw):
            return _INSUFFICIENT_SIZE
    return answer.code


class ReplayedTree:
    """The recorded files as of a point in time, below one folder."""

    def __init__(self, states: tuple[FileState, ...], root: Path) -> None:
        self._root = root.resolve()
        self._states = deque(states)
        for name in ("sys", "proc"):
            (self._root / name).mkdir()
        self.arrive(0.0)

    def arrive(self, seconds: float) -> None:
        """Update all files to a time in seconds since the recording began; never moves back.

        Raises:
            RecordingError: a file or link is outside the recording.
        """
        while self._states and self._states[0].seconds <= seconds:
            state = self._states.popleft()
            try:
                self._apply(state)
            except (OSError, RuntimeError, ValueError) as error:
                raise RecordingError(f"files.jsonl: {state.path[:120]!r} cannot be made: {error!r:.120}") from error

    def _apply(self, state: FileState) -> None:
        # Earlier links may point anywhere, so check the path with all of them resolved.
        folder = (self._root / state.path).parent.resolve()
        place = folder / state.path.rpartition("/")[2]
        self._check(place, state.path)
        if state.kind == "gone":
            place.unlink(missing_ok=True)
            return
        folder.mkdir(parents=True, exist_ok=True)
        if state.kind == "folder":
            place.mkdir(exist_ok=True)
        elif state.kind == "link":
            target = (folder / state.text).resolve()
            self._check(target, state.path)
            if not place.is_symlink() and not place.exists():
                target.mkdir(parents=True, exist_ok=True)
                place.symlink_to(state.text)
        elif not place.is_symlink() and not place.is_dir():
            partial = place.with_name(f".{place.name}.partial")
            partial.write_text(state.text, encoding="utf-8")
            partial.replace(place)

    def _check(self, place: Path, path: str) -> None:
        if not any(place.is_relative_to(self._root / name) for name in ("sys", "proc")):
            raise RecordingError(f"files.jsonl: {path[:120]!r} leads out of the recording; do not trust this file")


class _ReplayedLog:
    """The recorded kernel log as of a point in time: records appear when they were logged, the rest at the end."""

    def __init__(self, recording: Recording, path: Path) -> None:
        self._path = path
        self._lines = deque((recording.kmsg or "").splitlines(keepends=True))
        self._recording = recording
        path.touch()
        self.arrive(0.0)

    def arrive(self, seconds: float) -> None:
        """Append the records up to a time in seconds since the recording began."""
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
    """The machine of a recording, inside a ``with`` block.

    Args:
        path: a folder or ``.tar.gz`` written by ``gpu-triage record``.
        clock: drives the replay; the real clock if None.
        last_seconds: how long before the recording's end to start; None for its beginning.

    Raises:
        RecordingError: it is unreadable, or not a recording.
    """
    recording = read_recording(path)
    root = Path(tempfile.mkdtemp(prefix="gpu-triage-replayed-"))
    try:
        tree = ReplayedTree(recording.files, root)
        log = _ReplayedLog(recording, root / "kmsg")
        lock = threading.Lock()

        def arrive(seconds: float) -> None:
            with lock:
                tree.arrive(seconds)
                log.arrive(seconds)

        start = Moment(recording.monotonic, recording.wall)
        skipped = 0.0 if last_seconds is None else max(0.0, recording.seconds - last_seconds)
        if isinstance(clock, SteppedClock):
            replayed: _ReplayClock = _SteppedReplayClock(clock, start, arrive, skipped)
        else:
            replayed = _ReplayClock(clock or RealClock(), start, arrive, skipped)
        yield Machine(
            nvml=ReplayedNvml(recording, lambda: replayed.elapsed),
            sysfs=root / "sys",
            procfs=root / "proc",
            kmsg=None if recording.kmsg is None else root / "kmsg",
            clock=replayed,
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)
