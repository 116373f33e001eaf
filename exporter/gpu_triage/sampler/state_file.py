"""Reads and writes one file of the state directory, in a lane: it may be on a network file system that hangs."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from gpu_triage.documents.saved_state import StateKind, copy_aside, set_aside
from gpu_triage.driver.kernel.procfs import Boot, read_boot
from gpu_triage.errors import StateError
from gpu_triage.machine import Machine
from gpu_triage.sampler.state_directory import StateDirectory

UNUSABLE: Final = frozenset({"not_a_file", "too_large", "malformed", "unknown_version"})
"""Reasons that make a file, or a part of it, permanently unusable."""

_MOST_LISTED: Final = 3
"""Maximum number of rejected entries listed in one message."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StateNews(Generic[T]):
    """The result of a visit."""

    name: str  # of the kind of state
    boot: Boot  # the current boot
    loaded: T | None = None  # contents of the file; None if it was not read
    generation: int = 0  # of the lock under which the file may be written; 0 if it may not
    written: T | None = None  # what was written; None if nothing was
    error: StateError | None = None  # what went wrong; None on success
    duration_seconds: float = 0.0  # of the visit


AnyStateNews = StateNews[Any]


class StateFile(Generic[T]):
    """One file of the state directory. Only called by jobs of one lane.

    Without a state directory (`state`), nothing is kept on disk; unless it `writes`, this process only reads.
    """

    def __init__(self, kind: StateKind[T], machine: Machine, state: StateDirectory | None, *, writes: bool) -> None:
        self._kind = kind
        self._machine = machine
        self._state = state
        self._writes = writes
        self.path = None if state is None else state.path(kind.name)

    def visit(self, generation: int, memory: T | None, *, loads: bool) -> StateNews[T]:
        """Read or write the file, as far as the lock and the disk permit, and read the boot ID. Never raises.

        Args:
            generation: of the lock when the file was read; if it has changed, the file is reread instead.
            memory: what to write; None for nothing.
            loads: whether to read the file, because it has not been read yet.
        """
        began_at = self._machine.clock.now().monotonic
        news: StateNews[T] = StateNews(self._kind.name, read_boot(self._machine.procfs))
        try:
            held, error = self._lock()
            locked = replace(news, generation=held, error=error)
            if loads or held not in (0, generation):
                news = self._load(locked)
            elif held and memory is not None and self._state is not None and self.path is not None:
                self._kind.write(self.path, memory)
                self._state.sync()
                news = replace(locked, written=memory)
            else:
                news = locked
        except StateError as error:
            news = replace(news, error=error)
        except Exception:  # noqa: BLE001 - as in the rounds: a bug here must not end the sampler
            news = replace(news, error=StateError("exception", traceback.format_exc()))
        return replace(news, duration_seconds=self._machine.clock.now().monotonic - began_at)

    def _lock(self) -> tuple[int, StateError | None]:
        """The generation of the lock, 0 without it, and why this process does not have it."""
        if self._state is None or not self._writes:
            return 0, None
        try:
            return self._state.lock(), None
        except StateError as error:
            return 0, error

    def _load(self, news: StateNews[T]) -> StateNews[T]:
        """The result with the file's contents, and an error if some of it is unusable.

        Raises:
            StateError: it cannot be read now.
        """
        path, nothing = self.path, self._kind.nothing
        if path is None:
            return replace(news, loaded=nothing)
        try:
            found = self._kind.read(path, self._machine.clock.now().wall)
        except StateError as error:
            if error.reason not in UNUSABLE:
                raise
            if news.generation:
                detail = f"{error.detail}; it is now {set_aside(path)}, and a new one is started"
                error = StateError(error.reason, detail)
            return replace(news, loaded=nothing, error=news.error or error)
        if found is None or not found.refused:
            return replace(news, loaded=nothing if found is None else found.memory)
        return _without(found.refused, path, replace(news, loaded=found.memory))


def _without(refused: tuple[str, ...], path: Path, news: StateNews[T]) -> StateNews[T]:
    """The result for a file with malformed entries, which is backed up before it may be overwritten."""
    more = len(refused) - _MOST_LISTED
    listed = "; ".join((*refused[:_MOST_LISTED], *([f"and {more} more"] if more > 0 else [])))
    if news.generation:
        try:
            listed += f"; the other entries are used, and {copy_aside(path)} has all of them"
        except StateError as error:
            return replace(news, generation=0, error=error)
    return replace(news, error=news.error or StateError("malformed", listed))
