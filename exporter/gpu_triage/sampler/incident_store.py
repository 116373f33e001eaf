"""When the file of the ledger of incidents is read and written, and whether that works."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from gpu_triage.config import Config
from gpu_triage.errors import StateError
from gpu_triage.host.boot import Boot
from gpu_triage.incidents import metrics as incidents
from gpu_triage.incidents.ledger import Incident, IncidentLedger, Memory
from gpu_triage.machine import Machine, Moment
from gpu_triage.sampler.incident_file import UNUSABLE, IncidentFile, IncidentNews, Visit
from gpu_triage.sampler.lanes import Lane, LaneMaker, overdue
from gpu_triage.sampler.state_directory import IN_USE, StateDirectory
from gpu_triage.subjects.exporter import CollectorHealth

log = logging.getLogger(__name__)

_SAVE_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 60.0
_IN_USE_SECONDS: Final = 10.0
"""In a rollout, the new exporter starts to write this soon after the old one has ended."""
_PATIENCE_SECONDS: Final = 5.0
"""For so long, what is seen waits for what was remembered."""

_MOST_LISTED: Final = 5
"""Incidents that one line of the log lists."""


class IncidentStore:
    """Loads the ledger, and saves it when it has changed. Only the sampler's thread calls it.

    Attributes:
        lane: where the file is touched.
        boot: the present boot, as far as it is known.
    """

    def __init__(
        self,
        machine: Machine,
        config: Config,
        make_lane: LaneMaker,
        report: Callable[[IncidentNews], None],
        state: StateDirectory | None,
        *,
        writes: bool,
    ) -> None:
        self.lane: Lane = make_lane(incidents.NAME)
        self.boot = Boot("", None)
        self._clock = machine.clock
        self._file = IncidentFile(machine, state, writes=writes)
        self._interval_seconds = config.sample_slow_seconds
        self._deadline_seconds = config.sample_deadline_seconds
        self._report = report
        self._writes = writes and state is not None
        self._began_at: float | None = None
        self._loaded = False
        self._generation = 0
        self._writing = False
        self._on_disk: frozenset[Incident] = frozenset()
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

    def submit(self, ledger: IncidentLedger, now: float) -> None:
        """Start a visit to the file if one is due and nobody is at it."""
        if self._began_at is None:
            self._began_at = now
        saves = self._saves(ledger) and now >= self._save_at
        syncs = self._unsynced and self._error is None
        if (now < self._visit_at and not saves and not syncs) or not self.lane.ready():
            return
        self._visit_at = now + self._interval_seconds
        if saves:
            self._save_at = now + _SAVE_SECONDS
        self._start(ledger, saves=saves)

    def finish(self, ledger: IncidentLedger) -> bool:
        """Start the next visit that is needed before the exporter ends, unless one is running.

        Returns whether there is anything left to do. A visit that fails now is not repeated.
        """
        self._ends = True
        if not self._writes or self._gave_up:
            return False
        if self.lane.busy_since is not None:
            return True
        left = not self._loaded or ledger.changed or self._unsynced
        if left and not self.lane.ready():
            return False
        if left:
            self._start(ledger, saves=self._saves(ledger))
        return left

    def log_lost(self, ledger: IncidentLedger) -> None:
        """Log what is not on disk when the exporter ends, if anything."""
        lost = [each for each in ledger.memory.incidents if each not in self._on_disk]
        if not self._writes or not (lost or ledger.changed or self._writing):
            return
        listed = lost[-_MOST_LISTED:]
        last = ", ".join(f"{each.kind} at {each.slot or each.uuid or 'an unknown slot'}" for each in listed)
        cause = self._error.detail if self._gave_up and self._error else "the disk did not answer in time"
        facts = {"file": str(self._file.path), "lost": len(lost), "last": last or "none", "cause": cause}
        log.warning("the incident history was not written before the end", extra={"fields": facts})

    def settled(self, now: float) -> bool:
        """Whether what was remembered is there by now, or will not be waited for any longer."""
        late = self._began_at is not None and now - self._began_at > _PATIENCE_SECONDS
        return self._loaded or self._error is not None or late

    def take(self, news: IncidentNews, ledger: IncidentLedger, now: float) -> tuple[str, ...]:
        """Take in how a visit ended; returns the names of what failed."""
        self.boot = news.boot
        self._duration_seconds = news.duration_seconds
        if news.loaded is not None:
            # If it was loaded again, another exporter may have written it: write what both have seen.
            ledger.changed = ledger.changed or self._loaded or news.error is not None
            self._loaded = True
            ledger.add(news.loaded)
            self._on_disk = frozenset(news.loaded.incidents)
        elif news.written is not None:
            self._unsynced = True
            self._on_disk = frozenset(news.written.incidents)
        elif news.synced:
            self._unsynced = False
        if self._writing and news.written is None:
            ledger.changed = True
        self._writing = False
        self._generation = news.generation
        ledger.see_boot(news.boot.boot_id)
        self._log_turn(news.error)
        self._error = news.error
        if news.error is None:
            self._last_success_at = self._clock.now()
            return ()
        self._gave_up = self._ends
        pause = _IN_USE_SECONDS if news.error.reason == IN_USE else _RETRY_SECONDS
        self._save_at = self._visit_at = now + pause
        return (news.error.reason,)

    def health(self, now: float) -> tuple[CollectorHealth, ...]:
        """How it fares; empty where nothing is kept on disk."""
        if not self._writes:
            return ()
        stuck = overdue(self.lane.busy_since, now, self._deadline_seconds)
        health = CollectorHealth(
            name=incidents.NAME,
            interval_seconds=self._interval_seconds,
            success=None if self._duration_seconds is None and not stuck else not stuck and self._error is None,
            duration_seconds=self._duration_seconds,
            last_success_at=self._last_success_at,
        )
        return (health,)

    def _saves(self, ledger: IncidentLedger) -> bool:
        return self._writes and self._loaded and ledger.changed

    def _start(self, ledger: IncidentLedger, *, saves: bool) -> None:
        memory: Memory | None = None
        if saves:
            memory, self._writing, ledger.changed = ledger.memory, True, False
        visit = Visit(not self._loaded, self._generation, memory, syncs=self._unsynced)
        self.lane.submit(lambda: self._report(self._file.visit(visit)))

    def _log_turn(self, error: StateError | None) -> None:
        before = self._error
        if error is not None and (before is None or before.reason != error.reason):
            fields = {"error": error.reason, "cause": error.detail}
            partly = error.reason in UNUSABLE
            what = "not all of the incident history is usable" if partly else "incidents are remembered in memory only"
            log.warning(what, extra={"fields": fields})
        elif error is None and before is not None:
            log.info("incidents are remembered on disk again")
