"""Schedules the reads and writes of one state file, and tracks whether they succeed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from gpu_triage.documents.saved_state import StateKind
from gpu_triage.driver.kernel.boot import Boot
from gpu_triage.errors import StateError
from gpu_triage.machine import Machine, Moment
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.exporter_health import CollectorHealth
from gpu_triage.sampler.lanes import Lane, LaneMaker, overdue
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


@dataclass(frozen=True, slots=True)
class StateAccess:
    """What all stores of a sampler share."""

    machine: Machine  # the host that the state belongs to
    config: Config  # of the exporter
    make_lane: LaneMaker  # creates the lane for a file
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
        self.lane: Lane = access.make_lane(kind.name)
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
        self._unsynced = False
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
        if overdue(self.lane.busy_since, now, self._deadline_seconds):
            return False
        return None if self._duration_seconds is None else self._error is None and self._generation > 0

    def submit(self, now: float) -> None:
        """Start a visit to the file if one is due and none is running."""
        if self._began_at is None:
            self._began_at = now
        saves = self._has_to_save() and now >= self._save_at
        syncs = self._unsynced and self._error is None
        if (now < self._visit_at and not saves and not syncs) or not self.lane.ready():
            return
        self._visit_at = now + self._interval_seconds
        if saves:
            self._save_at = now + _SAVE_SECONDS
        self._start(saves=saves)

    def finish(self) -> bool:
        """Start the next visit that is needed before the exporter exits, unless one is running.

        Returns whether there is anything left to do. A visit that fails now is not retried.
        """
        if not self._ends:
            self._ends = True
            self._kept.before_last_save()
        if not self._writes or self._gave_up:
            return False
        if self.lane.busy_since is not None:
            return True
        left = not self._loaded or self._kept.changed or self._unsynced
        if left and not self.lane.ready():
            return False
        if left:
            self._start(saves=self._has_to_save())
        return left

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
            self._unsynced = True
            self._on_disk = news.written
        elif news.synced:
            self._unsynced = False
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
        stuck = overdue(self.lane.busy_since, now, self._deadline_seconds)
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

    def _start(self, *, saves: bool) -> None:
        memory: T | None = None
        if saves:
            memory, self._writing, self._kept.changed = self._kept.memory, True, False
        visit = partial(self._file.visit, self._generation, memory, loads=not self._loaded, syncs=self._unsynced)
        self.lane.submit(lambda: self._report(visit()))

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
    """A sampler's stores as a group; None arguments are ignored. Only the sampler's thread calls it."""

    def __init__(self, *stores: StateStore[Any] | None) -> None:
        self._stores = [store for store in stores if store is not None]

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(store.lane for store in self._stores)

    def submit(self, now: float) -> None:
        for store in self._stores:
            store.submit(now)

    def finish(self) -> bool:
        left = [store.finish() for store in self._stores]
        return any(left)

    def save(self, wait: Callable[[Callable[[], bool]], bool], take: Callable[[], None]) -> None:
        """Write what is not on disk yet, as far as time permits, before the exporter exits.

        `wait` returns whether the given condition holds before the time is up; `take` processes ended visits.
        """
        take()
        while self.finish() and wait(self._next_done()):
            take()

    def _next_done(self) -> Callable[[], bool]:
        """Condition: at least one of the files that are busy now has become idle; true immediately if none is busy."""
        busy = [lane for lane in self.lanes if lane.busy_since is not None]
        return lambda: not busy or any(lane.busy_since is None for lane in busy)

    def log_lost(self) -> None:
        for store in self._stores:
            store.log_lost()

    def idle(self) -> bool:
        return all(lane.busy_since is None for lane in self.lanes)

    def take(self, news: AnyStateNews, now: float) -> tuple[str, ...]:
        (store,) = (store for store in self._stores if store.name == news.name)
        return store.take(news, now)

    def health(self, now: float) -> tuple[CollectorHealth, ...]:
        return tuple(health for store in self._stores for health in store.health(now))

    def works(self, now: float) -> bool | None:
        """Whether all changes are being saved; None until that is known."""
        saved = [store.saves(now) for store in self._stores]
        return False if False in saved else None if None in saved else True
