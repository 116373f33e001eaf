"""Runs the judge on schedule and publishes its result."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable
from typing import Any, Final, Protocol

from gpu_triage.documents.saved_state import StateKind
from gpu_triage.machine import Clock, Moment
from gpu_triage.read.exporter import judgment
from gpu_triage.read.exporter.exporter_health import CollectorHealth
from gpu_triage.read.metrics.metric import Sample, declared_in
from gpu_triage.sampler.outcomes import HOST, Outcome, OutcomeStore, checked
from gpu_triage.sampler.schedule import is_due, next_due
from gpu_triage.sampler.state_store import AnyKept, StateStore

log = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 10.0
"""How long the first judgment waits for the first readings, in case one of them hangs."""


class StoreJudge(Protocol):
    """Interprets the published readings."""

    @property
    def saved(self) -> tuple[StateKind[Any], AnyKept]:
        """What the judge remembers between judgments: the kind of state file, and the state."""

    def judge(self, store: OutcomeStore, now: Moment) -> Iterable[Sample]:
        """Samples that the judgment adds to the published readings; may raise anything."""

    def interrupt(self) -> None:
        """Note that a judgment failed."""


class JudgeRounds:
    """Runs the judge on the medium tier, and immediately on urgent changes.

    If the judge raises, only its own series are lost. The first judgment waits a few seconds for the saved state and
    the first readings: without them, Xids in the kernel log cannot be matched to GPUs or explained.
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
        self.health = CollectorHealth(judgment.NAME, None, None, interval_seconds, None)

    def run(self, store: OutcomeStore, urgent: object, now: Moment, *, starting: bool = False) -> tuple[str, ...]:
        """Run the judge on the published outcomes if it is due, and publish its own; returns the errors to count.

        It runs at once when `urgent` changes. While `starting`, some of the first readings are still pending.
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
            samples = checked(self._judge.judge(store, now), frozenset(declared_in(judgment.__name__)))
        except Exception:  # noqa: BLE001 - as in a collector: a bug here must not cost the readings
            cause = traceback.format_exc()
            self._judge.interrupt()
        seconds = self._clock.now().monotonic - began_at
        before = self.health
        last_success_at = before.last_success_at if cause else now
        self.health = CollectorHealth(judgment.NAME, not cause, seconds, self._interval_seconds, last_success_at)
        if cause:
            if before.success is not False:
                log.error("the judge failed", extra={"fields": {"cause": cause}})
            store.withdraw(judgment.NAME, HOST)
            return ("exception",)
        if before.success is False:
            log.info("the judge works again")
        store.put(Outcome(judgment.NAME, HOST, samples, now, duration_seconds=seconds))
        return ()
