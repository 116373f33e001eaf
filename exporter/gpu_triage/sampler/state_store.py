"""When the files of the state directory are read and written: in one lane, as their disk, or its server, may hang."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from gpu_triage.documents.saved_state import StateKind, copy_aside, set_aside
from gpu_triage.driver.kernel.procfs import read_boot
from gpu_triage.errors import StateError
from gpu_triage.log import fields
from gpu_triage.machine import Moment
from gpu_triage.read.exporter.exporter_health import CollectorHealth
from gpu_triage.sampler.lanes import Lane, Step, overdue
from gpu_triage.sampler.outcomes import Context
from gpu_triage.sampler.state_directory import IN_USE, StateDirectory

log = logging.getLogger(__name__)

_UNUSABLE: Final = frozenset({"not_a_file", "too_large", "malformed", "unknown_version"})
"""Reasons that make a file, or a part of it, permanently unusable."""

_SAVE_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 60.0
_IN_USE_SECONDS: Final = 10.0
"""In a rollout, the new exporter starts writing this soon after the old one has exited."""
_PATIENCE_SECONDS: Final = 5.0
"""How long new incidents and findings wait for the saved state to be loaded."""

_MOST_REFUSED: Final = 3
"""Maximum number of rejected entries listed in one message."""
_MOST_LOST: Final = 5
"""Maximum number of unsaved entries listed in one log message."""

T = TypeVar("T")


class PersistentState(Protocol[T]):
    """Part of the exporter's state that persists between runs. Only the sampler's thread uses it."""

    changed: bool  # whether it has unsaved changes

    @property
    def memory(self) -> T:
        """All of it, immutable, to be saved."""

    def add(self, memory: T) -> None:
        """Merge saved state; entries already present are kept. `see_boot` is called next."""

    def see_boot(self, boot: str) -> None:
        """Set the ID of the current boot; "" if unknown."""

    def before_last_save(self) -> None:
        """Note that the exporter is exiting: state that is otherwise saved only occasionally counts as changed."""

    def not_in(self, saved: T) -> list[str]:
        """Entries that are missing from the saved state, a few words each, oldest first."""


@dataclass(slots=True)
class StateNews(Generic[T]):
    """The result of a visit to a file."""

    loaded: T | None = None  # contents of the file; None if it was not read
    generation: int = 0  # of the lock under which the file may be written; 0 if it may not
    written: T | None = None  # what was written; None if nothing was
    error: StateError | None = None  # what went wrong; None on success
    duration_seconds: float | None = None  # of the visit; None before the first has ended


Visit = Callable[[], StateNews[Any]]
"""Reads or writes a file; never raises."""


class StateStore(Generic[T]):
    """Loads and saves one kind of state, on the sampler's thread; `on_load` gets what the file has."""

    def __init__(
        self, kind: StateKind[T], kept: PersistentState[T], stores: StateStores, on_load: Callable[[T], None]
    ) -> None:
        self.name = kind.name
        self._kept = kept
        self._kind = kind
        self._all = stores
        self._path = None if stores.directory is None else stores.directory.path(kind.name)
        self._clock = stores.machine.clock
        self._interval_seconds = stores.config.sample_slow_seconds
        self._on_load = on_load
        self._began_at: float | None = None
        self._loaded = stores.directory is None
        self._news: StateNews[T] = StateNews()  # of the latest visit
        self._writing = False
        self._on_disk = kind.nothing
        self._visit_at = 0.0
        self._save_at = 0.0
        self._ends = False
        self._gave_up = False
        self._last_success_at: Moment | None = None

    @property
    def in_use(self) -> bool | None:
        """Whether another exporter writes to the state directory; None if unknown."""
        if self._news.error is not None and self._news.error.reason == IN_USE:
            return True
        return False if self._news.generation else None

    def due(self, now: float) -> Visit | None:
        """The next visit to the file if one is due, for an idle lane; it counts as started."""
        if self._began_at is None:
            self._began_at = now
        saves = self._has_to_save() and now >= self._save_at
        if now < self._visit_at and not saves:
            return None
        self._visit_at = now + self._interval_seconds
        if saves:
            self._save_at = now + _SAVE_SECONDS
        return self._next_visit(saves=saves)

    def end(self) -> bool:
        """Note that the exporter is exiting; returns whether the file is still of use. A failed visit isn't retried."""
        if not self._ends:
            self._ends = True
            self._kept.before_last_save()
        return self._all.writes and not self._gave_up

    def last(self) -> Visit | None:
        """The next visit that is needed before the exporter exits, as in `due`; None if everything is on disk."""
        return self._next_visit(saves=self._has_to_save()) if not self._loaded or self._kept.changed else None

    def log_lost(self) -> None:
        """Log what is not on disk when the exporter exits, if anything."""
        lost = self._kept.not_in(self._on_disk)
        if not self._all.writes or not (lost or self._kept.changed or self._writing):
            return
        error = self._news.error
        facts = {
            "file": str(self._path),
            "lost": len(lost),
            "last": ", ".join(lost[-_MOST_LOST:]) or "none",
            "cause": error.detail if self._gave_up and error else "the disk did not answer in time",
        }
        log.warning("%s was not written before the end", self._kind.history, extra=fields(**facts))

    def settled(self, now: float) -> bool:
        """Whether the saved state is loaded, or is no longer being waited for."""
        return self._loaded or self._news.error is not None or overdue(self._began_at, now, _PATIENCE_SECONDS)

    def take(self, news: StateNews[T], now: float) -> tuple[str, ...]:
        """Apply the result of a visit; returns the names of the errors to count."""
        kept = self._kept
        if news.loaded is not None:
            # If it was reloaded, another exporter may have written it: save the merged state.
            kept.changed = kept.changed or self._loaded or news.error is not None
            self._loaded, self._on_disk = True, news.loaded
            kept.add(news.loaded)
            self._on_load(news.loaded)
        elif news.written is not None:
            self._on_disk = news.written
        elif self._writing:
            kept.changed = True
        self._writing = False
        kept.see_boot(self._all.boot.boot_id)
        self._log_turn(news.error)
        self._news = news
        if news.error is None:
            self._last_success_at = self._clock.now()
            return ()
        self._gave_up = self._ends
        pause_seconds = _IN_USE_SECONDS if news.error.reason == IN_USE else _RETRY_SECONDS
        # An unusable file has been moved out of the way, so saving need not wait.
        self._save_at = now + (_SAVE_SECONDS if news.loaded is not None and news.generation else pause_seconds)
        self._visit_at = now + pause_seconds
        return (news.error.reason,)

    def health(self, now: float) -> CollectorHealth:
        """Successful while changes are being saved; None before the first visit to the file has ended or is overdue."""
        stuck, news = overdue(self._all.lane.busy_since, now, self._all.config.sample_deadline_seconds), self._news
        success = None if news.duration_seconds is None and not stuck else not stuck and news.error is None
        interval, last = self._interval_seconds, self._last_success_at
        return CollectorHealth(self.name, success, news.duration_seconds, interval, last)

    def _has_to_save(self) -> bool:
        return self._all.writes and self._loaded and self._kept.changed

    def _next_visit(self, *, saves: bool) -> Visit:
        memory: T | None = None
        if saves:
            memory, self._writing, self._kept.changed = self._kept.memory, True, False
        return partial(self._visit, self._news.generation, memory, loads=not self._loaded)

    def _visit(self, generation: int, memory: T | None, *, loads: bool) -> StateNews[T]:
        """Read or write the file in the lane; reread under a new `generation`. Never raises."""
        began_at = self._clock.now().monotonic
        directory, path = self._all.directory, self._path
        assert directory is not None and path is not None  # noqa: S101, PT018 - else there is nothing to visit
        news: StateNews[T] = StateNews()
        try:
            if self._all.may_write:
                try:
                    news.generation = directory.lock()
                except StateError as error:
                    news.error = error  # it may still be read
            if loads or news.generation not in (0, generation):
                self._load(path, news)
            elif news.generation and memory is not None:
                self._kind.write(path, memory)
                directory.sync()
                news.written = memory
        except StateError as error:
            news.generation, news.error = 0, error
        except Exception:  # noqa: BLE001 - as in the rounds: a bug here must not end the sampler
            news.generation, news.error = 0, StateError("exception", traceback.format_exc())
        news.duration_seconds = self._clock.now().monotonic - began_at
        return news

    def _load(self, path: Path, news: StateNews[T]) -> None:
        """Add the file's contents, and an error if some of it is unusable. Raises StateError.

        An unusable file is set aside before it may be overwritten, and copied if only some entries are malformed.
        """
        try:
            found = self._kind.read(path, self._clock.now().wall)
        except StateError as error:
            if error.reason not in _UNUSABLE:
                raise
            if news.generation:
                detail = f"{error.detail}; it is now {set_aside(path)}, and a new one is started"
                error = StateError(error.reason, detail)
            news.loaded, news.error = self._kind.nothing, news.error or error
            return
        news.loaded = self._kind.nothing if found is None else found.memory
        if found is None or not found.refused:
            return
        more = len(found.refused) - _MOST_REFUSED
        listed = "; ".join((*found.refused[:_MOST_REFUSED], *([f"and {more} more"] if more > 0 else [])))
        if news.generation:
            listed += f"; the other entries are used, and {copy_aside(path)} has all of them"
        news.error = news.error or StateError("malformed", listed)

    def _log_turn(self, error: StateError | None) -> None:
        before, kind = self._news.error, self._kind
        if error is not None and (before is None or before.reason != error.reason):
            partly = error.reason in _UNUSABLE
            what = f"not all of {kind.history} is usable" if partly else f"{kind.things} are remembered in memory only"
            log.warning(what, extra=fields(error=error.reason, cause=error.detail))
        elif error is None and before is not None:
            log.info("%s are remembered on disk again", kind.things)


class StateStores:
    """The files of a sampler, the most important first; in memory without `directory`, only read unless `may_write`.

    `count` gets the names of a file's errors.
    """

    def __init__(
        self,
        context: Context,
        lane: Lane,
        directory: StateDirectory | None,
        count: Callable[[str, tuple[str, ...]], None],
        *,
        may_write: bool,
    ) -> None:
        self.machine, self.config = context.machine, context.config
        self.boot = read_boot(self.machine.procfs)
        self.lane = lane
        self.directory = directory
        self.may_write = may_write
        self.writes = may_write and directory is not None
        self._post = context.post
        self._count = count
        self._stores: list[StateStore[Any]] = []

    def add(
        self, kind: StateKind[T], kept: PersistentState[T], on_load: Callable[[T], None] = lambda _memory: None
    ) -> StateStore[T]:
        """Keep a state in a file, which comes after those added before."""
        store = StateStore(kind, kept, self, on_load)
        self._stores.append(store)
        return store

    def submit(self, now: float) -> None:
        """Start the visits that are due, unless the lane is busy."""
        if self.directory is not None and self.lane.ready():
            self._start((store, store.due(now)) for store in self._stores)

    def finish(self, most: int | None = None) -> bool:
        """Start due visits (of the `most` important files), unless the lane is busy; whether to wait for any."""
        if self.directory is not None:
            self.directory.hurried = True
        ending = [store for store in self._stores[:most] if store.end()]
        if ending and self.lane.busy_since is not None:
            return True
        return self.lane.ready() and self._start((store, store.last()) for store in ending)

    def save(self, wait: Callable[[Callable[[], bool]], bool], take: Callable[[], None]) -> None:
        """Write what is not on disk yet: `wait` is whether a condition holds in time, `take` processes ended visits."""
        take()
        while self.finish() and wait(self.idle):
            take()
        take()
        if self.writes and self.idle() and self.lane.ready():
            self.lane.submit(self._sync)
            wait(self.idle)

    def log_lost(self) -> None:
        for store in self._stores:
            store.log_lost()

    def idle(self) -> bool:
        return self.lane.busy_since is None

    def health(self, now: float) -> tuple[CollectorHealth, ...]:
        """Health of each file; empty if nothing is kept on disk."""
        return tuple(store.health(now) for store in self._stores) if self.writes else ()

    def works(self, now: float) -> bool | None:
        """Whether all changes are being saved; None until that is known."""
        saved = [health.success for health in self.health(now)] or [False]
        return False if False in saved else None if None in saved else True

    def _start(self, due: Iterable[tuple[StateStore[Any], Visit | None]]) -> bool:
        visits = [(store, visit) for store, visit in due if visit is not None]

        def run() -> None:
            for store, visit in visits:
                self.lane.mark(Step(store.name))
                self._post(partial(self._take, store, visit()))

        if visits:
            self.lane.submit(run)
        return bool(visits)

    def _take(self, store: StateStore[Any], news: StateNews[Any], now: float) -> None:
        self._count(store.name, store.take(news, now))

    def _sync(self) -> None:
        assert self.directory is not None  # noqa: S101 - it `writes`
        self.directory.hurried = False
        with suppress(StateError):  # the writes succeeded, and the exporter exits
            self.directory.sync()
