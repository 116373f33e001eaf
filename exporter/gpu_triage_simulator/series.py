"""Samples of many scrapes, stored as one compact column per series."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from gpu_triage.errors import ConfigError
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_TIME_SECONDS
from gpu_triage.read.metrics.metric import Kind, MetricSpec, Sample
from gpu_triage.read.selection import EVERYTHING, Selection
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore

MOST_VALUES: Final = 1 << 27
"""Maximum number of values in a history, at eight bytes each: 1 GiB."""

UP: Final = "up"
"""The series that a scrape itself adds: whether the target responded."""

SeriesKey = tuple[str, tuple[tuple[str, str], ...]]
"""A series: its exposed name, and its labels (including the target's) as sorted pairs."""

_RESERVED: Final = "exported_"
_CREATED: Final = "_created"


@dataclass(frozen=True, slots=True)
class Family:
    name: str  # as in a TYPE line: a counter's lacks ``_total``
    kind: str  # ``counter``, ``gauge``, or ``unknown`` for metrics from a job's file
    help: str  # its HELP text, or ""
    series: tuple[SeriesKey, ...]  # its series, sorted


@dataclass(slots=True)
class _Kept:
    """One collector's last scraped outcome for one subject, with the columns of its values."""

    outcome: Outcome
    pairs: list[tuple[array[float], float]]


class SeriesRecorder:
    """Records consecutive scrapes.

    Attributes:
        columns: values by series, one per scrape so far, NaN where a scrape lacks the series; columns of series that
            have ended are shorter until `finish`.
    """

    def __init__(self, target: Mapping[str, str], steps: int, selection: Selection = EVERYTHING) -> None:
        self.columns: dict[SeriesKey, array[float]] = {}
        self._target = dict(target)
        self._steps = steps
        self._selection = selection
        self._by_sample: dict[tuple[MetricSpec | str, tuple[object, ...]], array[float]] = {}
        self._families: dict[str, tuple[str, str]] = {}
        self._kept: dict[tuple[str, str], _Kept] = {}

    def scrape(self, step: int, store: OutcomeStore, wall: float) -> None:
        """Record what the exporter publishes now; if two subjects claim the same series, the first one wins.

        Args:
            wall: the host's wall time, which is part of the exposition.

        Raises:
            ConfigError: the history would hold more than MOST_VALUES values.
        """
        self.up(step, answered=True)
        for sample in self._selection.of((GPU_EXPORTER_TIME_SECONDS.sample(wall),)):
            _append(self._column_of(sample), step, sample.value)
        for collector in store.collectors:
            for outcome in store.of(collector).values():
                for column, value in self._pairs(outcome):
                    _append(column, step, value)
        if len(self.columns) * self._steps > MOST_VALUES:
            raise ConfigError(
                f"{len(self.columns)} series of {self._steps} values each are more than a history may hold "
                f"({MOST_VALUES} values, {MOST_VALUES * 8 >> 30} GiB); take a longer step or a shorter time"
            )

    def up(self, step: int, *, answered: bool) -> None:
        """Record whether the target responded to a scrape."""
        column = self._column((UP, ()), UP, "gauge", "Whether the target answered the scrape.", {})
        column.extend(repeat(math.nan, step - len(column)))
        column.append(float(answered))

    def finish(self) -> tuple[Family, ...]:
        members: dict[str, list[SeriesKey]] = {}
        for key in sorted(self.columns):
            column = self.columns[key]
            column.extend(repeat(math.nan, self._steps - len(column)))
            members.setdefault(key[0], []).append(key)
        return tuple(
            Family(name.removesuffix("_total") if kind == "counter" else name, kind, text, tuple(members[name]))
            for name, (kind, text) in sorted(self._families.items())
        )

    def _pairs(self, outcome: Outcome) -> list[tuple[array[float], float]]:
        place = (outcome.collector, outcome.subject)
        kept = self._kept.get(place)
        if kept is None or kept.outcome is not outcome:
            kept = self._kept[place] = _Kept(outcome, [*self._own(outcome), *self._foreign(outcome)])
        return kept.pairs

    def _own(self, outcome: Outcome) -> Iterator[tuple[array[float], float]]:
        for sample in self._selection.of(outcome.samples):
            yield self._column_of(sample), sample.value

    def _foreign(self, outcome: Outcome) -> Iterator[tuple[array[float], float]]:
        """Series from jobs' files, without ``_created`` timestamps, which databases do not store."""
        for family in outcome.foreign:
            for sample in family.samples:
                if sample.name.endswith(_CREATED) or math.isnan(sample.value):
                    continue
                kind = "counter" if sample.name.endswith("_total") else "unknown"
                identity = (sample.name, tuple(sorted(sample.labels.items())))
                yield self._column(identity, sample.name, kind, family.documentation, sample.labels), sample.value

    def _column_of(self, sample: Sample) -> array[float]:
        known = self._by_sample.get((sample.spec, sample.labels))
        if known is None:
            spec = sample.spec
            kind = "counter" if spec.kind is Kind.COUNTER else "gauge"
            labels = dict(zip(spec.labels, sample.labels, strict=True))
            known = self._column((spec, sample.labels), spec.name, kind, spec.help, labels)
        return known

    def _column(
        self,
        identity: tuple[MetricSpec | str, tuple[object, ...]],
        name: str,
        kind: str,
        text: str,
        labels: Mapping[str, str],
    ) -> array[float]:
        column = self._by_sample.get(identity)
        if column is None:
            key = (name, tuple(sorted(_scraped_labels(labels, self._target).items())))
            column = self._by_sample[identity] = self.columns.setdefault(key, array("d"))
            self._families.setdefault(name, (kind, text))
        return column


def _append(column: array[float], step: int, value: float) -> None:
    """Add a scrape's value, unless the scrape already has one."""
    gap = step - len(column)
    if gap > 0:
        column.extend(repeat(math.nan, gap))
    if gap >= 0:
        column.append(value)


def _scraped_labels(labels: Mapping[str, str], target: Mapping[str, str]) -> dict[str, str]:
    """Labels after a scrape: the target's win, conflicting ones become ``exported_…``, and empty ones are dropped."""
    merged = {name: value for name, value in target.items() if value}
    for name, value in labels.items():
        free = name
        while free in target or (free != name and free in labels):
            free = _RESERVED + free
        if value:
            merged[free] = value
    return merged
