"""When each collector is due."""

from collections.abc import Iterable
from typing import TypeVar

from gpu_triage.options.config import Config
from gpu_triage.read.metrics.contract import AnyGpuCollector, AnyHostCollector
from gpu_triage.read.metrics.metric import Tier

C = TypeVar("C", AnyGpuCollector, AnyHostCollector)

_TOLERANCE_SECONDS = 1e-6
"""Sums of intervals are not exact in floating point."""


def interval_seconds(config: Config, tier: Tier) -> float:
    """How often a tier is sampled, in seconds."""
    if tier is Tier.FAST:
        return config.sample_fast_seconds
    return config.sample_medium_seconds if tier is Tier.MEDIUM else config.sample_slow_seconds


def is_due(due_at: float | None, now: float) -> bool:
    """Whether something is due; without a due time yet, it is."""
    return due_at is None or due_at <= now + _TOLERANCE_SECONDS


def next_due(due_at: float | None, now: float, interval: float) -> float:
    """The next due time of something done now. Missed rounds are skipped, since it is too late to read them."""
    on_time = (now if due_at is None else due_at) + interval
    return on_time if on_time > now else now + interval


class Schedule:
    """Due times of one subject's collectors. Initially, everything is due."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._due_at: dict[str, float] = {}

    def due(self, collectors: Iterable[C], now: float) -> tuple[C, ...]:
        """Collectors that are due, in the given order; each is then next due one interval later."""
        due = self.waiting(collectors, now)
        for collector in due:
            due_at = self._due_at.get(collector.name)
            self._due_at[collector.name] = next_due(due_at, now, self.interval_of(collector))
        return due

    def interval_of(self, collector: AnyGpuCollector | AnyHostCollector) -> float:
        return interval_seconds(self._config, collector.tier)

    def waiting(self, collectors: Iterable[C], now: float) -> tuple[C, ...]:
        """Collectors that are due, without rescheduling them."""
        return tuple(c for c in collectors if is_due(self._due_at.get(c.name), now))

    def defer(self, until: float) -> None:
        self._due_at = {name: max(at, until) for name, at in self._due_at.items()}

    def all_due(self) -> None:
        self._due_at.clear()
