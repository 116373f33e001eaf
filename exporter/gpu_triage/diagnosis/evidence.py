"""What was published lately: the values of every series over a window, and the questions that judges ask of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from gpu_triage import catalogue
from gpu_triage.catalogue import GPU_LABELS, Kind, MetricSpec
from gpu_triage.collectors import judgement
from gpu_triage.machine import Moment
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore

_Labels = tuple[str, ...]
_Points = tuple[float, ...]
"""Times (monotonic seconds) and values of a series by turns, oldest first: ``(t0, v0, t1, v1, …)``."""

_Group = Mapping[_Labels, _Points]
_Index = Mapping[MetricSpec, Mapping[_Labels, _Group]]
"""Series by metric, by GPU (index and UUID; empty for a metric of the host), and by labels."""

_OF_THE_HOST: Final = ()
_TWO_POINTS: Final = 4
"""Length of two points."""

_OF_ONE_PROCESS: Final = "pid"
"""Label of the series whose past nobody asks for, and of which there may be thousands."""

_NOT_JUDGED: Final = frozenset(
    {
        catalogue.NVLINK_TRANSMIT_BYTES,
        catalogue.NVLINK_RECEIVE_BYTES,
        catalogue.PCIE_ERRORS,
        catalogue.PROCESS_SM_UTILIZATION,
        catalogue.EXPORTER_COLLECTOR_DURATION,
        catalogue.SM_OCCUPANCY,
        catalogue.TENSOR_ACTIVE,
        catalogue.DRAM_ACTIVE,
        catalogue.FP64_ACTIVE,
        catalogue.FP32_ACTIVE,
        catalogue.FP16_ACTIVE,
        catalogue.BAR1_TOTAL,
        catalogue.BAR1_USED,
        catalogue.PCIE_TRANSMIT_BYTES,
        catalogue.PCIE_RECEIVE_BYTES,
    }
)
"""Families that no judge asks for: taking them in would be a quarter of the judge's work."""


@dataclass(frozen=True, slots=True)
class Track:
    """One series over the window.

    Attributes:
        spec, values: the metric, and the values of its labels in their order.
        first, last: its values at both ends.
        low, high: over its readings.
        mean: over the time between its readings; the reading itself where there is one.
        increase: how far a counter rose; from zero again where it was reset.
        seconds: from its first reading to its last; 0 when it was read once.
        last_at: monotonic second of its last reading.
    """

    spec: MetricSpec
    values: tuple[str, ...]
    first: float
    last: float
    low: float
    high: float
    mean: float
    increase: float
    seconds: float
    last_at: float

    @property
    def labels(self) -> Mapping[str, str]:
        """By name."""
        return dict(zip(self.spec.labels, self.values, strict=True))

    @property
    def rate(self) -> float | None:
        """A counter's increase a second; None when it was read only once."""
        return self.increase / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Evidence:
    """All series that are there now, with their past of one window. Immutable.

    Attributes:
        seconds: how far back it reaches: the window, or less while less was seen.
        at: its end.
    """

    seconds: float
    at: Moment
    _index: _Index = field(default_factory=lambda: MappingProxyType({}), repr=False)

    @property
    def wall(self) -> float:
        """Its end in Unix seconds."""
        return self.at.wall

    def over(self, seconds: float) -> Evidence:
        """The same evidence, of no more than the last `seconds`."""
        return replace(self, seconds=min(seconds, self.seconds))

    def series(self, spec: MetricSpec, **labels: str) -> tuple[Track, ...]:
        """The series of a metric that have these labels."""
        since = self.at.monotonic - self.seconds
        return tuple([_track(spec, values, points, since) for values, points in self._matching(spec, labels)])

    def one(self, spec: MetricSpec, **labels: str) -> Track | None:
        """The first series of a metric that has these labels; None without one."""
        for values, points in self._matching(spec, labels):
            return _track(spec, values, points, self.at.monotonic - self.seconds)
        return None

    def last(self, spec: MetricSpec, **labels: str) -> float | None:
        """The latest value of that series."""
        for _, points in self._matching(spec, labels):
            return points[-1]
        return None

    def rate(self, spec: MetricSpec, **labels: str) -> float | None:
        """The rate of all counters with these labels together; None where none was read twice."""
        rates = [rate for track in self.series(spec, **labels) if (rate := track.rate) is not None]
        return sum(rates) if rates else None

    def _matching(self, spec: MetricSpec, labels: dict[str, str]) -> Iterable[tuple[_Labels, _Points]]:
        groups = self._index.get(spec)
        if groups is None:
            return ()
        if "gpu" in labels and "uuid" in labels:
            group = groups.get((labels.pop("gpu"), labels.pop("uuid")))
            chosen: tuple[_Group, ...] = () if group is None else (group,)
        else:
            chosen = tuple(groups.values())
        found = [item for group in chosen for item in group.items()]
        for name, value in labels.items():
            place = spec.labels.index(name)
            found = [item for item in found if item[0][place] == value]
        return found


@dataclass(frozen=True, slots=True)
class _Taken:
    """One collector's last round for one subject, and its series with their past."""

    finished_at: Moment
    groups: Mapping[MetricSpec, Mapping[_Labels, _Group]]


class History:
    """Keeps what a sampler publishes for one window. A series that is withdrawn is forgotten.

    Args:
        window_seconds: how far back the evidence reaches.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._taken: dict[tuple[str, str], _Taken] = {}
        self._began_at: float | None = None

    def note(self, store: OutcomeStore, now: Moment) -> None:
        """Take in what is published now, each round once."""
        if self._began_at is None:
            self._began_at = now.monotonic
        since = now.monotonic - self._window_seconds
        present: dict[tuple[str, str], _Taken] = {}
        # What it made of the readings before is no evidence.
        for collector in (name for name in store.collectors if name != judgement.NAME):
            for outcome in store.of(collector):
                key = (collector, outcome.subject)
                before = self._taken.get(key)
                if before is not None and before.finished_at == outcome.finished_at:
                    present[key] = before
                else:
                    present[key] = _Taken(outcome.finished_at, _extended(outcome, before, since))
        self._taken = present

    def evidence(self, now: Moment) -> Evidence:
        """What was there at the last `note`."""
        index: dict[MetricSpec, dict[_Labels, _Group]] = {}
        for taken in self._taken.values():
            for spec, groups in taken.groups.items():
                known = index.setdefault(spec, {})
                for labels, group in groups.items():
                    # Of two subjects that claim one GPU's labels, the first has them, as on /metrics.
                    known.setdefault(labels, group)
        began_at = now.monotonic if self._began_at is None else self._began_at
        seconds = min(self._window_seconds, now.monotonic - began_at)
        return Evidence(seconds, now, index)


def _extended(
    outcome: Outcome, before: _Taken | None, since: float
) -> dict[MetricSpec, dict[_Labels, dict[_Labels, _Points]]]:
    """The series of a round, each with the past it had."""
    at = outcome.finished_at.monotonic
    groups: dict[MetricSpec, dict[_Labels, dict[_Labels, _Points]]] = {}
    past: Mapping[_Labels, _Group] = {}
    current: MetricSpec | None = None
    of_gpu = judged = False
    for spec, labels, value in outcome.samples:
        if spec is not current:
            # Series of one metric stand together: what is the metric's is found once.
            current, of_gpu = spec, spec.labels[:2] == GPU_LABELS
            judged = spec not in _NOT_JUDGED
            mine = groups.setdefault(spec, {}) if judged else {}
            remembered = before is not None and spec.kind is not Kind.INFO and _OF_ONE_PROCESS not in spec.labels
            past = before.groups.get(spec, {}) if remembered and before is not None else {}
        if not judged:
            continue
        whose = labels[:2] if of_gpu else _OF_THE_HOST
        group = mine.get(whose)
        if group is None:
            group = mine[whose] = {}
        earlier = past.get(whose)
        points = None if earlier is None else earlier.get(labels)
        group[labels] = (at, value) if points is None else _with(points, at, value, since)
    return groups


def _with(points: _Points, at: float, value: float, since: float) -> _Points:
    """The points with one more; those before the window go, but for the last of them."""
    if len(points) >= _TWO_POINTS and points[-1] == value == points[-3]:
        # What stands still needs two points, however long: most counters of errors do.
        if len(points) == _TWO_POINTS:
            return points[0], value, at, value
        points = points[:-2]
    first = 0
    while len(points) - first >= _TWO_POINTS and points[first + 2] <= since:
        first += 2
    return (*points[first:], at, value)


def _track(spec: MetricSpec, labels: _Labels, points: _Points, since: float) -> Track:
    """The series from the last point at or before `since` on."""
    value, ended_at = points[-1], points[-2]
    if len(points) <= _TWO_POINTS and value == points[1]:
        # Read once, or standing still.
        seconds = ended_at - max(points[0], min(since, ended_at))
        return Track(spec, labels, value, value, value, value, value, 0.0, seconds, ended_at)
    times, values = points[::2], points[1::2]
    first = 0
    while first + 1 < len(times) and times[first + 1] <= since:
        first += 1
    times, values = times[first:], values[first:]
    if times[0] < since and len(times) > 1:
        if values[0] == values[1]:
            times = (since, *times[1:])  # it stood still for so long: two points stand for many
        elif since - times[0] > ended_at - since:
            # Nobody looked for longer than the window, as while the host slept: that is not of now.
            times, values = times[1:], values[1:]
    increase = area = 0.0
    for place in range(1, len(times)):
        before, after = values[place - 1], values[place]
        increase += after - before if after >= before else after
        area += (before + after) / 2 * (times[place] - times[place - 1])
    seconds = ended_at - times[0]
    mean = area / seconds if seconds > 0 else value
    return Track(spec, labels, values[0], value, min(values), max(values), mean, increase, seconds, ended_at)
