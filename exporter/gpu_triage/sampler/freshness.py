"""Withdraws stale outcomes, and the readings of GPUs that no longer respond."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from gpu_triage.machine import Clock
from gpu_triage.options.config import Config
from gpu_triage.read.exporter import exporter_health as exporter
from gpu_triage.read.exporter import judgment
from gpu_triage.read.metrics.contract import AnyCollector, AnyGpuCollector, HostCollector
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore
from gpu_triage.sampler.schedule import interval_seconds


class Freshness:
    """Which outcomes are still fresh enough to publish. Only the sampler's thread calls it, except `expires_at`.

    The outcomes of `collectors` are made on a schedule; all others are made at each publication.
    """

    def __init__(
        self,
        store: OutcomeStore,
        clock: Clock,
        config: Config,
        collectors: Iterable[AnyCollector],
        gpu_collectors: Iterable[AnyGpuCollector],
    ) -> None:
        self.clock = clock
        self._store = store
        of_gpus, scheduled = tuple(gpu_collectors), tuple(collectors)
        self._kept_while_stalled = frozenset(
            c.name for c in scheduled if isinstance(c, HostCollector) and c.kept_while_stalled
        )
        self._kept = frozenset(c.name for c in of_gpus if c.kept)
        self._of_present = tuple(c.name for c in of_gpus if not c.kept)
        self._fresh_for = {
            c.name: config.stale_after * interval_seconds(config, c.tier) for c in scheduled if c.name not in self._kept
        }
        # The sampler gets at least as much time as a GPU before it counts as stalled.
        least = config.sample_deadline_seconds
        self._published_for = max(config.stale_after * config.sample_fast_seconds, least)
        self._judged_for = max(config.stale_after * config.sample_medium_seconds, least)

    def expires_at(self, outcome: Outcome) -> float:
        """Monotonic second at which an outcome goes stale; infinity if it never does. From any thread.

        GPU identity never goes stale, nor do the exporter's own metrics, which carry timestamps to show their age.
        """
        name = outcome.collector
        if name in self._kept or name == exporter.NAME:
            return math.inf
        default = self._judged_for if name == judgment.NAME else self._published_for
        return outcome.finished_at.monotonic + self._fresh_for.get(name, default)

    def expire(self, now: float) -> None:
        """Withdraw outcomes that are too old; `now` in monotonic seconds."""
        for collector, seconds in self._fresh_for.items():
            for outcome in self._store.of(collector):
                if now > outcome.finished_at.monotonic + seconds:
                    self._store.withdraw(collector, outcome.subject)

    def extend(self, late: Outcome) -> None:
        """Keep a late host collector's previous reading, if that collector's facts change rarely enough."""
        last = self._store.get(late.collector, late.subject)
        if last is not None and late.collector in self._kept_while_stalled:
            self._store.put(replace(last, finished_at=late.finished_at))

    def withdraw(self, key: str) -> None:
        """Withdraw the readings of a GPU that does not respond, but keep its identity."""
        for collector in self._of_present:
            self._store.withdraw(collector, key)

    def forget(self, key: str) -> None:
        """Withdraw the identity of a GPU that is dropped from memory."""
        for collector in self._kept:
            self._store.withdraw(collector, key)
