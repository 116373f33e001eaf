"""The kernel log in a file: its messages grouped into events, within bounded memory."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from gpu_triage.cli.offline.log_lines import NO_TIME, LogTime, log_time, minute_of, said_by_kernel
from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.read.host.driver_messages import (
    SENTENCES,
    PcieError,
    parse_device_message,
    parse_device_over,
    parse_driver_message,
    parse_failing_gpu,
    parse_pcie_error,
)
from gpu_triage.read.host.kernel_messages import ProblemKind, parse_host_message, parse_trouble_over
from gpu_triage.read.xid.xid_events import is_driver_loaded, parse_found, parse_xid

_ADDRESS: Final = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_SXID: Final = re.compile(
    rf"nvidia-nvswitch\d*: SXid \(PCI:{_ADDRESS}\): (\d{{1,6}})(?:, (Fatal|Non-fatal))?", re.IGNORECASE
)
_NOUVEAU: Final = re.compile(rf"nouveau {_ADDRESS}: ")
_CAUSE: Final = re.compile(r" caused by previous Xid (\d{1,5})$")


class EventKind(Enum):
    XID = "xid"
    XID_CAUSE = "xid_cause"
    SXID = "sxid"
    DRIVER = "driver"
    NOUVEAU = "nouveau"
    AER = "aer"
    AER_RECEIVED = "aer_received"
    OUT_OF_MEMORY = "out_of_memory"
    HOST = "host"
    HOST_OVER = "host_over"
    OFF_THE_BUS = "off_the_bus"
    LOADED = "loaded"
    FOUND = "found"


class EventKey(NamedTuple):
    """The key under which events are grouped."""

    kind: EventKind  # type of the event
    # bus id of the GPU, or of the device that reported the error; for host problems, the affected process, device or
    # server; "" if unknown
    address: str = ""
    # the kind of driver or host problem; the Xid or SXid as text ("" for a GPU that fell off the bus without one); the
    # Xid named as the cause of another; a PCIe error severity; or ""
    code: str = ""
    fatal: bool | None = None  # as XidReport; None for everything else


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
    if (failure := parse_driver_message(text)) is not None:
        # Messages identify a GPU by its bus address or by its driver index, never by both.
        gpu = failure.address or (failure.subject if failure.number else "")
        yield ParsedEvent(EventKey(EventKind.DRIVER, gpu, failure.trouble.value), gpu=failure.address)
    elif text.startswith("NVRM: "):
        yield from _read_driver(text)
    elif (sxid := _SXID.match(text)) is not None:
        fatal = None if sxid[3] is None else sxid[3].lower() == "fatal"
        yield ParsedEvent(EventKey(EventKind.SXID, _address(sxid[1]), sxid[2], fatal))
    elif (nouveau := _NOUVEAU.match(text)) is not None:
        yield ParsedEvent(EventKey(EventKind.NOUVEAU, _address(nouveau[1])), gpu=_address(nouveau[1]))
    elif (address := parse_found(text)) is not None or (address := parse_failing_gpu(text)) is not None:
        yield ParsedEvent(EventKey(EventKind.FOUND, address), gpu=address)
    elif (error := parse_pcie_error(text)) is not None:
        yield _of_pcie_error(error)
    else:
        yield from _of_host(text)


def _of_pcie_error(error: PcieError) -> ParsedEvent:
    kind = EventKind.AER_RECEIVED if error.port else EventKind.AER
    return ParsedEvent(
        EventKey(kind, error.address, error.severity), error.port, error.address if error.driver == "nvidia" else ""
    )


def _of_host(text: str) -> Iterator[ParsedEvent]:
    said = parse_host_message(text) or parse_device_message(text)
    over = parse_trouble_over(text) or parse_device_over(text)
    if said is not None and said.trouble is ProblemKind.OOM_KILL:
        yield ParsedEvent(EventKey(EventKind.OUT_OF_MEMORY, "", said.subject))
    elif said is not None:
        yield ParsedEvent(EventKey(EventKind.HOST, said.subject, said.trouble.value))
    elif over is not None:
        yield ParsedEvent(EventKey(EventKind.HOST_OVER, over.subject, over.trouble.value))


def _read_driver(text: str) -> Iterator[ParsedEvent]:
    if (xid := parse_xid(text)) is not None:
        yield ParsedEvent(
            EventKey(EventKind.XID, xid.gpu, "" if xid.code is None else str(xid.code), xid.fatal), gpu=xid.gpu
        )
        if cause := cause_of(text):
            yield ParsedEvent(EventKey(EventKind.XID_CAUSE, xid.gpu, cause))
    elif is_driver_loaded(text):
        yield ParsedEvent(EventKey(EventKind.LOADED))
    elif text.startswith("NVRM: GPU has fallen off the bus"):
        yield ParsedEvent(EventKey(EventKind.OFF_THE_BUS))


def cause_of(text: str) -> str:
    """The Xid that another Xid's message names as its cause; "" if none."""
    cause = _CAUSE.search(text)
    return "" if cause is None else cause[1]


_KEPT: Final = 256  # events kept per group and log; older ones are only counted
_MOST_OF_A_KIND: Final = 512
_MOST_NOTED: Final = 256
_TAIL: Final = 40  # lines searched for the last one with a timestamp
_MOST_LINES: Final = 6  # lines of one multi-line driver message
_KERNEL_LINE: Final = re.compile(
    r"(?:<\d{1,3}>)?\[ *\d{1,12}\.\d{6}\](?!\s*\((?:II|WW|EE|--|==|\*\*|\+\+)\))"
    r"|\[\w{3} \w{3} +\d{1,2} [\d:]{8} \d{4}\] |.{0,80} kernel: |\d{1,3},\d+,\d+,[^;]{0,80};|.{0,60}\bkern: +[a-z]+: \["
)
"""A kernel log line in its usual forms; lines of the X log have three decimal places."""
_ENOUGH_LINES: Final = 3
_GOES_ON: Final = re.compile(
    r"NVRM: +(?!loading )(?:[a-z]{1,14}[ ,.]|\(|BAR\d|NVIDIA |System |Firmware|Software|Please )"
)
"""A continuation line of a driver message."""


class KeptEvent(NamedTuple):
    """One event of a log."""

    prefix: str  # text before the message, including the timestamp
    text: str  # the message
    loads: int  # number of driver loads logged before it
    place: int  # line number


@dataclass(slots=True)
class Tally:
    """How many events of one group one log has, and the most recent ones."""

    count: int = 0
    kept: deque[KeptEvent] = field(default_factory=lambda: deque(maxlen=_KEPT))


@dataclass(slots=True)
class MemoryBudget:
    """Memory budget shared by all logs, so that a flood of messages can't exhaust memory."""

    sorts: int = 2048  # event groups that can still be added
    events: int = 4096  # events that can still be kept; after that, each new one replaces the oldest of its group


class LogSection:
    """One log, parsed line by line: a file, or a section of a bug report.

    Attributes:
        name: display name.
        tallies: events found, by kind and group; within a kind, the most recently seen group comes last.
        ports: ports above GPUs, taken from PCIe error messages, by the address of the device below.
        gpus: addresses that log messages identify as GPUs.
        loads: time of each driver load, by message text; matches up the same load in a log with a different clock.
        load_count: number of driver loads.
        lines: number of recognized kernel lines.
        seen: number of lines.
    """

    KIND: Final = "kernel log"

    def __init__(self, name: str, room: MemoryBudget) -> None:
        self.name = name
        self.tallies: dict[EventKind, dict[EventKey, Tally]] = {}
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
        """Record a line without a known event; it may turn out to be the last one with a timestamp."""
        self.seen += 1
        self._tail.append(line)
        if line[0] == "[":
            self._minute = minute_of(line) or self._minute

    def feed(self, line: str) -> bool:
        """Parse a line that contains one of the MARKERS; return whether it is a kernel log line."""
        self.pass_by(line)
        said = said_by_kernel(line)
        if said is None:
            return False
        self.lines += 1
        prefix, text = said
        if "[  +" in prefix[:8] or "[ +" in prefix[:8]:
            # dmesg --human prints the minute once, then only the offset from the previous line.
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
        """Finish parsing at the end of the log and drop the buffered lines."""
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
            if what.code == ProblemKind.ADAPTER_LINK_DOWN.value and not self._had_link(what):
                continue
            tally = self._tally(what)
            if tally is not None:
                tally.count += 1
                # Timestamps are parsed lazily: in a flood, most are never needed.
                self._keep(tally, KeptEvent(prefix, text, self.load_count, self.seen))

    def _had_link(self, what: EventKey) -> bool:
        """Whether the link was up before: an unused port is reported as link down at every boot."""
        if what.kind is EventKind.HOST_OVER:
            if len(self._links_up) < _MOST_NOTED:
                self._links_up.add(what.address)
            return True
        return what.address in self._links_up

    def _tally(self, what: EventKey) -> Tally | None:
        """The tally of an event group; None if there are too many groups."""
        of_kind = self.tallies.setdefault(what.kind, {})
        tally = of_kind.pop(what, None)
        if tally is None:
            if len(of_kind) < _MOST_OF_A_KIND and self._room.sorts > 0:
                self._room.sorts -= 1
            elif of_kind:
                # With many killed processes or hung tasks, drop the least recent group.
                del of_kind[next(iter(of_kind))]
            else:
                return None
            tally = Tally()
        of_kind[what] = tally
        return tally

    def _keep(self, tally: Tally, kept: KeptEvent) -> None:
        if len(tally.kept) < _KEPT and self._room.events > 0:
            self._room.events -= 1
        elif tally.kept:
            tally.kept.popleft()
        tally.kept.append(kept)

    def clocks(self) -> LogTime | None:
        """A line with both seconds since boot and wall time, or None."""
        for tallies in self.tallies.values():
            for tally in tallies.values():
                time = log_time(tally.kept[-1].prefix)
                if time.seconds is not None and time.wall is not None:
                    return time
        return None

    def is_kernels(self) -> bool:
        """Whether this is a kernel log, even if it doesn't mention GPUs."""
        if self.lines:
            return True
        found = sum(1 for line in self._tail if _KERNEL_LINE.match(line) is not None)
        return found >= _ENOUGH_LINES and 2 * found > len(self._tail)

    def last_time(self) -> LogTime:
        """Timestamp of the last line that has one."""
        if self._last_time is not None:
            return self._last_time
        times = (log_time(line[:200]) for line in reversed(self._tail))
        return next((time for time in times if time != NO_TIME), NO_TIME)
