"""Compact history of the last minutes, hours and day."""

from array import array
from bisect import bisect_right
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from gpu_triage.documents.pcie_values import Width
from gpu_triage.judge.evidence import thresholds
from gpu_triage.read.incidents.decisions import Decisions
from gpu_triage.read.incidents.ledger import Name
from gpu_triage.read.metrics.metric import MetricSpec

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MINUTES_SECONDS: Final = 900.0
"""A quarter of an hour, the length of most windows."""
DAY_SECONDS: Final = 86_400.0

_RESOLUTIONS: Final = ((120.0, 1.0), (MINUTES_SECONDS, 5.0))
"""(Age limit, spacing of points), in seconds. Older points are kept one per minute."""
_COARSEST_SECONDS: Final = 60.0
MOST_LINKS: Final = 256
"""The most PCIe links kept; the ones seen first are dropped."""
_SLACK_POINTS: Final = 64  # points added before the history is thinned again
_MOST_SERIES: Final = 1024  # per kind, before the oldest is dropped


class Amount(NamedTuple):
    """An amount and the seconds over which it was observed: fewer than requested if less history exists."""

    amount: float
    seconds: float

    @property
    def mean(self) -> float:
        """Amount per second; 0 if nothing was observed."""
        return self.amount / self.seconds if self.seconds > 0 else 0.0


class Past:
    """A growing sum, on a clock that advances only while it is observed.

    It keeps at most one point per second for the last two minutes, one per five seconds for a quarter of an hour, and
    one per minute for a day, at 16 bytes each. Steady growth needs only two points; values between are interpolated.
    """

    __slots__ = ("_clock", "_full", "_keep_seconds", "_rate", "_sums")

    def __init__(self, keep_seconds: float = MINUTES_SECONDS) -> None:
        self._keep_seconds = keep_seconds
        self._clock = array("d", (0.0,))
        self._sums = array("d", (0.0,))
        self._rate: float | None = None  # growth per second between the last two points
        self._full = _SLACK_POINTS

    def note(self, seconds: float, amount: float) -> None:
        """Add the amount observed in the `seconds` since the last note."""
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
        """Return the amount over the last `seconds` of observed time."""
        clock, sums = self._clock, self._sums
        now, start = clock[-1], max(clock[0], clock[-1] - seconds)
        after = bisect_right(clock, start)
        if after == len(clock):
            return Amount(0.0, 0.0)
        began, ended = clock[after - 1], clock[after]
        before = sums[after - 1] + (sums[after] - sums[after - 1]) * (start - began) / (ended - began)
        return Amount(sums[-1] - before, now - start)

    def shortfall(self, now: float | None) -> float | None:
        """Return how far a value is below its usual mean, as a share of that; None if either is unknown.

        What is usual was observed for half an hour, or part of it, before the last minutes: now may have begun in them.
        """
        past, lately = self.over(thresholds.USUAL_SECONDS), self.over(thresholds.LATELY_SECONDS)
        seconds, amount = past.seconds - lately.seconds, past.amount - lately.amount
        if now is None or seconds < thresholds.KNOWN_SECONDS or amount <= 0:
            return None
        return max(0.0, 1.0 - now * seconds / amount)

    def _thin(self) -> None:
        """Thin points to the resolutions; the first one kept is the last that is too old."""
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
    """History of a counter: its increase, across resets."""

    __slots__ = ("_at", "_value")

    def __init__(self, keep_seconds: float, at: float, value: float) -> None:
        super().__init__(keep_seconds)
        self._at, self._value = at, value

    def read(self, at: float, value: float) -> None:
        """Record a reading at a monotonic second; a repeated or older one is ignored."""
        if at > self._at:
            self.note(at - self._at, value - self._value if value >= self._value else value)
            self._at, self._value = at, value


@dataclass(frozen=True, slots=True)
class WidestLink:
    """A GPU in a slot, and its most lanes."""

    gpu: Name  # the GPU's key
    pci_bus_id: Name  # "" if unknown
    lanes: Width


class WidestLinks:
    """The most lanes that each PCIe link of a host has had since boot; a link that has fewer now has lost them."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str], int] = {}

    @property
    def all(self) -> tuple[WidestLink, ...]:
        return tuple(WidestLink(*key, lanes) for key, lanes in self._lanes.items())

    def of(self, gpu: str, pci_bus_id: str) -> int:
        """Return the most lanes seen; 0 if never seen."""
        return self._lanes.get((gpu, pci_bus_id), 0)

    def see(self, links: Iterable[WidestLink]) -> None:
        """Note links as they are now, or as they were earlier in this boot."""
        for link in links:
            if link.lanes > self.of(link.gpu, link.pci_bus_id):
                self._lanes[link.gpu, link.pci_bus_id] = link.lanes
        for surplus in tuple(self._lanes)[:-MOST_LINKS]:
            del self._lanes[surplus]


class Memory:
    """History of a host by subject and name: counter increases and shares, with the seconds that were observed."""

    def __init__(self) -> None:
        self.seconds = 0.0  # total time observed
        self.widest = WidestLinks()
        self.decisions: Decisions | None = None  # of operators, as they are now; None if they could not be read
        self._noted_at: float | None = None
        self._counters: dict[MetricSpec, dict[tuple[str, ...], Counted]] = {}
        self._pasts: dict[tuple[str, Hashable], Past] = {}
        self._last: dict[tuple[str, Hashable], object] = {}
        self._seen: dict[Hashable, float] = {}

    def passed(self, now: float, seen_seconds: float, longest_gap_seconds: float) -> float:
        """Return the seconds since the last call, or `seen_seconds` at the first; 0 after a longer gap."""
        seconds = seen_seconds if self._noted_at is None else now - self._noted_at
        self._noted_at = now
        if seconds > longest_gap_seconds:
            return 0.0
        self.seconds += seconds
        return seconds

    def count(self, spec: MetricSpec, labels: tuple[str, ...], points: tuple[float, ...], keep_seconds: float) -> None:
        """Record a counter's readings: alternating times and values, as in `Points`."""
        counters = self._counters.setdefault(spec, {})
        past = counters.get(labels)
        if past is not None:
            past.read(points[-2], points[-1])
            return
        past = Counted(keep_seconds, points[0], points[1])
        for place in range(2, len(points), 2):
            past.read(points[place], points[place + 1])
        _put(counters, labels, past)

    def rise(self, spec: MetricSpec, labels: tuple[str, ...], seconds: float) -> Amount:
        """Return a counter's increase over the last `seconds`."""
        past = self._counters.get(spec, {}).get(labels)
        return Amount(0.0, 0.0) if past is None else past.over(seconds)

    def note(
        self, subject: str, name: Hashable, seconds: float, amount: float, keep_seconds: float = MINUTES_SECONDS
    ) -> None:
        """Add the amount observed for a subject in the `seconds` since the last note."""
        past = self._pasts.get((subject, name))
        if past is None:
            past = Past(keep_seconds)
            _put(self._pasts, (subject, name), past)
        past.note(seconds, amount)

    def over(self, subject: str, name: Hashable, seconds: float) -> Amount:
        """Return the amount for a GPU (by its key) or the host ("") over the last `seconds` of observed time."""
        return self.past(subject, name).over(seconds)

    def past(self, subject: str, name: Hashable) -> Past:
        """Return the history of an amount; if nothing was noted, an empty one that is not stored."""
        return self._pasts.get((subject, name)) or Past()

    def replace(self, subject: str, name: Hashable, value: object) -> object | None:
        """Store a value of which only changes matter, and return the previous one; None the first time."""
        before = self._last.get((subject, name))
        _put(self._last, (subject, name), value)
        return before

    def last(self, subject: str, name: Hashable) -> object | None:
        """Return the value last stored with `replace`."""
        return self._last.get((subject, name))

    def see(self, names: Iterable[Hashable], now: float) -> None:
        """Record that these names are present at a monotonic second."""
        for name in names:
            self._seen.pop(name, None)
            _put(self._seen, name, now)

    def seen_at(self, name: Hashable) -> float | None:
        """Return the monotonic second at which the name was last present; None if never, or already dropped."""
        return self._seen.get(name)


def _put(kept: dict[K, V], key: K, value: V) -> None:
    """Store an entry; when the store is full, drop the oldest."""
    if key not in kept and len(kept) >= _MOST_SERIES:
        del kept[next(iter(kept))]
    kept[key] = value
