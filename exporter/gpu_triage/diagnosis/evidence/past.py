"""What happened in the last minutes, hours and the last day, in little memory."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple, TypeVar

from gpu_triage.subjects.metric import MetricSpec

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MINUTES_SECONDS: Final = 900.0
"""As far back as most windows reach: a quarter of an hour."""
DAY_SECONDS: Final = 86_400.0

_RESOLUTIONS: Final = ((120.0, 1.0), (MINUTES_SECONDS, 5.0))
"""Up to an age in seconds, the seconds between two points that are kept; one a minute of what is older."""
_COARSEST_SECONDS: Final = 60.0
_SLACK_POINTS: Final = 64  # that are added before points are thinned again
_MOST_SERIES: Final = 1024  # of one kind, before the oldest is forgotten


class Amount(NamedTuple):
    """How much it was, and over how many seconds that was seen: fewer than asked for while less is known."""

    amount: float
    seconds: float

    @property
    def mean(self) -> float:
        """A second; 0 where nothing was seen."""
        return self.amount / self.seconds if self.seconds > 0 else 0.0


class Past:
    """A sum that grows, by a clock that runs while somebody looks.

    It keeps a point a second at most of the last two minutes, one in five seconds of a quarter of an hour, and one a
    minute of a day: 16 bytes each. While the sum grows evenly, two points are enough; between two it is taken to.

    Args:
        keep_seconds: how far back it reaches.
    """

    __slots__ = ("_clock", "_full", "_keep_seconds", "_rate", "_sums")

    def __init__(self, keep_seconds: float = MINUTES_SECONDS) -> None:
        self._keep_seconds = keep_seconds
        self._clock = array("d", (0.0,))
        self._sums = array("d", (0.0,))
        self._rate: float | None = None  # at which the sum grew between the last two points
        self._full = _SLACK_POINTS

    def __len__(self) -> int:
        """How many points it has."""
        return len(self._clock)

    def note(self, seconds: float, amount: float) -> None:
        """Add what happened in the seconds since the last note."""
        if seconds <= 0:
            return
        now, total, rate = self._clock[-1] + seconds, self._sums[-1] + amount, amount / seconds
        if rate == self._rate:
            self._clock[-1], self._sums[-1] = now, total
        else:
            self._clock.append(now)
            self._sums.append(total)
            self._rate = rate
            if len(self._clock) > self._full:
                self._thin()

    def over(self, seconds: float) -> Amount:
        """What happened in the last `seconds` in which somebody looked."""
        clock, sums = self._clock, self._sums
        now, start = clock[-1], max(clock[0], clock[-1] - seconds)
        after = bisect_right(clock, start)
        if after == len(clock):
            return Amount(0.0, 0.0)
        began, ended = clock[after - 1], clock[after]
        before = sums[after - 1] + (sums[after] - sums[after - 1]) * (start - began) / (ended - began)
        return Amount(sums[-1] - before, now - start)

    def _thin(self) -> None:
        """Keep the points that the resolutions ask for; the first of them is the last that is too old."""
        now, last = self._clock[-1], len(self._clock) - 1
        clock, sums = array("d"), array("d")
        for place, at in enumerate(self._clock):
            age = now - at
            if place < last and now - self._clock[place + 1] >= self._keep_seconds:
                continue
            apart = next((apart for reach, apart in _RESOLUTIONS if age <= reach), _COARSEST_SECONDS)
            if not clock or place == last or at - clock[-1] >= apart:
                clock.append(at)
                sums.append(self._sums[place])
        self._clock, self._sums, self._full = clock, sums, len(clock) + _SLACK_POINTS


class Counted(Past):
    """The past of a counter: by how much it rose, a reset included."""

    __slots__ = ("_at", "_value")

    def __init__(self, keep_seconds: float, at: float, value: float) -> None:
        super().__init__(keep_seconds)
        self._at, self._value = at, value

    def read(self, at: float, value: float) -> None:
        """Note a reading, at a monotonic second; one that was noted before changes nothing."""
        if at > self._at:
            self.note(at - self._at, value - self._value if value >= self._value else value)
            self._at, self._value = at, value


class Memory:
    """What is remembered of one host: how counters rose, and shares of time, by subject and name.

    A process that just started has a short one: what is asked of it tells over how many seconds it was seen.

    Args:
        pace: how many times faster a simulated scenario is played: each second that passes counts as so many.
    """

    def __init__(self, pace: int = 1) -> None:
        self.pace = pace
        self.seconds = 0.0  # over which somebody looked, as the scenario counts them
        self._noted_at: float | None = None
        self._counters: dict[MetricSpec, dict[tuple[str, ...], Counted]] = {}
        self._pasts: dict[tuple[str, Hashable], Past] = {}
        self._last: dict[tuple[str, Hashable], object] = {}
        self._seen: dict[Hashable, float] = {}

    def passed(self, now: float, seen_seconds: float, longest_gap_seconds: float) -> float:
        """Seconds of the scenario since the last look; 0 where they are too many to say anything.

        Args:
            now: monotonic second of this look.
            seen_seconds: how far back the first look reaches.
            longest_gap_seconds: what lies between two looks that are further apart was seen by nobody.
        """
        seconds = seen_seconds if self._noted_at is None else now - self._noted_at
        self._noted_at = now
        if seconds > longest_gap_seconds:
            return 0.0
        seconds *= self.pace
        self.seconds += seconds
        return seconds

    def count(self, spec: MetricSpec, labels: tuple[str, ...], points: tuple[float, ...], keep_seconds: float) -> None:
        """Note a counter's readings, times and values by turns as in `Points`."""
        counters = self._counters.setdefault(spec, {})
        past = counters.get(labels)
        if past is not None:
            past.read(points[-2] * self.pace, points[-1])
            return
        past = Counted(keep_seconds, points[0] * self.pace, points[1])
        for place in range(2, len(points), 2):
            past.read(points[place] * self.pace, points[place + 1])
        _put(counters, labels, past)

    def rise(self, spec: MetricSpec, labels: tuple[str, ...], seconds: float) -> Amount:
        """By how much a counter rose in the last `seconds`."""
        past = self._counters.get(spec, {}).get(labels)
        return Amount(0.0, 0.0) if past is None else past.over(seconds)

    def note(
        self, subject: str, name: Hashable, seconds: float, amount: float, keep_seconds: float = MINUTES_SECONDS
    ) -> None:
        """Add what happened to a subject in the seconds since the last look."""
        past = self._pasts.get((subject, name))
        if past is None:
            past = Past(keep_seconds)
            _put(self._pasts, (subject, name), past)
        past.note(seconds, amount)

    def over(self, subject: str, name: Hashable, seconds: float) -> Amount:
        """What happened to a GPU, by its key, or to the host (""), in the last `seconds` in which somebody looked."""
        past = self._pasts.get((subject, name))
        return Amount(0.0, 0.0) if past is None else past.over(seconds)

    def replace(self, subject: str, name: Hashable, value: object) -> object | None:
        """What was there at the last look, of which only the change says something; None at the first."""
        before = self._last.get((subject, name))
        _put(self._last, (subject, name), value)
        return before

    def last(self, subject: str, name: Hashable) -> object | None:
        """What was there at the last look."""
        return self._last.get((subject, name))

    def see(self, names: Iterable[Hashable], now: float) -> None:
        """Note who is there, at a monotonic second."""
        for name in names:
            self._seen.pop(name, None)
            _put(self._seen, name, now)

    def seen_at(self, name: Hashable) -> float | None:
        """The monotonic second at which somebody was there last; None for never, or long ago."""
        return self._seen.get(name)


def _put(kept: dict[K, V], key: K, value: V) -> None:
    """Keep one more, and forget the oldest of too many."""
    if key not in kept and len(kept) >= _MOST_SERIES:
        del kept[next(iter(kept))]
    kept[key] = value
