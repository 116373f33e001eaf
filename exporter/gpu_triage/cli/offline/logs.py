"""The events of all kernel logs of a host, each once, with its time on the host's clock if known; in bounded memory."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final, NamedTuple

from gpu_triage.cli.offline import log_lines
from gpu_triage.cli.offline.log_lines import NO_TIME, KernelMessage, LogTime, log_time, written
from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.read.host import driver_messages, kernel_messages
from gpu_triage.read.host.kernel_messages import ProblemKind
from gpu_triage.read.xid.xid_events import is_driver_loaded, parse_found, parse_xid

_ADDRESS: Final = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_SXID: Final = re.compile(
    rf"nvidia-nvswitch\d*: SXid \(PCI:{_ADDRESS}\): (\d{{1,6}})(?:, (Fatal|Non-fatal))?", re.IGNORECASE
)
_NOUVEAU: Final = re.compile(rf"nouveau {_ADDRESS}: ")
_NOWHERE: Final = re.compile(r"NVRM: Xid \([^()]{0,40}\): (\d{1,5})\b")
"""An Xid of a GPU that is not legible, as where someone left its address out."""
_CAUSE: Final = re.compile(r" caused by previous Xid (\d{1,5})$")

EventKind = Enum(
    "EventKind",
    "XID XID_CAUSE SXID DRIVER NOUVEAU AER AER_RECEIVED OUT_OF_MEMORY OUT_OF_MEMORY_CALL HOST HOST_OVER OFF_THE_BUS "
    "LOADED FOUND",
)


class EventKey(NamedTuple):
    kind: EventKind  # type of the event
    # bus id of the GPU, or of the device that reported the error; for host problems, the affected process, device or
    # server; "" if unknown
    address: str = ""
    # the kind of driver or host problem; the Xid or SXid as text ("" for a GPU that fell off the bus without one); the
    # Xid named as the cause of another; a PCIe error severity; or ""
    code: str = ""
    fatal: bool | None = None  # as XidReport; None for everything else


LINK_LOST: Final = "link lost"  # in place of a severity: the link below a port is gone
_FROM_FIRMWARE: Final = (ProblemKind.HARDWARE_CORRECTED, ProblemKind.HARDWARE_UNCORRECTED)
_LOADED: Final = EventKey(EventKind.LOADED)
_BOOTED: Final = EventKey(EventKind.LOADED, code="boot")
_BOOT: Final = re.compile(r"(.{0,80}(?:kernel: |\] )(?=L)|(?=-))(Linux version \d|-- (?:Reboot|Boot [0-9a-f]{32}) --)")


class ParsedEvent(NamedTuple):
    """An event parsed from a message; `port` as in LogSection.ports, `gpu` as in LogSection.gpus, "" if none."""

    what: EventKey
    port: str = ""
    gpu: str = ""


@lru_cache(maxsize=1024)
def _address(text: str) -> str:
    return normalize_bus_id(text if "." in text else f"{text}.0")


@lru_cache(maxsize=1024)
def read_message(text: str) -> tuple[ParsedEvent, ...]:
    """Parse the events in a kernel message. Cached, because the same messages come in floods."""
    return tuple(_found_in(text))


def _found_in(text: str) -> Iterator[ParsedEvent]:
    if (failure := driver_messages.parse_driver_message(text)) is not None:
        # Messages identify a GPU by its bus address or by its driver index, never by both; others are about a detail.
        gpu = failure.address or ("" if failure.detail.startswith(failure.subject) else failure.subject)
        yield ParsedEvent(EventKey(EventKind.DRIVER, gpu, failure.trouble.value), gpu=failure.address)
    elif text.startswith("NVRM: "):
        yield from _read_driver(text)
    elif text.startswith(("-- ", "Linux version ")):
        yield ParsedEvent(_BOOTED)
    elif (sxid := _SXID.match(text)) is not None:
        fatal = None if sxid[3] is None else sxid[3].lower() == "fatal"
        yield ParsedEvent(EventKey(EventKind.SXID, _address(sxid[1]), sxid[2], fatal))
    elif (nouveau := _NOUVEAU.match(text)) is not None:
        yield ParsedEvent(EventKey(EventKind.NOUVEAU, _address(nouveau[1])), gpu=_address(nouveau[1]))
    elif (address := parse_found(text)) is not None or (address := kernel_messages.parse_failing_gpu(text)) is not None:
        yield ParsedEvent(EventKey(EventKind.FOUND, address), gpu=address)
    elif (error := kernel_messages.parse_pcie_error(text)) is not None:
        kind = EventKind.AER_RECEIVED if error.port else EventKind.AER
        gpu = error.address if error.driver == "nvidia" else ""
        yield ParsedEvent(EventKey(kind, error.address, error.severity), error.port, gpu)
    elif (port := kernel_messages.parse_link_lost(text)) is not None:
        yield ParsedEvent(EventKey(EventKind.AER, port, LINK_LOST))
    else:
        yield from _of_host(text)


def _of_host(text: str) -> Iterator[ParsedEvent]:
    said = kernel_messages.parse_host_message(text)
    over = kernel_messages.parse_trouble_over(text)
    if said is not None and said.trouble is ProblemKind.OOM_KILL:
        yield ParsedEvent(EventKey(EventKind.OUT_OF_MEMORY, "", said.subject))
    elif said is not None:
        gpu = said.subject if "vendor_id: 0x10de" in text or text.startswith(("nvidia ", "nouveau ")) else ""
        yield ParsedEvent(EventKey(EventKind.HOST, said.subject, said.trouble.value), gpu=gpu)
        if said.trouble in _FROM_FIRMWARE and ":" in said.subject:
            severity = "correctable" if "severity: corrected" in text else "fatal" if ": fatal" in text else "nonfatal"
            yield ParsedEvent(EventKey(EventKind.AER, said.subject, severity))
    elif (process := kernel_messages.parse_oom_call(text)) is not None:
        yield ParsedEvent(EventKey(EventKind.OUT_OF_MEMORY_CALL, "", process))
    elif over is not None:
        yield ParsedEvent(EventKey(EventKind.HOST_OVER, over.subject, over.trouble.value))


def _read_driver(text: str) -> Iterator[ParsedEvent]:
    if (xid := parse_xid(text)) is not None:
        code = "" if xid.code is None else str(xid.code)
        yield ParsedEvent(EventKey(EventKind.XID, xid.gpu, code, xid.fatal), gpu=xid.gpu)
        if cause := cause_of(text):
            yield ParsedEvent(EventKey(EventKind.XID_CAUSE, xid.gpu, cause))
    elif (nowhere := _NOWHERE.match(text)) is not None:
        yield ParsedEvent(EventKey(EventKind.XID, "", nowhere[1]))
    elif is_driver_loaded(text):
        yield ParsedEvent(_LOADED)
    elif text.startswith("NVRM: GPU has fallen off the bus"):
        yield ParsedEvent(EventKey(EventKind.OFF_THE_BUS))


def cause_of(text: str) -> str:
    """The Xid that another Xid's message names as its cause; "" if none."""
    cause = _CAUSE.search(text)
    return "" if cause is None else cause[1]


_KEPT: Final = 256  # events kept per group and log; older ones are only counted
_OF_GPUS: Final = frozenset({EventKind.XID, EventKind.SXID, EventKind.DRIVER})
_HOST: Final = re.compile(
    r"\d:\d\d\S* (?!localhost\b)([A-Za-z][\w-]{0,63})[\w.-]{0,190} kernel\b|^\s*([\w.-]{1,190}): +kern: +[a-z]+: +\["
)
"""The host that syslog names, without its domain, or Talos."""
_MOST_OF_A_KIND, _MOST_NOTED = 512, 256
_TAIL: Final = 40  # lines searched for the first or last one with a timestamp
_MOST_LINES: Final = 16  # lines of one multi-line message
_MOST_IN_LINE: Final = 256  # messages
_KERNEL_LINE: Final = re.compile(
    r"(?:<\d{1,3}>)?\[ *\d{1,12}\.\d{6}\](?!\s*\((?:II|WW|EE|--|==|\*\*|\+\+)\))"
    r"|\[\w{3} \w{3} +\d{1,2} [\d:]{8} \d{4}\] |.{0,80} kernel: |\d{1,3},\d+,\d+,[^;]{0,80};|.{0,60}\bkern: +[a-z]+: \["
)
"""A kernel log line in its usual forms; lines of the X log have three decimal places."""
_STAMP: Final = re.compile(rf"{_KERNEL_LINE.pattern}|\[ *\d{{1,12}}\.\d{{1,9}}\](?=\s[^\s(])")
_WORDS: Final = (
    *("error", "fail", "fault", "fatal", "panic", "corrupt", "timed out", "timeout", "unable", "cannot", "can't"),
    *("could not", "refused", "reject", "denied", "abort", "exception", "bug:", "oops", "stuck", "inaccessible"),
    *("not respond", "giving up", "nobody cared"),
)
"""Words of error, in lower case."""
_KNOWN: Final = re.compile(
    r"error status/mask=|AER: (?: |can't |device rec|.{8,40}: id=)|DRHD: |\[Hardware Error\]|tainting kernel"
    r"|rror.{0,40} (?:enabled|initialized)"
    r"|make sure that this kernel module|fault reason"
)
"""Details of messages that are judged, and what is normal at boot."""
_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")
_CLOCK: Final = re.compile(r"^\s*(?:\[ *\d+\.\d+\])?\s*")
_LONGEST_SHOWN: Final = 160
_ENOUGH_LINES: Final = 3
_GOES_ON: Final = re.compile(
    r"NVRM: +(?!loading )(?:[a-z]{1,14}[ ,.]|\(|BAR\d|NVIDIA |System |Firmware|Software|Please )"
)
"""A continuation line of a driver message."""


def _continuation(text: str) -> re.Pattern[str] | None:
    """What lines that complete a message look like; None if it is complete."""
    if text.startswith(driver_messages.SENTENCES):
        return None if "\n" in text or text.rstrip().endswith(".") else _GOES_ON
    return next((goes_on for begins, goes_on in kernel_messages.REPORTS if begins.match(text)), None)


def _has_error(text: str) -> bool:
    lowered = text.lower()
    return any(word in lowered for word in _WORDS)


def _apart(before: LogTime, after: LogTime) -> float:
    """Seconds from one time to another; 0 if only one of them is of the wall clock, or they are in different years."""
    if before.wall is not None and after.wall is not None:
        seconds = after.wall - before.wall
        return 0.0 if after.lacks_year and abs(seconds) > _HALF_A_YEAR else seconds
    return 0.0 if before.seconds is None or after.seconds is None else after.seconds - before.seconds


@dataclass(slots=True)
class Tally:
    """How many events of one group one log has, and the most recent ones."""

    count: int = 0
    kept: deque[KernelMessage] = field(default_factory=lambda: deque(maxlen=_KEPT))


@dataclass(slots=True)
class MemoryBudget:
    """Memory budget shared by all logs, so that a flood of messages can't exhaust memory."""

    sorts: int = 2048  # event groups that can still be added
    events: int = 4096  # events that can still be kept; after that, each new one replaces the oldest of its group


class LogSection:
    """One log, parsed line by line: a file, or a section of a bug report."""

    KIND: Final = "kernel log"

    def __init__(self, room: MemoryBudget) -> None:
        # events found, by kind and group; within a kind, the most recently seen group comes last
        self.tallies: dict[EventKind, dict[EventKey, Tally]] = {}
        self.ports: dict[str, str] = {}  # above GPUs, from PCIe error messages, by the address of the device below
        self.hosts: set[str] = set()  # named in lines about failures of GPUs
        self.gpus: set[str] = set()  # addresses that messages identify as GPUs
        # kernel lines with words of error that no parser supports, and how many: by their text without numbers
        self.unjudged: dict[str, tuple[str, int]] = {}
        self.lines = 0  # number of recognized kernel lines
        self.seen = 0  # number of lines
        self._room = room
        self._head: list[str] = []
        self._tail: deque[str] = deque(maxlen=_TAIL)
        # Once the log has ended: the times of the first line that has one, the events and the last line; 1 if they
        # mostly run forward, -1 if backward, as of ``journalctl -r``, 0 if there are no two; what is wrong with them
        self.times: list[LogTime] = []
        self.direction = 0
        self.disorder = ""
        self._minute = ""
        # a message that goes on in the next lines: its prefix, the lines, and what the next ones look like
        self._report: tuple[str, list[str], re.Pattern[str]] | None = None
        self._links_up: set[str] = set()

    def pass_by(self, line: str) -> None:
        """Record a line without a known event; it may turn out to be the last one with a timestamp."""
        self._count(line)
        if (line[:3] == "-- " or "Linux version " in line) and (boot := _BOOT.match(line)) is not None:
            self._take(KernelMessage(boot[1], boot[2]))
        if _has_error(line) and (found := _STAMP.match(line)) is not None:
            self._note_unjudged(line[found.end() :])

    def _count(self, line: str) -> None:
        self.seen += 1
        if self.seen <= _TAIL:
            self._head.append(line)
        self._tail.append(line)
        if line[0] == "[" and (minute := log_lines.MINUTE.match(line)) is not None:
            self._minute = minute[0]

    def _note_unjudged(self, text: str) -> None:
        if _KNOWN.search(text) is None:
            sort = _NUMBERS.sub("#", text)
            shown, count = self.unjudged.get(sort, (_CLOCK.sub("", text)[:_LONGEST_SHOWN], 0))
            if count or len(self.unjudged) < _MOST_NOTED:
                self.unjudged[sort] = (shown, count + 1)

    def feed(self, line: str) -> None:
        messages = tuple(islice(log_lines.kernel_messages_in(line), _MOST_IN_LINE))
        if not messages:
            self.pass_by(line)
            return
        self._count(line)
        for message in messages:
            self.lines += 1
            if message.quoted:
                self._take(message)
            else:
                self._take_line(message.prefix, message.text)

    def _take_line(self, prefix: str, text: str) -> None:
        if "[  +" in prefix[:8] or "[ +" in prefix[:8]:
            # dmesg --human prints the minute once, then only the offset from the previous line.
            prefix = self._minute + prefix
        if self._report is not None and self._report[2].match(text):
            self._report[1].append(text)
            if text.rstrip().endswith(".") or len(self._report[1]) >= _MOST_LINES:
                self._end_report()
            return
        self._end_report()
        if (goes_on := _continuation(text)) is not None:
            self._report = (prefix, [text], goes_on)
        else:
            self._take(KernelMessage(prefix, text))

    def end(self) -> None:
        self._end_report()
        tallies = (tally for of_kind in self.tallies.values() for tally in of_kind.values())
        events = sorted((kept for tally in tallies for kept in tally.kept), key=lambda each: each.place)
        first, last = (
            # The message that the driver is loaded contains the date of its build.
            next((time for line in lines if (time := log_time(line[:200].partition("NVRM")[0])) != NO_TIME), NO_TIME)
            for lines in (self._head, reversed(self._tail))
        )
        times = (first, *(log_time(each.prefix) for each in events), last)
        self.times = [time for time in times if time != NO_TIME]
        self._tail.clear()
        apart = [_apart(before, after) for before, after in pairwise(self.times)]
        forward, backward = sum(each > 0 for each in apart), sum(each < -_SAME_SECONDS for each in apart)
        self.direction = (forward > backward) - (forward < backward)
        if backward:
            self.disorder = "lines not in the order of their times" if forward else "newest lines first"
        elif self.tallies and not self.times:
            self.disorder = "kernel messages without times"

    @property
    def loads(self) -> Iterable[KernelMessage]:
        """Loads of the driver, and boots. Their texts match up the same load in a log with a different clock."""
        return [kept for tally in self.tallies.get(EventKind.LOADED, {}).values() for kept in tally.kept]

    def _end_report(self) -> None:
        if self._report is not None:
            (prefix, lines, _), self._report = self._report, None
            self._take(KernelMessage(prefix, "\n".join(lines)))

    def _take(self, message: KernelMessage) -> None:
        found = read_message(message.text)
        if not found and not message.quoted and _has_error(message.text):
            self._note_unjudged(message.text)
        for what, port, gpu in found:
            if gpu and len(self.gpus) < _MOST_NOTED:
                self.gpus.add(gpu)
            if port and len(self.ports) < _MOST_NOTED:
                self.ports[what.address] = port
            if what.kind in _OF_GPUS and len(self.hosts) < _MOST_NOTED and (host := _HOST.search(message.prefix)):
                self.hosts.add((host[1] or host[2]).lower())
            if what.code != ProblemKind.ADAPTER_LINK_DOWN.value or self._had_link(what):
                # Timestamps are parsed lazily: in a flood, most are never needed.
                self._keep(what, message._replace(place=self.seen))

    def _had_link(self, what: EventKey) -> bool:
        """Whether the link was up before: an unused port is reported as link down at every boot."""
        if what.kind is EventKind.HOST_OVER:
            if len(self._links_up) < _MOST_NOTED:
                self._links_up.add(what.address)
            return True
        return what.address in self._links_up

    def _keep(self, what: EventKey, message: KernelMessage) -> None:
        """Count an event; of many in a group the last ones are kept, and of too many groups the most recent ones."""
        of_kind = self.tallies.setdefault(what.kind, {})
        if what not in of_kind:
            if len(of_kind) < _MOST_OF_A_KIND and self._room.sorts > 0:
                self._room.sorts -= 1
            elif of_kind:
                del of_kind[next(iter(of_kind))]
            else:
                return
        tally = of_kind[what] = of_kind.pop(what, Tally())
        tally.count += 1
        if len(tally.kept) < _KEPT and self._room.events > 0:
            self._room.events -= 1
        elif tally.kept:
            tally.kept.popleft()
        tally.kept.append(message)

    def is_kernels(self) -> bool:
        """Whether this is a kernel log, even if it doesn't mention GPUs."""
        if self.lines:
            return True
        found = sum(_KERNEL_LINE.match(line) is not None for line in self._tail)
        return found >= _ENOUGH_LINES and 2 * found > len(self._tail)


OF_DRIVER: Final = ("NVRM", "nvidia", "nvgpu")  # how messages of NVIDIA's driver begin
_END: Final = "the end of the log"
_SAME_SECONDS: Final = 3.0
"""Timestamps of one event in two logs differ by at most this: syslog has whole seconds and lags behind the kernel."""
_HALF_A_YEAR: Final = 182 * 86_400.0
_MOST_KNOWN: Final = 512
_YEAR: Final = slice(5, None)


class LogEvent(NamedTuple):
    wall: float | None  # time on the host's wall clock; an estimate unless `exact`, None if unknown
    exact: bool  # whether the log contains the time
    seconds: float | None  # since boot; None if the log doesn't contain it
    text: str  # the log message
    loads_after: int = 0  # number of driver loads that are later by the times of the same log
    lacks_year: bool = False  # whether the year is known only from the file's modification time
    place: int = 0  # orders events within one second: line number, negative in a log with the newest first
    quoted: bool = False  # as KernelMessage

    def seconds_to(self, later: LogEvent) -> float:
        """Seconds to another event; 0 if one of them has no time."""
        return 0.0 if self.wall is None or later.wall is None else later.wall - self.wall


@dataclass(slots=True)
class Events:
    """How many events there are of one group, and those that were kept, oldest first: at least one."""

    count: int = 0
    known: list[LogEvent] = field(default_factory=list)

    @property
    def last(self) -> LogEvent:
        """The latest event; one without a time takes precedence, since it may be the most recent."""
        return max(self.known, key=lambda each: (each.wall is None, each.wall or 0.0, each.place))


class LogReading(NamedTuple):
    """The kernel logs of a host, merged; empty without any."""

    reference: float  # reference time for ages, in the host's wall clock
    until: str  # description of the reference time, for display
    events: Mapping[EventKey, Events]  # by group
    ports: Mapping[str, str]  # the port above a device, by the device's bus id
    gpus: frozenset[str]  # addresses that the logs identify as GPUs
    loaded_at: tuple[float, ...]  # wall times of driver loads, where a log has the exact time
    lines: int  # number of lines read
    # kernel lines with words of error that are not judged, the driver's first, and how often each was logged
    unjudged: Sequence[tuple[str, int]]

    def of_kind(self, kind: EventKind, code: str | None = None) -> Iterator[tuple[EventKey, Events]]:
        """The events of a kind, by group; `code`: of one sort only."""
        return (each for each in self.events.items() if each[0].kind is kind and code in (None, each[0].code))

    @property
    def last_load(self) -> LogEvent | None:
        return self.events[_LOADED].last if _LOADED in self.events else None

    def is_over(self, event: LogEvent, *, at_probe: bool = False) -> bool:
        """Whether the driver was loaded after the event; `at_probe`: the event itself happens during a driver load."""
        if event.loads_after > (1 if at_probe else 0):
            return True
        least = driver_messages.LOADING_SECONDS if at_probe else 0.0
        return event.wall is not None and any(wall > event.wall + least for wall in self.loaded_at)

    def is_within(self, event: LogEvent, seconds: float) -> bool:
        """Whether the event is at most this old; one at an unknown time may be recent."""
        return event.wall is None or self.reference - event.wall <= seconds

    def when(self, event: LogEvent) -> str:
        return f"quoted, {self._when(event)}" if event.quoted else self._when(event)

    def _when(self, event: LogEvent) -> str:
        seconds = event.seconds or 0.0
        length = f"{seconds:.0f} s" if seconds < 2 * log_lines.DAY_SECONDS else length_of_time(seconds)
        after_boot = "" if event.seconds is None else f"{length} after the boot"
        if event.wall is None:
            return after_boot or "at a time that the log does not tell"
        age = length_of_time(max(0.0, self.reference - event.wall))
        if event.exact:
            at = written(event.wall)[_YEAR] if event.lacks_year else written(event.wall)
            return f"{at}, {age} before {self.until}"
        # The time between the log's last line and the report is unknown.
        more = " or more" if self.until != _END else ""
        return f"{after_boot}, {age}{more} before {self.until}"

    def count_and_last(self, events: Events) -> str:
        return f"{'once' if events.count == 1 else f'{events.count} times, last'} {self.when(events.last)}"


def merge(sections: Sequence[LogSection], reference: float | None, modified_at: float) -> LogReading:
    """Merge the logs of one host, of which several may contain the same messages.

    `reference` is when the report with the logs was made; if None, the file's own time gives the year of syslog.
    """
    around = reference if reference is not None else modified_at
    loads = _loads(sections, around)
    ends = [wall for section in sections for time in section.times if (wall := _wall(time, around)) is not None]
    # A log may be newer than the report it is attached to.
    is_report = reference is not None and reference >= max(ends, default=reference)
    now = reference if reference is not None and is_report else max(ends, default=modified_at)
    events: dict[EventKey, Events] = {}
    ports: dict[str, str] = {}
    for section in sections:
        ports |= section.ports
        end = max((time.seconds for time in section.times if time.seconds is not None), default=None)
        clock = _Clock(
            _booted_at(section, around, loads), end, now, around, section.direction, guesses_year=reference is None
        )
        loaded_in = [clock.happened(kept) for kept in section.loads]
        for what, tally in (each for of_kind in section.tallies.values() for each in of_kind.items()):
            happened = [clock.happened(kept, loaded_in) for kept in tally.kept]
            _add(events.setdefault(what, Events()), tally, happened)
    unjudged = {sort: each for section in sections for sort, each in section.unjudged.items()}
    for each in events.values():
        # Quotations of what the kernel's own lines tell do not count.
        if said := [event for event in each.known if not event.quoted]:
            each.count -= len(each.known) - len(said)
            each.known = said
    loaded = events[_LOADED].known if _LOADED in events else ()
    return LogReading(
        now,
        "the report" if is_report else _END,
        events,
        ports,
        gpus=frozenset().union(*(section.gpus for section in sections)),
        loaded_at=tuple(each.wall for each in loaded if each.exact and each.wall is not None),
        lines=sum(section.seen for section in sections),
        unjudged=sorted(unjudged.values(), key=lambda each: not each[0].startswith(OF_DRIVER)),
    )


def _wall(time: LogTime, around: float) -> float | None:
    return log_lines.with_year(time.wall, around) if time.wall is not None and time.lacks_year else time.wall


def _loads(sections: Iterable[LogSection], around: float) -> dict[str, float]:
    """Wall time of each driver load, by message text; the latest one if a text repeats."""
    times = ((load.text, _wall(log_time(load.prefix), around)) for section in sections for load in section.loads)
    known = sorted((wall, text) for text, wall in times if wall is not None)
    return {text: wall for wall, text in known}


def _booted_at(section: LogSection, around: float, loads: Mapping[str, float]) -> float | None:
    """Wall time of the boot from which a log counts its seconds; None if it can't be determined."""
    both = next((time for time in section.times if time.seconds is not None and time.wall is not None), None)
    if both is not None and both.seconds is not None:
        wall = _wall(both, around)
        return None if wall is None else wall - both.seconds
    tied = ((loads[load.text], log_time(load.prefix).seconds) for load in section.loads if load.text in loads)
    return next((wall - seconds for wall, seconds in tied if seconds is not None), None)


class _Clock(NamedTuple):
    """Converts the timestamps of one log to the host's wall clock."""

    boot: float | None  # wall time of the boot from which the log counts its seconds; None if unknown
    end: float | None  # the log's last timestamp, in seconds since boot; None if it has none
    now: float  # reference time for ages
    around: float  # a time used to infer missing years
    direction: int  # as LogSection.direction
    guesses_year: bool  # whether `around` comes from outside the files' content

    def happened(self, kept: KernelMessage, loads: Iterable[LogEvent] = ()) -> LogEvent:
        time = log_time(kept.prefix)
        wall = _wall(time, self.around)
        exact, lacks_year = wall is not None, time.lacks_year and self.guesses_year
        if wall is None and time.seconds is not None:
            # The time between the end of the log and the report is unknown, so this is the latest possible time.
            latest = None if self.end is None else self.now - (self.end - time.seconds)
            wall, exact = (latest, False) if self.boot is None else (self.boot + time.seconds, True)
        place = kept.place * (self.direction or 1)
        event = LogEvent(wall, exact, time.seconds, kept.text, 0, lacks_year, place, kept.quoted)
        return event._replace(loads_after=sum(self._is_after(load, event) for load in loads))

    def _is_after(self, load: LogEvent, event: LogEvent) -> bool:
        """Whether a driver load is later than an event; without times, their order in the log proves nothing."""
        for own, other in ((load.wall, event.wall), (load.seconds, event.seconds)):
            if own is not None and other is not None and own != other:
                return own > other
        return self.direction != 0 and load.place > event.place


def _add(events: Events, tally: Tally, happened: list[LogEvent]) -> None:
    unmatched: dict[str, list[int]] = defaultdict(list)
    for place, known in enumerate(events.known):
        unmatched[known.text].append(place)
    new = []
    for each in happened:
        places = unmatched[each.text]
        if (same := next((place for place in places if _is_same(events.known[place], each)), None)) is None:
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
    both = known.exact and other.exact
    return not both or abs((known.wall or 0.0) - (other.wall or 0.0)) <= _SAME_SECONDS
