"""The file of the ledger of incidents, read and written in a lane of its own: it may lie on a server that hangs."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_triage.config import Config
from gpu_triage.errors import StateError
from gpu_triage.host.boot import Boot, read_boot
from gpu_triage.incidents import metrics as incidents
from gpu_triage.incidents.file import read_memory, set_aside, write_memory
from gpu_triage.incidents.ledger import IncidentLedger, Memory
from gpu_triage.machine import Machine, Moment
from gpu_triage.sampler.lanes import Lane, LaneMaker, overdue
from gpu_triage.subjects.exporter import CollectorHealth

log = logging.getLogger(__name__)

FILE_NAME: Final = "incidents.json"

SIMULATED_FILE_NAME: Final = "incidents-simulated.json"
"""What happens on a simulated host must not be remembered of this one."""

_SAVE_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 5.0
"""For so long, what is seen waits for what was remembered."""

_UNUSABLE: Final = frozenset({"not_a_file", "too_large", "malformed", "unknown_version"})


@dataclass(frozen=True, slots=True)
class IncidentNews:
    """How a visit to the file ended.

    Attributes:
        boot: the present boot.
        loaded: what the file remembers; None where it was not read.
        written: whether it was written.
        error: what went wrong; None when nothing did.
        duration_seconds: of the visit.
    """

    boot: Boot
    loaded: Memory | None = None
    written: bool = False
    error: StateError | None = None
    duration_seconds: float = 0.0


class IncidentStore:
    """Loads the ledger once, and saves it when it has changed. Only the sampler's thread calls it.

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
        *,
        writes: bool,
    ) -> None:
        self.lane: Lane = make_lane(incidents.NAME)
        self.boot = Boot("", None)
        self._machine = machine
        self._interval_seconds = config.sample_slow_seconds
        self._deadline_seconds = config.sample_deadline_seconds
        self._report = report
        self._writes = writes
        folder = config.state_directory
        self._path = None if folder is None else path_in(folder, simulated=machine.simulated)
        self._began_at: float | None = None
        self._loaded = False
        self._visit_at = 0.0
        self._save_at = 0.0
        self._error: StateError | None = None
        self._duration_seconds: float | None = None
        self._last_success_at: Moment | None = None

    def submit(self, ledger: IncidentLedger, now: float) -> None:
        """Start a visit to the file if one is due and nobody is at it."""
        if self._began_at is None:
            self._began_at = now
        saves = self._saves(ledger) and now >= self._save_at
        if (now < self._visit_at and not saves) or not self.lane.ready():
            return
        self._visit_at = now + self._interval_seconds
        self._save_at = now + _SAVE_SECONDS
        self._start(ledger, saves=saves)

    def flush(self, ledger: IncidentLedger) -> None:
        """Save what has changed before the end, if that can start at once."""
        if self._saves(ledger) and self.lane.ready():
            self._start(ledger, saves=True)

    def settled(self, now: float) -> bool:
        """Whether what was remembered is there by now, or will not be waited for any longer."""
        late = self._began_at is not None and now - self._began_at > _PATIENCE_SECONDS
        return self._loaded or self._error is not None or late

    def take(self, news: IncidentNews, ledger: IncidentLedger, now: float) -> tuple[str, ...]:
        """Take in how a visit ended; returns the names of what failed."""
        self.boot = news.boot
        self._duration_seconds = news.duration_seconds
        if news.loaded is not None:
            self._loaded = True
            ledger.add(news.loaded)
        ledger.see_boot(news.boot.boot_id)
        self._log_turn(news.error)
        self._error = news.error
        if news.error is None:
            self._last_success_at = self._machine.clock.now()
            return ()
        ledger.changed = ledger.changed or self._loaded
        self._save_at = self._visit_at = now + _RETRY_SECONDS
        return (news.error.reason,)

    def health(self, now: float) -> tuple[CollectorHealth, ...]:
        """How it fares; empty where nothing is kept on disk."""
        if self._path is None or not self._writes:
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
        return self._path is not None and self._writes and self._loaded and ledger.changed

    def _start(self, ledger: IncidentLedger, *, saves: bool) -> None:
        memory = ledger.memory if saves else None
        if saves:
            ledger.changed = False
        loads = not self._loaded
        self.lane.submit(lambda: self._visit(memory, loads=loads))

    def _visit(self, memory: Memory | None, *, loads: bool) -> None:
        began_at = self._machine.clock.now().monotonic
        loaded: Memory | None = None
        error: StateError | None = None
        boot = read_boot(self._machine.procfs)
        try:
            if loads:
                loaded, error = self._load()
            elif memory is not None and self._path is not None:
                write_memory(self._path, memory)
        except StateError as failed:
            error = failed
        except Exception:  # noqa: BLE001 - as in the rounds: a bug here must not end the sampler
            error = StateError("exception", traceback.format_exc())
        seconds = self._machine.clock.now().monotonic - began_at
        self._report(IncidentNews(boot, loaded, memory is not None and error is None, error, seconds))

    def _load(self) -> tuple[Memory, StateError | None]:
        """What is remembered, and why less than all of it; raises where that may be mended."""
        past = None if self._machine.incidents is None else read_memory(self._machine.incidents)
        try:
            memory = None if self._path is None else read_memory(self._path)
        except StateError as failed:
            if failed.reason not in _UNUSABLE or self._path is None:
                raise
            if self._writes:
                aside = set_aside(self._path)
                failed = StateError(failed.reason, f"{failed.detail}; it is now {aside}, and a new one is begun")
            return past or Memory(), failed
        return memory or past or Memory(), None

    def _log_turn(self, error: StateError | None) -> None:
        before = self._error
        if error is not None and (before is None or before.reason != error.reason):
            fields = {"error": error.reason, "cause": error.detail}
            log.warning("incidents are remembered in memory only", extra={"fields": fields})
        elif error is None and before is not None:
            log.info("incidents are remembered on disk again")


def path_in(directory: Path, *, simulated: bool = False) -> Path:
    """Where the ledger is in a state directory."""
    return directory / (SIMULATED_FILE_NAME if simulated else FILE_NAME)
