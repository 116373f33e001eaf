"""The last outcome of each collector for each subject: immutable, replaced as a whole, withdrawn when stale."""

from __future__ import annotations

import math
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from gpu_triage.errors import DriverUnavailable, GpuUnavailable, HostReadFailed
from gpu_triage.machine import Clock, Machine, Moment
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.exporter_health import EXPORTER
from gpu_triage.read.exporter.judgment import JUDGE
from gpu_triage.read.metrics import contract
from gpu_triage.read.metrics.metric import MetricSpec, Sample
from gpu_triage.sampler.lanes import DEADLINE, LaneMaker, Post
from gpu_triage.sampler.schedule import interval_seconds

if TYPE_CHECKING:
    from prometheus_client import Metric

R = TypeVar("R")

HOST: Final = ""
"""The subject of a collector that reads the host; a GPU's subject is its key."""

_spec_of: Final = itemgetter(0)
_series_of: Final = itemgetter(0, 1)
"""Compares samples by metric and labels, without the value: equal ones are the same series."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one round of one collector for one subject."""

    collector: str  # its name
    subject: str  # the GPU's key, or HOST
    samples: tuple[Sample, ...]  # what to publish; empty if it failed
    finished_at: Moment  # when it ended
    _: KW_ONLY
    success: bool = True  # whether anything could be read
    errors: tuple[str, ...] = ()  # names of what failed, one entry per failed query
    duration_seconds: float = 0.0  # of the round
    detail: str = ""  # for the log: a traceback or kernel message; "" if there is nothing to add
    foreign: tuple[Metric, ...] = ()  # metric families from other programs
    reading: object | None = None  # what the samples were rendered from; None if it failed


@dataclass(frozen=True, slots=True)
class Context:
    """What all parts of a sampler share."""

    machine: Machine
    config: Config
    make_lane: LaneMaker
    post: Post
    report: Callable[[Outcome], None]  # how a job hands over an outcome


def checked(samples: Iterable[Sample], metrics: frozenset[MetricSpec]) -> tuple[Sample, ...]:
    """The samples. Raises ValueError: a metric that the collector does not declare, or a series twice."""
    result = tuple(samples)
    if metrics.issuperset(map(_spec_of, result)):
        if len(set(map(_series_of, result))) == len(result):
            return result
        (spec, labels), _ = Counter(map(_series_of, result)).most_common(1)[0]
        raise ValueError(f"{spec.name}{labels} twice")
    foreign = next(sample.spec for sample in result if sample.spec not in metrics)
    raise ValueError(f"{foreign.name} is not declared by this collector")


def sampled(
    collector: contract.AnyCollector,
    reader: Callable[[Any], Any],
    given: contract.GpuRound | contract.HostRound,
    *,
    subject: str = HOST,
    labels: tuple[contract.GpuLabels, ...] = (),
    deadline_seconds: float,
) -> tuple[Outcome, Exception | None]:
    """Run one round of a collector; returns its outcome, and the error that ended it, if any.

    Never raises: a bug in one collector must not cost the others their samples. A reading that took longer than the
    deadline is dropped, because its age is unknown.
    """
    failures = given.failures if isinstance(given, contract.HostRound) else given.inquiry.failures
    error, detail = "", ""
    cause: Exception | None = None
    reading: object | None = None
    samples: tuple[Sample, ...] = ()
    foreign: tuple[Metric, ...] = ()
    try:
        reading = reader(given)
        samples = checked(collector.render(reading, *labels), frozenset(collector.metrics))
        if isinstance(collector, contract.HostCollector) and collector.foreign is not None:
            foreign = collector.foreign(reading)
    except (GpuUnavailable, DriverUnavailable, HostReadFailed) as failed:
        cause, error = failed, failed.reason
        detail = str(failed) if isinstance(failed, HostReadFailed) else ""
    except Exception as bug:  # noqa: BLE001 - the only broad except in this path
        cause, error, detail = bug, "exception", traceback.format_exc()
    ended = given.machine.clock.now()
    seconds = ended.monotonic - given.at.monotonic
    if not error and seconds > deadline_seconds:
        error, detail = DEADLINE, f"its read took {seconds:.1f} s"
    if error:
        samples, foreign, reading = (), (), None
    outcome = Outcome(
        collector.name,
        subject,
        samples,
        ended,
        success=not error,
        errors=(*failures, error) if error else tuple(failures),
        duration_seconds=seconds,
        detail=detail,
        foreign=foreign,
        reading=reading,
    )
    return outcome, cause


class OutcomeStore:
    """Outcomes by collector and subject. Written by the sampler's thread, read from any."""

    def __init__(self, collectors: Iterable[str]) -> None:
        self.collectors = tuple(collectors)  # names of all collectors, in the order to publish them
        self._outcomes: dict[str, dict[str, Outcome]] = {name: {} for name in self.collectors}

    def put(self, outcome: Outcome) -> None:
        self._outcomes[outcome.collector] = {**self._outcomes[outcome.collector], outcome.subject: outcome}

    def put_own(self, subject: contract.OwnSubject[R], reading: R, now: Moment) -> None:
        """Publish one of the sampler's own outcomes; an unchanged one only gets a new timestamp."""
        before = self.get(subject.name, HOST)
        if before is not None and before.reading == reading:
            self.put(replace(before, finished_at=now))
            return
        rendered = checked(subject.render(reading), frozenset(subject.metrics))
        self.put(Outcome(subject.name, HOST, rendered, now, reading=reading))

    def withdraw(self, collector: str, subject: str) -> None:
        known = self._outcomes[collector]
        if subject in known:
            self._outcomes[collector] = {key: value for key, value in known.items() if key != subject}

    def of(self, collector: str) -> Mapping[str, Outcome]:
        """A collector's outcomes by subject, in the order of first appearance; another mapping after each change."""
        return self._outcomes.get(collector, {})

    def get(self, collector: str, subject: str) -> Outcome | None:
        """A collector's outcome for one subject; None before the first, or if the collector does not run."""
        return self.of(collector).get(subject)

    def reading(self, collector: contract.GpuCollector[R] | contract.HostCollector[R], subject: str = HOST) -> R | None:
        """What a collector last read of a subject; None before the first success, or once that is withdrawn."""
        outcome = self.get(collector.name, subject)
        return None if outcome is None else cast("R | None", outcome.reading)


class Freshness:
    """Which outcomes are still fresh enough to publish. Only the sampler's thread calls it, except `expires_at`.

    The outcomes of `collectors` are made on a schedule; all others are made at each publication.
    """

    def __init__(
        self, store: OutcomeStore, clock: Clock, config: Config, collectors: Sequence[contract.AnyCollector]
    ) -> None:
        self.clock = clock
        self._store = store
        of_gpus = [c for c in collectors if isinstance(c, contract.GpuCollector)]
        self._kept_while_stalled = frozenset(
            c.name for c in collectors if isinstance(c, contract.HostCollector) and c.kept_while_stalled
        )
        self._kept = frozenset(c.name for c in of_gpus if c.kept)
        self._of_present = tuple(c.name for c in of_gpus if not c.kept)
        scheduled = [c for c in collectors if c.name not in self._kept]
        self._fresh_for = {c.name: config.stale_after * interval_seconds(config, c.tier) for c in scheduled}
        # The sampler gets at least as much time as a GPU before it counts as stalled.
        least = config.sample_deadline_seconds
        self._published_for = max(config.stale_after * config.sample_fast_seconds, least)
        self._judged_for = max(config.stale_after * config.sample_medium_seconds, least)

    def expires_at(self, outcome: Outcome) -> float:
        """Monotonic second at which it goes stale; infinite for GPU identity and our own metrics. From any thread."""
        name = outcome.collector
        if name in self._kept or name == EXPORTER.name:
            return math.inf
        default = self._judged_for if name == JUDGE.name else self._published_for
        return outcome.finished_at.monotonic + self._fresh_for.get(name, default)

    def expire(self, now: float, subjects: frozenset[str]) -> None:
        """Withdraw outcomes that are too old, and identities of no known subject; `now` in monotonic seconds."""
        for collector, seconds in self._fresh_for.items():
            for outcome in self._store.of(collector).values():
                if now > outcome.finished_at.monotonic + seconds:
                    self._store.withdraw(collector, outcome.subject)
        for collector in self._kept:
            for forgotten in self._store.of(collector).keys() - subjects:
                self._store.withdraw(collector, forgotten)

    def extend(self, late: Outcome) -> None:
        """Keep a late host collector's previous reading, if that collector's facts change rarely enough."""
        last = self._store.get(late.collector, late.subject)
        if last is not None and late.collector in self._kept_while_stalled:
            self._store.put(replace(last, finished_at=late.finished_at))

    def withdraw(self, key: str) -> None:
        """Withdraw the readings of a GPU that does not respond, but keep its identity."""
        for collector in self._of_present:
            self._store.withdraw(collector, key)
