"""Several kernel logs of one host as one: each event once, and its time on the host's clock as far as anybody knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpu_triage.diagnosis.evidence.host import length_of_time
from gpu_triage.offline.kernel import LogSection, Tally, What
from gpu_triage.offline.times import LogTime, log_time, with_year, written

_END: Final = "the end of the log"
_SAME_SECONDS: Final = 3.0
"""Two logs' times of one event lie no further apart: syslog writes whole seconds, and some time after the kernel."""


class Happened(NamedTuple):
    """One event.

    Attributes:
        wall: when, on the host's clock face; an estimate unless `exact`, None where nobody knows.
        exact: whether the log tells it.
        seconds: since boot; None where the log does not tell.
        text: what the log says.
    """

    wall: float | None
    exact: bool
    seconds: float | None
    text: str


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
        return max(self.known, key=lambda each: (each.wall is None, each.wall or 0.0), default=None)


class LogReading(NamedTuple):
    """What the logs say.

    Attributes:
        reference: the moment that ages are told from, on the host's clock face.
        until: what that moment is, for people.
        events: by sort.
        ports: the port above a GPU, by the GPU's bus id.
    """

    reference: float
    until: str
    events: Mapping[What, Events]
    ports: Mapping[str, str]


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
        clock = _Clock(_booted_at(section, around, loads), section.last_time().seconds, now, around)
        for what, tally in section.tallies.items():
            happened = [clock.happened(log_time(prefix), text) for prefix, text in tally.kept]
            _add(events.setdefault(what, Events()), tally, happened)
    return LogReading(now, "the report" if is_report else _END, events, ports)


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
    """

    boot: float | None
    end: float | None
    now: float
    around: float | None

    def happened(self, time: LogTime, text: str) -> Happened:
        """An event of the log."""
        wall = _wall(time, self.around)
        if wall is not None or time.seconds is None:
            return Happened(wall, wall is not None, time.seconds, text)
        if self.boot is not None:
            return Happened(self.boot + time.seconds, exact=True, seconds=time.seconds, text=text)
        # The log ends before the report was made, nobody knows for how long: so it is as old as this at least.
        latest = None if self.end is None else self.now - (self.end - time.seconds)
        return Happened(latest, exact=False, seconds=time.seconds, text=text)


def _add(events: Events, tally: Tally, happened: list[Happened]) -> None:
    """Take in one log's events of a sort: those that are known already stay once."""
    unmatched = list(events.known)
    new = []
    for each in happened:
        same = next((known for known in unmatched if _is_same(known, each)), None)
        if same is None:
            new.append(each)
            continue
        unmatched.remove(same)
        if each.exact and not same.exact:
            events.known[events.known.index(same)] = each
    events.known = [*events.known, *new][-512:]
    # Those beyond what is kept of a log: none of another log's, unless that has more of them.
    dropped = tally.count - len(happened)
    events.count = max(len(events.known) + dropped, events.count)


def _is_same(known: Happened, other: Happened) -> bool:
    if known.text != other.text:
        return False
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
        return f"{written(event.wall)}, {age} before {log.until}"
    # How long the report was made after the log's last line, nobody knows.
    more = " or more" if log.until != _END else ""
    return f"{after_boot}, {age}{more} before {log.until}"
