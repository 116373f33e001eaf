"""One kernel log, line by line: what happened, by sort, how often, and when."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpu_triage.host.driver_messages import SENTENCES
from gpu_triage.host.kernel_messages import Trouble
from gpu_triage.offline.about import About
from gpu_triage.offline.events import TOLD, Kind, What, read_message
from gpu_triage.offline.log_lines import FORMS, said_by_kernel
from gpu_triage.offline.times import NO_TIME, LogTime, log_time, minute_of
from gpu_triage.xid.events import is_driver_loaded

_KEPT: Final = 256  # events of one sort that are kept of a log; further ones are counted
_MOST_OF_A_KIND: Final = 512
_MOST_NOTED: Final = 256
_TAIL: Final = 40  # lines looked through for the last one with a time
_MOST_LINES: Final = 6  # of one sentence of the driver
_KERNEL_LINE: Final = re.compile(
    r"(?:<\d{1,3}>)?\[ *\d{1,12}\.\d{6}\](?!\s*\((?:II|WW|EE|--|==|\*\*|\+\+)\))"
    r"|\[\w{3} \w{3} +\d{1,2} [\d:]{8} \d{4}\] |.{0,80} kernel: |\d{1,3},\d+,\d+,[^;]{0,80};|.{0,60}\bkern: +[a-z]+: \["
)
"""A line of the kernel's log, in its usual forms; that of X has three digits after the point."""
_ENOUGH_LINES: Final = 3
_GOES_ON: Final = re.compile(
    r"NVRM: +(?!loading )(?:[a-z]{1,14}[ ,.]|\(|BAR\d|NVIDIA |System |Firmware|Software|Please )"
)
"""A further line of a sentence of the driver."""


class Kept(NamedTuple):
    """One event of a log.

    Attributes:
        prefix: what stands before the message, with its time.
        text: the message.
        loads: how often the log had said before that the driver was loaded.
        place: the number of its line.
    """

    prefix: str
    text: str
    loads: int
    place: int


@dataclass(slots=True)
class Tally:
    """Events of one sort in one log.

    Attributes:
        count: how many there were.
        kept: the last of them.
    """

    count: int = 0
    kept: deque[Kept] = field(default_factory=lambda: deque(maxlen=_KEPT))


@dataclass(slots=True)
class Room:
    """How much is kept of all logs together: of a flood the last events, and no more sorts than a host has.

    Attributes:
        sorts: of events, that may still be added.
        events: that may still be kept; then each new one takes the place of the oldest of its sort.
    """

    sorts: int = 2048
    events: int = 4096


class LogSection:
    """One log, line by line: a file, or a part of a bug report.

    Attributes:
        name: what it is, for people.
        tallies: what was found, of each kind the sort that came last at the end.
        ports: the ports above GPUs, as PCIe errors name them, by the address below.
        gpus: addresses that are those of GPUs, by what the log says of them.
        loads: when the driver was loaded, by its message: it finds the same moment in a log with the other clock.
        load_count: how often it was loaded.
        lines: how many of its lines were the kernel's and of a kind that is known here.
        seen: how many lines it has.
    """

    ABOUT: Final = About("kernel log", FORMS, TOLD)

    def __init__(self, name: str, room: Room) -> None:
        self.name = name
        self.tallies: dict[Kind, dict[What, Tally]] = {}
        self.ports: dict[str, str] = {}
        self.gpus: set[str] = set()
        self.loads: dict[str, LogTime] = {}
        self.load_count = 0
        self.lines = 0
        self.seen = 0
        self._room = room
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._last_time: LogTime | None = None
        self._minute = ""
        self._sentence: tuple[str, list[str]] | None = None
        self._links_up: set[str] = set()

    def pass_by(self, line: str) -> None:
        """Note a line that says nothing of interest: it may be the last one with a time."""
        self.seen += 1
        self._tail.append(line)
        if line[0] == "[":
            self._minute = minute_of(line) or self._minute

    def feed(self, line: str) -> bool:
        """Take in a line that has one of the MARKERS; returns whether it is one of the kernel's log."""
        self.pass_by(line)
        said = said_by_kernel(line)
        if said is None:
            return False
        self.lines += 1
        prefix, text = said
        if "[  +" in prefix[:8] or "[ +" in prefix[:8]:
            # dmesg --human tells the minute once, and then how long after the line before.
            prefix = self._minute + prefix
        if self._sentence is not None and _GOES_ON.match(text):
            self._sentence[1].append(text)
            if text.rstrip().endswith(".") or len(self._sentence[1]) >= _MOST_LINES:
                self._end_sentence()
            return True
        self._end_sentence()
        if text.startswith(SENTENCES) and "\n" not in text and not text.rstrip().endswith("."):
            self._sentence = (prefix, [text])
        else:
            self._take(prefix, text)
        return True

    def end(self) -> None:
        """Note that no line follows, and drop what only the next line would need."""
        self._end_sentence()
        self._last_time = self.last_time()
        self._tail.clear()

    def _end_sentence(self) -> None:
        if self._sentence is not None:
            (prefix, lines), self._sentence = self._sentence, None
            self._take(prefix, "\n".join(lines))

    def _take(self, prefix: str, text: str) -> None:
        if is_driver_loaded(text):
            self.load_count += 1
            if len(self.loads) < _MOST_NOTED:
                self.loads[text] = log_time(prefix)
        for what, port, gpu in read_message(text):
            if gpu and len(self.gpus) < _MOST_NOTED:
                self.gpus.add(gpu)
            if port and len(self.ports) < _MOST_NOTED:
                self.ports[what.address] = port
            if what.code == Trouble.ADAPTER_LINK_DOWN.value and not self._had_link(what):
                continue
            tally = self._tally(what)
            if tally is not None:
                tally.count += 1
                # Of a flood most times are never asked for: they are read when they are.
                self._keep(tally, Kept(prefix, text, self.load_count, self.seen))

    def _had_link(self, what: What) -> bool:
        """Whether a link was up before: one that nobody uses is reported as down at every boot."""
        if what.kind is Kind.HOST_OVER:
            if len(self._links_up) < _MOST_NOTED:
                self._links_up.add(what.address)
            return True
        return what.address in self._links_up

    def _tally(self, what: What) -> Tally | None:
        """The tally of a sort; None where there are too many."""
        of_kind = self.tallies.setdefault(what.kind, {})
        tally = of_kind.pop(what, None)
        if tally is None:
            if len(of_kind) < _MOST_OF_A_KIND and self._room.sorts > 0:
                self._room.sorts -= 1
            elif of_kind:
                # Of many killed processes or hung tasks, those of long ago.
                del of_kind[next(iter(of_kind))]
            else:
                return None
            tally = Tally()
        of_kind[what] = tally
        return tally

    def _keep(self, tally: Tally, kept: Kept) -> None:
        if len(tally.kept) < _KEPT and self._room.events > 0:
            self._room.events -= 1
        elif tally.kept:
            tally.kept.popleft()
        tally.kept.append(kept)

    def clocks(self) -> LogTime | None:
        """Seconds since boot and the wall time of one line that tells both; None without one."""
        for tallies in self.tallies.values():
            for tally in tallies.values():
                time = log_time(tally.kept[-1].prefix)
                if time.seconds is not None and time.wall is not None:
                    return time
        return None

    def is_kernels(self) -> bool:
        """Whether this is a kernel log, be there a word of GPUs in it or not."""
        if self.lines:
            return True
        found = sum(1 for line in self._tail if _KERNEL_LINE.match(line) is not None)
        return found >= _ENOUGH_LINES and 2 * found > len(self._tail)

    def last_time(self) -> LogTime:
        """Of its last line that tells one."""
        if self._last_time is not None:
            return self._last_time
        times = (log_time(line[:200]) for line in reversed(self._tail))
        return next((time for time in times if time != NO_TIME), NO_TIME)
