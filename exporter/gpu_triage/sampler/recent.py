"""The last half minute of what a sampler published: a few snapshots, from which rates can be told on request."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from gpu_triage.collectors import exporter
from gpu_triage.config import Config
from gpu_triage.machine import Moment
from gpu_triage.sampler.outcomes import HOST, Outcome, OutcomeStore

_WINDOW_SECONDS: Final = 30.0
"""As long as counters need for a rate that means something, and as short as an answer about now wants."""

_INTERVALS: Final = 6
"""Between the snapshots of a window; each should see a new round of the medium tier."""

_MOST_SNAPSHOTS: Final = _INTERVALS + 2
"""The oldest is older than the window, so that what is judged is never shorter."""

_OF_ONE_PROCESS: Final = "pid"
"""Label of the series whose past nobody asks for, and of which there may be thousands."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was published at one moment, to be read as the store itself is.

    Attributes:
        at: when.
        outcomes: by collector.
    """

    at: Moment
    outcomes: Mapping[str, tuple[Outcome, ...]]

    @property
    def collectors(self) -> tuple[str, ...]:
        """Names of all collectors, in the order to publish them."""
        return tuple(self.outcomes)

    def of(self, collector: str) -> tuple[Outcome, ...]:
        """A collector's outcomes."""
        return self.outcomes[collector]


class RecentOutcomes:
    """Keeps snapshots of a store. Outcomes are immutable, so one costs what is new in it.

    `note` runs on the sampler's thread, `snapshots` on any.

    Attributes:
        window_seconds: how far back they reach.
    """

    def __init__(self, store: OutcomeStore, config: Config) -> None:
        self.window_seconds = max(_WINDOW_SECONDS, _INTERVALS * config.sample_medium_seconds)
        self._store = store
        self._slack_seconds = config.sample_fast_seconds / 2
        self._apart_seconds = self.window_seconds / _INTERVALS
        self._kept: deque[Snapshot] = deque(maxlen=_MOST_SNAPSHOTS)
        self._published_at: Moment | None = None

    def note(self) -> None:
        """Take in a publication."""
        own = self._store.get(exporter.NAME, HOST)
        if own is None:
            return
        now = self._published_at = own.finished_at
        if self._kept and now.monotonic - self._kept[-1].at.monotonic < self._apart_seconds - self._slack_seconds:
            return
        while self._kept and self._is_past(self._kept[0], now):
            self._kept.popleft()
        before = self._kept[-1].outcomes if self._kept else {}
        self._kept.append(
            Snapshot(
                now, {name: _lasting(self._store.of(name), before.get(name, ())) for name in self._store.collectors}
            )
        )

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Oldest first; the last is what is published now, whole. None before the first publication."""
        published_at = self._published_at
        if published_at is None:
            return ()
        now = Snapshot(published_at, {name: self._store.of(name) for name in self._store.collectors})
        earlier = [each for each in tuple(self._kept) if not self._is_past(each, published_at)]
        while len(earlier) > 1 and published_at.monotonic - earlier[1].at.monotonic >= self.window_seconds:
            del earlier[0]
        return (*(each for each in earlier if each.at.monotonic < published_at.monotonic), now)

    def _is_past(self, snapshot: Snapshot, now: Moment) -> bool:
        """Whether a snapshot is too old to say anything of now, as after a host slept."""
        age_seconds = now.monotonic - snapshot.at.monotonic
        return age_seconds > self.window_seconds + self._apart_seconds + self._slack_seconds


def _lasting(outcomes: tuple[Outcome, ...], before: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
    """The outcomes without what is of no use once it is past, sharing with those before what did not change."""
    earlier = {outcome.subject: outcome for outcome in before}
    return tuple(_shared(outcome, earlier.get(outcome.subject)) for outcome in outcomes)


def _shared(outcome: Outcome, before: Outcome | None) -> Outcome:
    samples = tuple(sample for sample in outcome.samples if _OF_ONE_PROCESS not in sample.spec.labels)
    if before is not None:
        if before.finished_at == outcome.finished_at:
            return before
        # Most counters of errors stand still: seven copies of them would be most of what is kept.
        pairs = zip_longest(samples, before.samples)
        samples = tuple(old if old == new else new for new, old in pairs if new is not None)
    return replace(outcome, samples=samples, foreign=())
