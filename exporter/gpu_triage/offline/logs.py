"""Several kernel logs of one host as one: each event once, and its time on the host's clock as far as anybody knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpu_triage.diagnosis.evidence.host import length_of_time
from gpu_triage.host.driver_messages import LOADING_SECONDS
from gpu_triage.offline.events import Kind, What
from gpu_triage.offline.kernel import Kept, LogSection, Tally
from gpu_triage.offline.times import LogTime, log_time, with_year, written

_END: Final = "the end of the log"
_SAME_SECONDS: Final = 3.0
"""Two logs' times of one event lie no further apart: syslog writes whole seconds, and some time after the kernel."""
_MOST_KNOWN: Final = 512
_YEAR: Final = slice(5, None)


class Happened(NamedTuple):
    """One event.

    Attributes:
        wall: when, on the host's clock face; an estimate unless `exact`, None where nobody knows.
        exact: whether the log tells it.
        seconds: since boot; None where the log does not tell.
        text: what the log says.
        loads_after: how often the same log says after it that the driver was loaded.
        lacks_year: whether only the file's own time tells the year.
        place: the number of its line in the log, which tells the order of events of one second.
    """

    wall: float | None
    exact: bool
    seconds: float | None
    text: str
    loads_after: int = 0
    lacks_year: bool = False
    place: int = 0


@dataclass(slots=True)
class Events:
    """Events of one sort.

    Attributes:
        count: how many.
        known: those of which more is known, oldest first.
    """

    count: int = 0
    known: list[Happened] = field(default_factory=list)

    @property
    def last(self) -> Happened | None:
        """The latest of them; one without a time before all others, for it may be of any."""
        return max(self.known, key=lambda each: (each.wall is None, each.wall or 0.0, each.place), default=None)


class LogReading(NamedTuple):
    """What the logs say.

    Attributes:
        reference: the moment that ages are told from, on the host's clock face.
        until: what that moment is, for people.
        events: by sort.
        ports: the port above a device, by the device's bus id.
        gpus: addresses that the logs say are those of GPUs.
        loaded_at: wall times at which the driver was loaded, as far as a log tells them exactly.
        lines: how many there were.
    """

    reference: float
    until: str
    events: Mapping[What, Events]
    ports: Mapping[str, str]
    gpus: frozenset[str] = frozenset()
    loaded_at: tuple[float, ...] = ()
    lines: int = 0

    def of_kind(self, kind: Kind) -> Iterator[tuple[What, Events]]:
        """The events of a kind."""
        return ((what, events) for what, events in self.events.items() if what.kind is kind)

    def is_over(self, event: Happened, *, at_probe: bool = False) -> bool:
        """Whether the driver was loaded after an event; `at_probe`: the event is itself of a moment when it was."""
        if event.loads_after > (1 if at_probe else 0):
            return True
        least = LOADING_SECONDS if at_probe else 0.0
        return event.wall is not None and any(wall > event.wall + least for wall in self.loaded_at)


def merge(sections: Iterable[LogSection], reference: float | None, modified_at: float | None) -> LogReading:
    """One reading of all logs.

    Args:
        sections: of one host, in any order; the same messages may be in several of them.
        reference: when the report was made that holds them; None where that is unknown.
        modified_at: when the file was last written, for the year that syslog leaves out; None where unknown.
    """
    sections = list(sections)
    around = reference if reference is not None else modified_at
    loads = _loads(sections, around)
    ends = [wall for section in sections if (wall := _wall(section.last_time(), around)) is not None]
    # A log may have been taken after the report it is attached to.
    is_report = reference is not None and reference >= max(ends, default=reference)
    now = reference if reference is not None and is_report else max(ends, default=modified_at or 0.0)
    events: dict[What, Events] = {}
    ports: dict[str, str] = {}
    for section in sections:
        ports |= section.ports
        clock = _Clock(_booted_at(section, around, loads), section.last_time().seconds, now, around, reference is None)
        for what, tally in _tallies(section):
            happened = [clock.happened(kept, section.load_count) for kept in tally.kept]
            _add(events.setdefault(what, Events()), tally, happened)
    loaded = events.get(What(Kind.LOADED), Events()).known
    return LogReading(
        now,
        "the report" if is_report else _END,
        events,
        ports,
        gpus=frozenset().union(*(section.gpus for section in sections)),
        loaded_at=tuple(each.wall for each in loaded if each.exact and each.wall is not None),
        lines=sum(section.seen for section in sections),
    )


def _tallies(section: LogSection) -> Iterator[tuple[What, Tally]]:
    return ((what, tally) for of_kind in section.tallies.values() for what, tally in of_kind.items())


def _wall(time: LogTime, around: float | None) -> float | None:
    if time.wall is None or not time.lacks_year:
        return time.wall
    return None if around is None else with_year(time.wall, around)


def _loads(sections: Iterable[LogSection], around: float | None) -> dict[str, float]:
    """Wall times at which the driver was loaded, by its message; the last one of each."""
    found: dict[str, float] = {}
    for section in sections:
        for text, time in section.loads.items():
            wall = _wall(time, around)
            if wall is not None:
                found[text] = max(wall, found.get(text, wall))
    return found


def _booted_at(section: LogSection, around: float | None, loads: Mapping[str, float]) -> float | None:
    """The wall time of the boot from which a log counts its seconds; None where nothing tells."""
    both = section.clocks()
    if both is not None and both.seconds is not None:
        wall = _wall(both, around)
        return None if wall is None else wall - both.seconds
    for text, time in section.loads.items():
        if time.seconds is not None and text in loads:
            return loads[text] - time.seconds
    return None


class _Clock(NamedTuple):
    """How the times of one log become those of the host.

    Attributes:
        boot: wall time from which it counts its seconds; None where nothing tells.
        end: its last time, in seconds since the boot; None where it does not tell.
        now: the moment that ages are told from.
        around: a time in the year of what lacks one; None where unknown.
        guesses_year: whether `around` is not a time that the file itself contains.
    """

    boot: float | None
    end: float | None
    now: float
    around: float | None
    guesses_year: bool

    def happened(self, kept: Kept, loads: int) -> Happened:
        """An event of the log, which says so often in all that the driver was loaded."""
        time, text, after = log_time(kept.prefix), kept.text, loads - kept.loads
        wall = _wall(time, self.around)
        if wall is not None or time.seconds is None:
            lacks_year = time.lacks_year and self.guesses_year
            return Happened(wall, wall is not None, time.seconds, text, after, lacks_year, kept.place)
        # The log ends before the report was made, nobody knows for how long: so it is as old as this at least.
        latest = None if self.end is None else self.now - (self.end - time.seconds)
        wall = latest if self.boot is None else self.boot + time.seconds
        return Happened(wall, self.boot is not None, time.seconds, text, after, place=kept.place)


def _add(events: Events, tally: Tally, happened: list[Happened]) -> None:
    """Take in one log's events of a sort: those that are known already stay once."""
    unmatched: dict[str, list[int]] = defaultdict(list)
    for place, known in enumerate(events.known):
        unmatched[known.text].append(place)
    new = []
    for each in happened:
        places = unmatched[each.text]
        same = next((place for place in places if _is_same(events.known[place], each)), None)
        if same is None:
            new.append(each)
            continue
        places.remove(same)
        known = events.known[same]
        better = each if each.exact and not known.exact else known
        events.known[same] = better._replace(loads_after=max(known.loads_after, each.loads_after))
    events.known = [*events.known, *new][-_MOST_KNOWN:]
    # Those beyond what is kept of a log: none of another log's, unless that has more of them.
    dropped = tally.count - len(happened)
    events.count = max(len(events.known) + dropped, events.count)


def _is_same(known: Happened, other: Happened) -> bool:
    if known.exact and other.exact:
        return abs((known.wall or 0.0) - (other.wall or 0.0)) <= _SAME_SECONDS
    return True


def when(event: Happened, log: LogReading) -> str:
    """When an event happened, for people."""
    after_boot = "" if event.seconds is None else f"{event.seconds:.0f} s after the boot"
    if event.wall is None:
        return after_boot or "at a time that the log does not tell"
    age = length_of_time(max(0.0, log.reference - event.wall))
    if event.exact:
        at = written(event.wall)[_YEAR] if event.lacks_year else written(event.wall)
        return f"{at}, {age} before {log.until}"
    # How long the report was made after the log's last line, nobody knows.
    more = " or more" if log.until != _END else ""
    return f"{after_boot}, {age}{more} before {log.until}"
