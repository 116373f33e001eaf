"""Schedules the reads and writes of the state files, and tracks whether they succeed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from gpu_triage.documents.saved_state import StateKind
from gpu_triage.driver.kernel.procfs import Boot
from gpu_triage.errors import StateError
from gpu_triage.machine import Machine, Moment
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.exporter_health import CollectorHealth
from gpu_triage.sampler.lanes import Lane, Step, overdue
from gpu_triage.sampler.state_directory import IN_USE, StateDirectory
from gpu_triage.sampler.state_file import UNUSABLE, AnyStateNews, StateFile, StateNews

log = logging.getLogger(__name__)

_SAVE_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 60.0
_IN_USE_SECONDS: Final = 10.0
"""In a rollout, the new exporter starts writing this soon after the old one has exited."""
_PATIENCE_SECONDS: Final = 5.0
"""How long new incidents and findings wait for the saved state to be loaded."""

_MOST_LISTED: Final = 5
"""Maximum number of unsaved entries listed in one log message."""

T = TypeVar("T")


class PersistentState(Protocol[T]):
    """Part of the exporter's state that persists between runs. Only the sampler's thread uses it.

    Attributes:
        changed: whether it has unsaved changes.
    """

    changed: bool

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


AnyKept = PersistentState[Any]

Visit = Callable[[], AnyStateNews]
"""Reads or writes a file; never raises."""


@dataclass(frozen=True, slots=True)
class StateAccess:
    """What all stores of a sampler share."""

    machine: Machine  # the host that the state belongs to
    config: Config  # of the exporter
    lane: Lane  # in which all files are visited
    report: Callable[[AnyStateNews], None]  # takes the result of each visit to a file; called on its lane
    directory: StateDirectory | None  # the state directory; None if nothing is kept on disk
    may_write: bool  # whether this process may write, or only read

    @property
    def writes(self) -> bool:
        """Whether anything is written."""
        return self.may_write and self.directory is not None


class StateStore(Generic[T]):
    """Loads one kind of state, and saves it when it has changed. Only the sampler's thread calls it.

    Args:
        kind: of the file.
        kept: the state to keep in it.
        access: to the state directory.
        on_load: called with the file's contents and the ID of the current boot.
    """

    def __init__(
        self,
        kind: StateKind[T],
        kept: PersistentState[T],
        access: StateAccess,
        *,
        on_load: Callable[[T, str], None] = lambda _memory, _boot: None,
    ) -> None:
        self.name = kind.name
        machine, config = access.machine, access.config
        self._lane = access.lane
        self.boot = Boot("", None)
        self._kept = kept
        self._kind = kind
        self._clock = machine.clock
        self._file = StateFile(kind, machine, access.directory, writes=access.may_write)
        self._interval_seconds = config.sample_slow_seconds
        self._deadline_seconds = config.sample_deadline_seconds
        self._report = access.report
        self._on_load = on_load
        self._writes = access.writes
        self._began_at: float | None = None
        self._loaded = False
        self._generation = 0
        self._writing = False
        self._on_disk = kind.nothing
        self._visit_at = 0.0
        self._save_at = 0.0
        self._ends = False
        self._gave_up = False
        self._error: StateError | None = None
        self._duration_seconds: float | None = None
        self._last_success_at: Moment | None = None

    @property
    def in_use(self) -> bool | None:
        """Whether another exporter writes to the state directory; None if unknown."""
        if self._error is not None and self._error.reason == IN_USE:
            return True
        return False if self._generation else None

    def saves(self, now: float) -> bool | None:
        """Whether changes are being saved; None before the first visit to the file has ended or is overdue."""
        if not self._writes:
            return False
        if overdue(self._lane.busy_since, now, self._deadline_seconds):
            return False
        return None if self._duration_seconds is None else self._error is None and self._generation > 0

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
        return self._visit(saves=saves)

    def end(self) -> bool:
        """Note that the exporter is exiting; returns whether the file is still of use. A failed visit isn't retried."""
        if not self._ends:
            self._ends = True
            self._kept.before_last_save()
        return self._writes and not self._gave_up

    def last(self) -> Visit | None:
        """The next visit that is needed before the exporter exits, as in `due`; None if everything is on disk."""
        return self._visit(saves=self._has_to_save()) if not self._loaded or self._kept.changed else None

    def log_lost(self) -> None:
        """Log what is not on disk when the exporter exits, if anything."""
        lost = self._kept.not_in(self._on_disk)
        if not self._writes or not (lost or self._kept.changed or self._writing):
            return
        cause = self._error.detail if self._gave_up and self._error else "the disk did not answer in time"
        facts = {
            "file": str(self._file.path),
            "lost": len(lost),
            "last": ", ".join(lost[-_MOST_LISTED:]) or "none",
            "cause": cause,
        }
        log.warning("%s was not written before the end", self._kind.history, extra={"fields": facts})

    def settled(self, now: float) -> bool:
        """Whether the saved state is loaded, or is no longer being waited for."""
        late = self._began_at is not None and now - self._began_at > _PATIENCE_SECONDS
        return self._loaded or self._error is not None or late

    def take(self, news: StateNews[T], now: float) -> tuple[str, ...]:
        """Apply the result of a visit; returns the names of the errors to count."""
        self.boot = news.boot
        self._duration_seconds = news.duration_seconds
        kept = self._kept
        if news.loaded is not None:
            # If it was reloaded, another exporter may have written it: save the merged state.
            kept.changed = kept.changed or self._loaded or news.error is not None
            self._loaded = True
            kept.add(news.loaded)
            self._on_disk = news.loaded
        elif news.written is not None:
            self._on_disk = news.written
        if self._writing and news.written is None:
            kept.changed = True
        self._writing = False
        self._generation = news.generation
        kept.see_boot(news.boot.boot_id)
        if news.loaded is not None:
            self._on_load(news.loaded, news.boot.boot_id)
        self._log_turn(news.error)
        self._error = news.error
        if news.error is None:
            self._last_success_at = self._clock.now()
            return ()
        self._gave_up = self._ends
        pause_seconds = _IN_USE_SECONDS if news.error.reason == IN_USE else _RETRY_SECONDS
        # An unusable file has been moved out of the way, so saving need not wait.
        self._save_at = now + (_SAVE_SECONDS if news.loaded is not None and news.generation else pause_seconds)
        self._visit_at = now + pause_seconds
        return (news.error.reason,)

    def health(self, now: float) -> tuple[CollectorHealth, ...]:
        """Health of the store; empty if nothing is kept on disk."""
        if not self._writes:
            return ()
        stuck = overdue(self._lane.busy_since, now, self._deadline_seconds)
        health = CollectorHealth(
            name=self._kind.name,
            interval_seconds=self._interval_seconds,
            success=None if self._duration_seconds is None and not stuck else not stuck and self._error is None,
            duration_seconds=self._duration_seconds,
            last_success_at=self._last_success_at,
        )
        return (health,)

    def _has_to_save(self) -> bool:
        return self._writes and self._loaded and self._kept.changed

    def _visit(self, *, saves: bool) -> Visit:
        memory: T | None = None
        if saves:
            memory, self._writing, self._kept.changed = self._kept.memory, True, False
        return partial(self._file.visit, self._generation, memory, loads=not self._loaded)

    def _log_turn(self, error: StateError | None) -> None:
        before, kind = self._error, self._kind
        if error is not None and (before is None or before.reason != error.reason):
            fields = {"error": error.reason, "cause": error.detail}
            partly = error.reason in UNUSABLE
            what = f"not all of {kind.history} is usable" if partly else f"{kind.things} are remembered in memory only"
            log.warning(what, extra={"fields": fields})
        elif error is None and before is not None:
            log.info("%s are remembered on disk again", kind.things)


class StateStores:
    """A sampler's stores, the most important first; None is ignored. Only the sampler's thread calls it."""

    def __init__(self, access: StateAccess, *stores: StateStore[Any] | None) -> None:
        self._access = access
        self._lane = access.lane
        self._stores = [store for store in stores if store is not None]

    def submit(self, now: float) -> None:
        """Start the visits that are due, unless the lane is busy."""
        if self._lane.ready():
            self._start((store.name, store.due(now)) for store in self._stores)

    def finish(self, most: int | None = None) -> bool:
        """Start the visits that are needed before the exporter exits, unless the lane is busy.

        Returns whether there is anything to wait for. `most` limits it to the most important files.
        """
        if self._access.directory is not None:
            self._access.directory.hurried = True
        ending = [store for store in self._stores[:most] if store.end()]
        if ending and self._lane.busy_since is not None:
            return True
        return self._lane.ready() and self._start((store.name, store.last()) for store in ending)

    def save(self, wait: Callable[[Callable[[], bool]], bool], take: Callable[[], None]) -> None:
        """Write what is not on disk yet, as far as time permits, before the exporter exits.

        `wait` returns whether the given condition holds before the time is up; `take` processes ended visits.
        """
        take()
        while self.finish() and wait(self.idle):
            take()
        take()
        if self._access.writes and self.idle() and self._lane.ready():
            self._lane.submit(self._sync)
            wait(self.idle)

    def log_lost(self) -> None:
        for store in self._stores:
            store.log_lost()

    def idle(self) -> bool:
        return self._lane.busy_since is None

    def take(self, news: AnyStateNews, now: float) -> tuple[str, ...]:
        (store,) = (store for store in self._stores if store.name == news.name)
        return store.take(news, now)

    def health(self, now: float) -> tuple[CollectorHealth, ...]:
        return tuple(health for store in self._stores for health in store.health(now))

    def works(self, now: float) -> bool | None:
        """Whether all changes are being saved; None until that is known."""
        saved = [store.saves(now) for store in self._stores]
        return False if False in saved else None if None in saved else True

    def _start(self, due: Iterable[tuple[str, Visit | None]]) -> bool:
        visits = [(name, visit) for name, visit in due if visit is not None]

        def run() -> None:
            for name, visit in visits:
                self._lane.mark(Step(name))
                self._access.report(visit())

        if visits:
            self._lane.submit(run)
        return bool(visits)

    def _sync(self) -> None:
        assert self._access.directory is not None  # noqa: S101 - it `writes`
        self._access.directory.hurried = False
        with suppress(StateError):  # the writes succeeded, and the exporter exits
            self._access.directory.sync()
