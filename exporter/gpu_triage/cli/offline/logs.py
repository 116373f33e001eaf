"""Merges the kernel logs of one host: each event once, with its time on the host's clock if it can be determined."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpu_triage.cli.offline.log_lines import LogTime, log_time, with_year, written
from gpu_triage.cli.offline.log_sections import EventKey, EventKind, KeptEvent, LogSection, Tally, cause_of
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.read.host.driver_messages import LOADING_SECONDS
from gpu_triage.read.xid.xid_events import OFF_THE_BUS
from gpu_triage.read.xid.xid_ledger import FATAL_LABELS, XidName

_END: Final = "the end of the log"
_SAME_SECONDS: Final = 3.0
"""Timestamps of one event in two logs differ by at most this: syslog has whole seconds and lags behind the kernel."""
_MOST_KNOWN: Final = 512
_YEAR: Final = slice(5, None)


class LogEvent(NamedTuple):
    """One event."""

    wall: float | None  # time on the host's wall clock; an estimate unless `exact`, None if unknown
    exact: bool  # whether the log contains the time
    seconds: float | None  # since boot; None if the log doesn't contain it
    text: str  # the log message
    loads_after: int = 0  # number of driver loads that the same log records after it
    lacks_year: bool = False  # whether the year is known only from the file's modification time
    place: int = 0  # line number in the log, which orders events within one second


@dataclass(slots=True)
class Events:
    """How many events there are of one group, and those that were kept, oldest first."""

    count: int = 0
    known: list[LogEvent] = field(default_factory=list)

    @property
    def last(self) -> LogEvent | None:
        """The latest event; one without a time takes precedence, since it may be the most recent."""
        return max(self.known, key=lambda each: (each.wall is None, each.wall or 0.0, each.place), default=None)


class LogReading(NamedTuple):
    """The merged content of the logs."""

    reference: float  # reference time for ages, in the host's wall clock
    until: str  # description of the reference time, for display
    events: Mapping[EventKey, Events]  # by group
    ports: Mapping[str, str]  # the port above a device, by the device's bus id
    gpus: frozenset[str] = frozenset()  # addresses that the logs identify as GPUs
    loaded_at: tuple[float, ...] = ()  # wall times of driver loads, where a log has the exact time
    lines: int = 0  # number of lines read

    def of_kind(self, kind: EventKind) -> Iterator[tuple[EventKey, Events]]:
        return ((what, events) for what, events in self.events.items() if what.kind is kind)

    def is_over(self, event: LogEvent, *, at_probe: bool = False) -> bool:
        """Whether the driver was loaded after the event; `at_probe`: the event itself happens during a driver load."""
        if event.loads_after > (1 if at_probe else 0):
            return True
        least = LOADING_SECONDS if at_probe else 0.0
        return event.wall is not None and any(wall > event.wall + least for wall in self.loaded_at)

    def is_within(self, event: LogEvent, seconds: float) -> bool:
        """Whether the event is no older than this; one at an unknown time may be recent."""
        return event.wall is None or self.reference - event.wall <= seconds

    def when(self, event: LogEvent | None) -> str:
        """When an event happened, as display text."""
        if event is None:
            return "at an unknown time"
        after_boot = "" if event.seconds is None else f"{event.seconds:.0f} s after the boot"
        if event.wall is None:
            return after_boot or "at a time that the log does not tell"
        age = length_of_time(max(0.0, self.reference - event.wall))
        if event.exact:
            at = written(event.wall)[_YEAR] if event.lacks_year else written(event.wall)
            return f"{at}, {age} before {self.until}"
        # The time between the log's last line and the report is unknown.
        more = " or more" if self.until != _END else ""
        return f"{after_boot}, {age}{more} before {self.until}"

    def count_and_last(self, count: int, events: Events) -> str:
        """The number of events and the time of the latest."""
        return f"{'once' if count == 1 else f'{count} times, last'} {self.when(events.last)}"


def merge(sections: Iterable[LogSection], reference: float | None, modified_at: float | None) -> LogReading:
    """Merge the logs of one host.

    Args:
        sections: in any order; several may contain the same messages.
        reference: when the report containing the logs was made; None if unknown.
        modified_at: modification time of the file, to infer the year missing from syslog; None if unknown.
    """
    sections = list(sections)
    around = reference if reference is not None else modified_at
    loads = _loads(sections, around)
    ends = [wall for section in sections if (wall := _wall(section.last_time(), around)) is not None]
    # A log may be newer than the report it is attached to.
    is_report = reference is not None and reference >= max(ends, default=reference)
    now = reference if reference is not None and is_report else max(ends, default=modified_at or 0.0)
    events: dict[EventKey, Events] = {}
    ports: dict[str, str] = {}
    for section in sections:
        ports |= section.ports
        clock = _Clock(_booted_at(section, around, loads), section.last_time().seconds, now, around, reference is None)
        for what, tally in _tallies(section):
            happened = [clock.happened(kept, section.load_count) for kept in tally.kept]
            _add(events.setdefault(what, Events()), tally, happened)
    loaded = events.get(EventKey(EventKind.LOADED), Events()).known
    return LogReading(
        now,
        "the report" if is_report else _END,
        events,
        ports,
        gpus=frozenset().union(*(section.gpus for section in sections)),
        loaded_at=tuple(each.wall for each in loaded if each.exact and each.wall is not None),
        lines=sum(section.seen for section in sections),
    )


def _tallies(section: LogSection) -> Iterator[tuple[EventKey, Tally]]:
    return ((what, tally) for of_kind in section.tallies.values() for what, tally in of_kind.items())


def _wall(time: LogTime, around: float | None) -> float | None:
    if time.wall is None or not time.lacks_year:
        return time.wall
    return None if around is None else with_year(time.wall, around)


def _loads(sections: Iterable[LogSection], around: float | None) -> dict[str, float]:
    """Wall time of each driver load, by message text; the latest one if a text repeats."""
    found: dict[str, float] = {}
    for section in sections:
        for text, time in section.loads.items():
            wall = _wall(time, around)
            if wall is not None:
                found[text] = max(wall, found.get(text, wall))
    return found


def _booted_at(section: LogSection, around: float | None, loads: Mapping[str, float]) -> float | None:
    """Wall time of the boot from which a log counts its seconds; None if it can't be determined."""
    both = section.clocks()
    if both is not None and both.seconds is not None:
        wall = _wall(both, around)
        return None if wall is None else wall - both.seconds
    for text, time in section.loads.items():
        if time.seconds is not None and text in loads:
            return loads[text] - time.seconds
    return None


class _Clock(NamedTuple):
    """Converts the timestamps of one log to the host's wall clock."""

    boot: float | None  # wall time of the boot from which the log counts its seconds; None if unknown
    end: float | None  # the log's last timestamp, in seconds since boot; None if it has none
    now: float  # reference time for ages
    around: float | None  # a time used to infer missing years; None if unknown
    guesses_year: bool  # whether `around` comes from outside the files' content

    def happened(self, kept: KeptEvent, loads: int) -> LogEvent:
        """Convert one event; `loads` is the total number of driver loads in the log."""
        time, text, after = log_time(kept.prefix), kept.text, loads - kept.loads
        wall = _wall(time, self.around)
        if wall is not None or time.seconds is None:
            lacks_year = time.lacks_year and self.guesses_year
            return LogEvent(wall, wall is not None, time.seconds, text, after, lacks_year, kept.place)
        # The time between the end of the log and the report is unknown, so this is the latest possible time.
        latest = None if self.end is None else self.now - (self.end - time.seconds)
        wall = latest if self.boot is None else self.boot + time.seconds
        return LogEvent(wall, self.boot is not None, time.seconds, text, after, place=kept.place)


def _add(events: Events, tally: Tally, happened: list[LogEvent]) -> None:
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
    # Events over the limit aren't kept, so they can't be deduplicated: assume that the logs overlap.
    dropped = tally.count - len(happened)
    events.count = max(len(events.known) + dropped, events.count)


def _is_same(known: LogEvent, other: LogEvent) -> bool:
    if known.exact and other.exact:
        return abs((known.wall or 0.0) - (other.wall or 0.0)) <= _SAME_SECONDS
    return True


_RECOVERY: Final = "154"
_ACTION: Final = re.compile(r"GPU recovery action changed from 0x\w{1,4} \(.{1,40}?\) to 0x\w{1,4} \((.{1,40}?)\)")
_NO_ACTION: Final = "None"


class LoggedXids(NamedTuple):
    """All events of one Xid on one GPU."""

    what: EventKey  # the event group
    name: XidName  # the Xid
    text: str  # text to append to the time: the Xid's cause, or the recovery action requested by the driver; "" if none
    events: Events  # the occurrences


def logged_xids(log: LogReading) -> Iterator[LoggedXids]:
    """The Xids that were logged, and those only named as the cause of another Xid."""
    logged = {(what.address, what.code) for what, _ in log.of_kind(EventKind.XID)}
    for what, events in log.of_kind(EventKind.XID):
        if not what.code and (what.address, str(OFF_THE_BUS)) in logged:
            continue  # the "fallen off the bus" message that accompanies this GPU's Xid
        action = _action(what, events)
        if action == _NO_ACTION:
            continue  # the driver withdrew its request
        cause = "" if events.last is None else cause_of(events.last.text)
        words = f"; the driver asks for: {action}" if action else f"; caused by Xid {cause}" if cause else ""
        yield LoggedXids(what, XidName(what.code or str(OFF_THE_BUS), FATAL_LABELS[what.fatal]), words, events)
    for what, events in log.of_kind(EventKind.XID_CAUSE):
        if (what.address, what.code) not in logged:
            yield LoggedXids(what, XidName(what.code), "; named as the cause of another Xid", events)


def _action(what: EventKey, events: Events) -> str:
    last = events.last if what.code == _RECOVERY else None
    found = None if last is None else _ACTION.search(last.text)
    return "" if found is None else found[1]
