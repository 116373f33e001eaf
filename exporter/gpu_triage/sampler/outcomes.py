"""The last result of each collector for each subject: immutable, swapped in whole, withdrawn when old."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeVar

from gpu_triage.machine import Moment
from gpu_triage.subjects.contract import OwnSubject
from gpu_triage.subjects.metric import MetricSpec, Sample, declared_in

if TYPE_CHECKING:
    from prometheus_client import Metric

R = TypeVar("R")

HOST: Final = ""
"""The subject of a collector that reads the host; GPUs are known by their key."""

_spec_of: Final = itemgetter(0)
_series_of: Final = itemgetter(0, 1)
"""A sample is its metric, its labels and its value: without the value, equal ones are one series."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one round of one collector brought for one subject.

    Attributes:
        collector: its name.
        subject: the GPU's key, or HOST.
        samples: what to publish; empty when it failed.
        success: whether anything could be read.
        errors: names of what failed, one entry a failed question.
        duration_seconds: of the round.
        finished_at: when it ended.
        detail: for the log: what a bug or the kernel said; "" when there is nothing to add.
        foreign: families that others made, to be republished as they are.
        reading: what the samples were rendered from, for verdicts that need facts rather than series; None when it
            failed.
    """

    collector: str
    subject: str
    samples: tuple[Sample, ...]
    success: bool
    errors: tuple[str, ...]
    duration_seconds: float
    finished_at: Moment
    detail: str = ""
    foreign: tuple[Metric, ...] = ()
    reading: object | None = None


def checked(samples: Iterable[Sample], metrics: frozenset[MetricSpec]) -> tuple[Sample, ...]:
    """The samples, if they may leave the process.

    Raises:
        ValueError: one is of a metric the collector did not declare, or two are the same series.
    """
    result = tuple(samples)
    if metrics.issuperset(map(_spec_of, result)):
        if len(set(map(_series_of, result))) == len(result):
            return result
        (spec, labels), _ = Counter(map(_series_of, result)).most_common(1)[0]
        raise ValueError(f"{spec.name}{labels} twice")
    foreign = next(sample.spec for sample in result if sample.spec not in metrics)
    raise ValueError(f"{foreign.name} is not declared by this collector")


class OutcomeStore:
    """Outcomes by collector and subject. Written by the sampler's thread, read by any.

    Attributes:
        collectors: names of all collectors, in the order to publish them.
    """

    def __init__(self, collectors: Iterable[str]) -> None:
        self.collectors = tuple(collectors)
        self._outcomes: dict[str, dict[str, Outcome]] = {name: {} for name in self.collectors}
        self._versions: dict[str, int] = {}

    def put(self, outcome: Outcome) -> None:
        """Swap in an outcome for its collector and subject."""
        self._replace(outcome.collector, {**self._outcomes[outcome.collector], outcome.subject: outcome})

    def put_own(self, subject: OwnSubject, reading: R, render: Callable[[R], Iterable[Sample]], now: Moment) -> None:
        """Publish what the sampler itself says; mostly it says again what it said a second ago."""
        name, before = subject.NAME, self.get(subject.NAME, HOST)
        if before is not None and before.reading == reading:
            self.put(replace(before, finished_at=now))
            return
        rendered = checked(render(reading), frozenset(declared_in(subject.__name__)))
        self.put(Outcome(name, HOST, rendered, True, (), 0.0, now, reading=reading))  # noqa: FBT003 - success

    def withdraw(self, collector: str, subject: str) -> None:
        """Forget what a collector said of a subject."""
        known = self._outcomes[collector]
        if subject in known:
            self._replace(collector, {key: value for key, value in known.items() if key != subject})

    def of(self, collector: str) -> tuple[Outcome, ...]:
        """A collector's outcomes, in the order their subjects first appeared."""
        return tuple(self._outcomes[collector].values())

    def get(self, collector: str, subject: str) -> Outcome | None:
        """A collector's outcome for one subject; None where it has none, or the collector does not run."""
        return self._outcomes.get(collector, {}).get(subject)

    def version(self, collector: str) -> int:
        """A number that changes whenever the collector's outcomes do."""
        return self._versions.get(collector, 0)

    def _replace(self, collector: str, outcomes: dict[str, Outcome]) -> None:
        # The mapping before its version: a reader who sees the new version sees the new outcomes.
        self._outcomes[collector] = outcomes
        self._versions[collector] = self._versions.get(collector, 0) + 1
