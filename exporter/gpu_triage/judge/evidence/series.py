"""The series of every metric over a window, and queries on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.past import Amount, Memory
from gpu_triage.judge.findings.settings import DEFAULT_SETTINGS, JudgeSettings
from gpu_triage.machine import Moment
from gpu_triage.read.incidents.incident_metrics import GPU_RESET_TIMESTAMP_SECONDS
from gpu_triage.read.metrics.metric import MetricSpec

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing since Python 3.11; not a runtime dependency

Labels = tuple[str, ...]
Points = tuple[float, ...]
"""Alternating times (monotonic seconds) and values of a series, oldest first: ``(t0, v0, t1, v1, …)``."""

Group = Mapping[Labels, Points]
Index = Mapping[MetricSpec, Mapping[Labels, Group]]
"""Series by metric, by GPU (index and UUID; empty for host metrics), and by labels."""

TWO_POINTS = 4  # length of two points


class Series(NamedTuple):
    """One series over the window. A tuple for speed: each judgment creates thousands, at a third of the cost."""

    spec: MetricSpec
    values: Labels  # label values, in the order of the spec
    first: float
    last: float
    low: float
    high: float
    mean: float  # time-weighted over its readings; with one reading, that reading
    increase: float  # increase of a counter, across resets
    seconds: float  # from first reading to last; 0 if there is only one
    last_at: float  # monotonic second of the last reading

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(zip(self.spec.labels, self.values, strict=True))

    @property
    def name(self) -> str:
        """Its label values as text: ``mlx5_3:1`` of a port."""
        return ":".join(self.values)

    @property
    def rate(self) -> float | None:
        """A counter's increase per second; None with only one reading."""
        return self.increase / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True, eq=False)
class Evidence:
    """All current series with one window of history. Immutable, except for the longer-term `memory`."""

    seconds: float  # how far back it reaches: the window, or less if less was observed
    at: Moment  # end of the window
    index: Index = field(repr=False)
    memory: Memory = field(repr=False)  # history beyond the window
    settings: JudgeSettings = field(default=DEFAULT_SETTINGS, kw_only=True, repr=False)  # thresholds to apply

    @property
    def gpu_labels(self) -> tuple[str, str] | None:
        """Index and UUID of the GPU it covers; None for a whole host."""
        return None

    def limit(self, code: str, name: str) -> float:
        """Return a threshold of a finding; for the names see `findings.settings`."""
        return self.settings.limits[code, name]

    def age_seconds(self, wall: float) -> float:
        """Return the age of a Unix timestamp in seconds."""
        return self.at.wall - wall

    @cached_property
    def recent(self) -> Self:
        """The same over `RECENT_SECONDS`, the last part of the window: what is scarce now, and the state of links."""
        return self.over(thresholds.RECENT_SECONDS)

    def over(self, seconds: float) -> Self:
        return replace(self, seconds=min(seconds, self.seconds))

    def series(self, spec: MetricSpec, **labels: str) -> tuple[Series, ...]:
        since = self.at.monotonic - self.seconds
        return tuple([_series(spec, values, points, since) for values, points in self._matching(spec, labels)])

    def has(self, spec: MetricSpec, **labels: str) -> bool:
        return bool(self._matching(spec, labels))

    def labels_of(self, spec: MetricSpec, **labels: str) -> list[Mapping[str, str]]:
        """Return only the labels of those series, for metrics without a meaningful history (infos and states)."""
        return [dict(zip(spec.labels, values, strict=True)) for values, _ in self._matching(spec, labels)]

    def one(self, spec: MetricSpec, **labels: str) -> Series | None:
        """Return the metric's first series with these labels, or None."""
        for values, points in self._matching(spec, labels):
            return _series(spec, values, points, self.at.monotonic - self.seconds)
        return None

    def last(self, spec: MetricSpec, **labels: str) -> float | None:
        """Return the latest value of that series."""
        for _, points in self._matching(spec, labels):
            return points[-1]
        return None

    def lasts(self, spec: MetricSpec, **labels: str) -> list[float]:
        """Return the latest value of each of those series."""
        return [points[-1] for _, points in self._matching(spec, labels)]

    def label(self, spec: MetricSpec, name: str) -> str:
        """Return a label of the first series of an info metric, or ""."""
        for values, _ in self._matching(spec, {}):
            return values[spec.labels.index(name)]
        return ""

    def rate(self, spec: MetricSpec, **labels: str) -> float | None:
        """Return the summed rate of all counters with these labels; None if none has two readings."""
        rates = [rate for each in self.series(spec, **labels) if (rate := each.rate) is not None]
        return sum(rates) if rates else None

    def risen(self, spec: MetricSpec, seconds: float, **labels: str) -> Amount:
        """Return a counter's increase over the last `seconds`, as far as remembered."""
        return sum_of(self.rises(spec, seconds, **labels).values())

    def rises(self, spec: MetricSpec, seconds: float, *by: str, **labels: str) -> Mapping[str, Amount]:
        """Return the same by the values of the labels `by`, as text like `Series.name`."""
        places = [spec.labels.index(name) for name in by]
        found: dict[str, list[Amount]] = defaultdict(list)
        for values, _ in self._matching(spec, labels):
            found[":".join(values[place] for place in places)].append(self.memory.rise(spec, values, seconds))
        return {name: sum_of(amounts) for name, amounts in found.items()}

    @property
    def reset_at(self) -> float:
        """Unix time in seconds of the last reset of the GPU, or of any GPU of the host; 0 if none is known."""
        return max(self.lasts(GPU_RESET_TIMESTAMP_SECONDS), default=0.0)

    def _matching(self, spec: MetricSpec, labels: dict[str, str]) -> Collection[tuple[Labels, Points]]:
        groups = self.index.get(spec)
        if groups is None:
            return ()
        gpu_labels = self.gpu_labels
        if gpu_labels is None and "gpu" in labels and "uuid" in labels:
            gpu_labels = (labels["gpu"], labels["uuid"])
        found: Collection[tuple[Labels, Points]]
        if gpu_labels is None:
            found = [item for group in groups.values() for item in group.items()]
        else:
            found = groups.get(gpu_labels, {}).items()
        for name, value in labels.items():
            place = spec.labels.index(name)
            found = [item for item in found if item[0][place] == value]
        return found


def sum_of(amounts: Iterable[Amount]) -> Amount:
    each = tuple(amounts)
    return Amount(sum(one.amount for one in each), max((one.seconds for one in each), default=0.0))


def many(amount: Amount, most: float) -> float | None:
    """Return the number of events if it exceeds `most` per `EVENTS_WINDOW_SECONDS`; else None."""
    increase, seconds = amount
    if increase < thresholds.SCALED_EVENTS or seconds <= 0:
        return None
    return increase if increase / seconds * thresholds.EVENTS_WINDOW_SECONDS > most else None


def _series(spec: MetricSpec, labels: Labels, points: Points, since: float) -> Series:
    """Return the series, starting from the last point at or before `since`."""
    value, ended_at = points[-1], points[-2]
    if len(points) <= TWO_POINTS and value == points[1]:
        # One reading, or constant.
        seconds = ended_at - max(points[0], min(since, ended_at))
        return Series(spec, labels, value, value, value, value, value, 0.0, seconds, ended_at)
    times, values = points[::2], points[1::2]
    first = 0
    while first + 1 < len(times) and times[first + 1] <= since:
        first += 1
    times, values = times[first:], values[first:]
    if times[0] < since and len(times) > 1:
        if values[0] == values[1]:
            times = (since, *times[1:])  # it was constant until then: two points represent many
        elif since - times[0] > ended_at - since:
            # A gap longer than the window, such as a suspended host: the first point is too old.
            times, values = times[1:], values[1:]
    increase = area = 0.0
    for place in range(1, len(times)):
        before, after = values[place - 1], values[place]
        increase += after - before if after >= before else after
        area += (before + after) / 2 * (times[place] - times[place - 1])
    seconds = ended_at - times[0]
    mean = area / seconds if seconds > 0 else value
    return Series(spec, labels, values[0], value, min(values), max(values), mean, increase, seconds, ended_at)
