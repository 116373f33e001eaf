"""When the judge is asked, and what becomes of its answer."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable
from typing import Any, Final, Protocol

from gpu_triage.machine import Clock, Moment
from gpu_triage.sampler.outcomes import HOST, Outcome, OutcomeStore, checked
from gpu_triage.sampler.schedule import is_due, next_due
from gpu_triage.sampler.state_store import AnyKept, StateStore
from gpu_triage.saved_state import StateKind
from gpu_triage.subjects import judgement
from gpu_triage.subjects.exporter import CollectorHealth
from gpu_triage.subjects.metric import Sample, declared_in

log = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 10.0
"""For so long, the first judgement waits for the first readings: one that hangs must not keep it waiting."""


class StoreJudge(Protocol):
    """Says what it means that is published."""

    @property
    def saved(self) -> tuple[StateKind[Any], AnyKept]:
        """What it remembers from one judgement to the next, and its file."""

    def judge(self, store: OutcomeStore, now: Moment) -> Iterable[Sample]:
        """What the judgement of what is published adds to it; may raise anything."""

    def interrupt(self) -> None:
        """Note that a judgement failed."""


class JudgeRounds:
    """Asks the judge on the medium tier, and at once when something happened that cannot wait.

    A judge that raises costs its own series and nothing else. The first judgement waits a few seconds for what was
    saved, and for the first readings: before these, an Xid of the kernel log is of nobody, and nothing explains it.

    Args:
        judge: is asked.
        clock: the machine's.
        interval_seconds: of the medium tier.
        file: of what the judge remembers; None if that is not saved.
    """

    def __init__(
        self, judge: StoreJudge, clock: Clock, interval_seconds: float, file: StateStore[Any] | None = None
    ) -> None:
        self._judge = judge
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._file = file
        self._asked_at: float | None = None
        self._due_at: float | None = None
        self._urgent: object = None
        self._health = CollectorHealth(judgement.NAME, None, None, interval_seconds, None)

    @property
    def health(self) -> CollectorHealth:
        """How the last round went."""
        return self._health

    def run(self, store: OutcomeStore, urgent: object, now: Moment, *, starting: bool = False) -> tuple[str, ...]:
        """Judge if it is time; returns the errors to count.

        Args:
            store: what is published; takes the answer.
            urgent: what cannot wait for the next round if it is another than before.
            now: of the publication.
            starting: whether some of the first readings are still to come.
        """
        self._asked_at = now.monotonic if self._asked_at is None else self._asked_at
        if starting and now.monotonic - self._asked_at < _PATIENCE_SECONDS:
            return ()
        if self._file is not None and not self._file.settled(now.monotonic):
            return ()
        due = is_due(self._due_at, now.monotonic)
        if not due and urgent == self._urgent:
            return ()
        self._urgent = urgent
        if due:
            self._due_at = next_due(self._due_at, now.monotonic, self._interval_seconds)
        return self._run(store, now)

    def _run(self, store: OutcomeStore, now: Moment) -> tuple[str, ...]:
        began_at = self._clock.now().monotonic
        cause = ""
        samples: tuple[Sample, ...] = ()
        try:
            samples = checked(self._judge.judge(store, now), frozenset(declared_in(judgement.__name__)))
        except Exception:  # noqa: BLE001 - as in a collector: a bug here must not cost the readings
            cause = traceback.format_exc()
            self._judge.interrupt()
        seconds = self._clock.now().monotonic - began_at
        before = self._health
        last_success_at = before.last_success_at if cause else now
        self._health = CollectorHealth(judgement.NAME, not cause, seconds, self._interval_seconds, last_success_at)
        if cause:
            if before.success is not False:
                log.error("the judge failed", extra={"fields": {"cause": cause}})
            store.withdraw(judgement.NAME, HOST)
            return ("exception",)
        if before.success is False:
            log.info("the judge works again")
        outcome = Outcome(
            judgement.NAME, HOST, samples, success=True, errors=(), duration_seconds=seconds, finished_at=now
        )
        store.put(outcome)
        return ()
