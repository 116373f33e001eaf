"""What a watch saw: every published series in summary, and the questions that judges ask of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from gpu_triage.catalogue import MetricSpec
from gpu_triage.sampler.outcomes import Outcome

_Key = tuple[MetricSpec, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Track:
    """One series over the watch: a summary, so that a long watch costs no more memory than a short one.

    Attributes:
        labels: by name.
        first, last: its values at both ends.
        low, high, mean: over its readings.
        increase: how far a counter rose; from zero again where it was reset.
        seconds: from its first reading to its last; 0 when it was read once.
    """

    labels: Mapping[str, str]
    first: float
    last: float
    low: float
    high: float
    mean: float
    increase: float
    seconds: float

    @property
    def rate(self) -> float | None:
        """A counter's increase a second; None when it was read only once."""
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
        """The rate of all counters with these labels together; None where none was read twice."""
        rates = [rate for track in self.series(spec, **labels) if (rate := track.rate) is not None]
        return sum(rates) if rates else None


class Published(Protocol):
    """What a sampler published: its store, or a snapshot of it."""

    @property
    def collectors(self) -> tuple[str, ...]:
        """Names of all collectors."""

    def of(self, collector: str) -> tuple[Outcome, ...]:
        """A collector's outcomes."""


class Recorder:
    """Takes in what a sampler publishes, each reading once. A series that is withdrawn is forgotten."""

    def __init__(self) -> None:
        self._tallies: dict[_Key, _Tally] = {}

    def note(self, store: Published) -> None:
        """Take in what is published now."""
        present: dict[_Key, _Tally] = {}
        for collector in store.collectors:
            for outcome in store.of(collector):
                at = outcome.finished_at.monotonic
                for sample in outcome.samples:
                    key = (sample.spec, sample.labels)
                    tally = self._tallies.get(key)
                    if tally is None:
                        tally = _Tally(at, sample.value)
                    elif tally.last_at < at:
                        tally.add(at, sample.value)
                    present[key] = tally
        self._tallies = present

    def evidence(self, seconds: float, wall: float) -> Evidence:
        """What was there at the last `note`."""
        tracks: dict[MetricSpec, list[Track]] = {}
        for (spec, values), tally in self._tallies.items():
            tracks.setdefault(spec, []).append(tally.track(dict(zip(spec.labels, values, strict=True))))
        return Evidence(MappingProxyType({spec: tuple(found) for spec, found in tracks.items()}), seconds, wall)


@dataclass(slots=True)
class _Tally:
    """A track in the making."""

    first_at: float
    first: float
    last_at: float = field(init=False)
    last: float = field(init=False)
    low: float = field(init=False)
    high: float = field(init=False)
    total: float = field(init=False)
    count: int = 1
    increase: float = 0.0

    def __post_init__(self) -> None:
        self.last_at = self.first_at
        self.last = self.low = self.high = self.total = self.first

    def add(self, at: float, value: float) -> None:
        self.increase += value - self.last if value >= self.last else value
        self.last_at, self.last = at, value
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.total += value
        self.count += 1

    def track(self, labels: dict[str, str]) -> Track:
        return Track(
            labels=MappingProxyType(labels),
            first=self.first,
            last=self.last,
            low=self.low,
            high=self.high,
            mean=self.total / self.count,
            increase=self.increase,
            seconds=self.last_at - self.first_at,
        )
