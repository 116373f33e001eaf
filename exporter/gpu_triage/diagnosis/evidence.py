"""What a watch saw: every published series with its values over time, and the questions that judges ask of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

from gpu_triage.catalogue import MetricSpec
from gpu_triage.sampler.outcomes import OutcomeStore

_Key = tuple[MetricSpec, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Track:
    """One series over the watch.

    Attributes:
        labels: by name.
        points: monotonic second and value, oldest first, one for each round of its collector; at least one.
    """

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        """The latest value."""
        return self.points[-1][1]

    @property
    def low(self) -> float:
        """The least value."""
        return min(value for _, value in self.points)

    @property
    def high(self) -> float:
        """The greatest value."""
        return max(value for _, value in self.points)

    @property
    def mean(self) -> float:
        """The mean of its values."""
        return sum(value for _, value in self.points) / len(self.points)

    @property
    def seconds(self) -> float:
        """How long it was seen."""
        return self.points[-1][0] - self.points[0][0]

    @property
    def increase(self) -> float:
        """How far a counter rose; from zero again where it was reset."""
        values = [value for _, value in self.points]
        return sum(after - before if after >= before else after for before, after in pairwise(values))

    @property
    def rate(self) -> float | None:
        """A counter's increase a second; None when it was seen only once."""
        return self.increase / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Evidence:
    """All series that were there at the end of a watch.

    Attributes:
        tracks: by metric.
        seconds: length of the watch.
        wall: its end, Unix seconds.
    """

    tracks: Mapping[MetricSpec, tuple[Track, ...]]
    seconds: float
    wall: float

    def series(self, spec: MetricSpec, **labels: str) -> tuple[Track, ...]:
        """The series of a metric that have these labels."""
        wanted = labels.items()
        return tuple(track for track in self.tracks.get(spec, ()) if wanted <= track.labels.items())

    def one(self, spec: MetricSpec, **labels: str) -> Track | None:
        """The first series of a metric that has these labels; None without one."""
        return next(iter(self.series(spec, **labels)), None)

    def last(self, spec: MetricSpec, **labels: str) -> float | None:
        """The latest value of that series."""
        track = self.one(spec, **labels)
        return None if track is None else track.last

    def rate(self, spec: MetricSpec, **labels: str) -> float | None:
        """The rate of all counters with these labels together; None where none was seen twice."""
        rates = [rate for track in self.series(spec, **labels) if (rate := track.rate) is not None]
        return sum(rates) if rates else None


@dataclass(slots=True)
class Recorder:
    """Notes what a sampler publishes, each reading once."""

    _points: dict[_Key, list[tuple[float, float]]] = field(default_factory=dict)
    _present: frozenset[_Key] = frozenset()

    def note(self, store: OutcomeStore) -> None:
        """Take in what is published now."""
        present = []
        for collector in store.collectors:
            for outcome in store.of(collector):
                at = outcome.finished_at.monotonic
                for sample in outcome.samples:
                    key = (sample.spec, sample.labels)
                    present.append(key)
                    points = self._points.setdefault(key, [])
                    if not points or points[-1][0] < at:
                        points.append((at, sample.value))
        self._present = frozenset(present)

    def evidence(self, seconds: float, wall: float) -> Evidence:
        """What was noted, without the series that have been withdrawn since."""
        return evidence_of(
            (
                (spec, labels, tuple(points))
                for (spec, labels), points in self._points.items()
                if (spec, labels) in self._present
            ),
            seconds,
            wall,
        )


def evidence_of(
    series: Iterable[tuple[MetricSpec, tuple[str, ...], tuple[tuple[float, float], ...]]], seconds: float, wall: float
) -> Evidence:
    """Evidence made of series: metric, label values, and points."""
    tracks: dict[MetricSpec, list[Track]] = {}
    for spec, values, points in series:
        labels = MappingProxyType(dict(zip(spec.labels, values, strict=True)))
        tracks.setdefault(spec, []).append(Track(labels, points))
    return Evidence(MappingProxyType({spec: tuple(found) for spec, found in tracks.items()}), seconds, wall)
