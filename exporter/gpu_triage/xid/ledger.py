"""Xids by GPU and code, each incident counted once though two sources report it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpu_triage.nvml.session import MAX_GPUS
from gpu_triage.xid.codes import XID_CODES
from gpu_triage.xid.events import OFF_THE_BUS, UNKNOWN, XidReport, XidSource

WINDOW_SECONDS: Final = 5.0
"""How far apart two sources' times of one incident may lie."""

CODES_PER_GPU: Final = 64
"""Distinct Xids kept for one GPU; NVIDIA documents some 160, no board shows more than a handful."""

OTHER: Final = "other"
"""The Xid under which all further ones are counted."""

UNKNOWN_XID: Final = "unknown"
"""The Xid of an incident whose code NVML does not know, and that the kernel log does not tell."""

_MOST_AWAITED: Final = 4096
"""Incidents of one GPU and code that may wait for the other source at a time."""

_AWAITED_SECONDS: Final = 600.0
"""How long an incident waits for the other source: where the kernel log cannot be read, it would wait for ever."""

_MOST_NEWS: Final = 4096
"""Incidents that are kept for `take_counted`."""

FATAL_LABELS: Final[Mapping[bool | None, str]] = {None: "", True: "true", False: "false"}
"""What the label `fatal` says: nothing where the kernel log does not tell."""


class XidName(NamedTuple):
    """An Xid as labels write it.

    Attributes:
        xid: the code, `OTHER` or `UNKNOWN_XID`.
        fatal: ``true`` or ``false`` where the kernel log calls it Fatal or Nonfatal; empty otherwise.
    """

    xid: str
    fatal: str = ""


@dataclass(frozen=True, slots=True)
class XidCount:
    """What one GPU had of one Xid.

    Attributes:
        count: incidents.
        last_at: when the last one happened; monotonic seconds in a ledger, Unix seconds in what is published.
    """

    count: int
    last_at: float


XidCounts = dict[XidName, XidCount]


@dataclass(frozen=True, slots=True)
class CountedXid:
    """An incident that was counted.

    Attributes:
        gpu: as XidReport.
        name: what it was counted as.
        at: monotonic second at which it happened.
    """

    gpu: str
    name: XidName
    at: float


class XidLedger:
    """Counts incidents. Sources may be read in any order and late, each in the order of its own reports.

    A report is of the oldest incident of that GPU and Xid that its source has not reported yet, if their times lie
    within the window; else it is a new one. So a source's own repeats are incidents of their own. "Fallen off the
    bus" without a code is Xid 79, and never a second one beside another within the window: the driver says it
    several times.

    Of some codes only the kernel log says whether they are fatal. What NVML alone has reported of these is held back
    until the kernel log tells, or until `release` gives it up: counts never move from one name to another. So is an
    Xid that NVML does not know: it is the one that the kernel log tells of within the window.
    """

    def __init__(self) -> None:
        self._gpus: dict[str, dict[str, _Tally]] = {}
        self._counted: deque[CountedXid] = deque(maxlen=_MOST_NEWS)

    def see(self, report: XidReport) -> bool:
        """Take in a report; returns whether it is the first of its incident."""
        if report.code == UNKNOWN and self._is_known(report):
            return False
        tally = self._tally(report)
        if tally is None:
            return False
        is_first = tally.see(report)
        if is_first and report.source is XidSource.KMSG and self._was_unknown(report):
            tally.cease_to_await(XidSource.NVML)
        self._note_counted(report.gpu, tally)
        return is_first

    def release(self, until: float) -> None:
        """Count what is held back of incidents that were reported by this monotonic second."""
        for gpu, tallies in self._gpus.items():
            for tally in tallies.values():
                tally.release(until)
                self._note_counted(gpu, tally)

    def take_counted(self) -> tuple[CountedXid, ...]:
        """The incidents counted since the last call, oldest first; of a flood the latest."""
        counted = tuple(self._counted)
        self._counted.clear()
        return counted

    def counts(self) -> Mapping[str, XidCounts]:
        """What every GPU had, by `XidReport.gpu` and then by Xid.

        A GPU without Xids is not in it; nor are any but the first 256 GPUs, which no host has.
        """
        return {gpu: counts for gpu, tallies in self._gpus.items() if (counts := _counts(tallies))}

    def settle(self, gpu: str, until: float) -> XidCounts:
        """Close the account of a GPU: what it had up to this monotonic second, by Xid, which is then forgotten here.

        An Xid that it had both before and after stays whole: which of its incidents was when is not kept.
        """
        tallies = self._gpus.get(gpu, {})
        over = {xid: tally for xid, tally in tallies.items() if tally.began_by(until)}
        for xid, tally in over.items():
            tally.release(until)
            self._note_counted(gpu, tally)
            del tallies[xid]
        if not tallies:
            self._gpus.pop(gpu, None)
        return _counts(over)

    def _is_known(self, report: XidReport) -> bool:
        """Whether the kernel log has told of this incident, of which NVML does not know the code."""
        tallies = self._gpus.get(report.gpu, {})
        # A code that NVML does not know is a new one.
        newest_first = sorted(tallies, key=lambda xid: int(xid) if xid.isdecimal() else 0, reverse=True)
        return any(tallies[xid].take_awaited(report) for xid in newest_first)

    def _was_unknown(self, report: XidReport) -> bool:
        """Whether NVML has reported this incident without its code; it is then no longer held back."""
        unknown = self._gpus[report.gpu].get(UNKNOWN_XID)
        return unknown is not None and unknown.drop_held(report)

    def _tally(self, report: XidReport) -> _Tally | None:
        if report.gpu not in self._gpus and len(self._gpus) >= MAX_GPUS:
            return None
        tallies = self._gpus.setdefault(report.gpu, {})
        code = OFF_THE_BUS if report.code is None else report.code
        xid = UNKNOWN_XID if code == UNKNOWN else str(code)
        if xid not in tallies and len(tallies) >= CODES_PER_GPU:
            xid = OTHER
        known = None if xid == OTHER else XID_CODES.get(code)
        told_by_text = xid == UNKNOWN_XID or (known is not None and known.fatal_in_text)
        return tallies.setdefault(xid, _Tally(xid, told_by_text=told_by_text))

    def _note_counted(self, gpu: str, tally: _Tally) -> None:
        for name, incident in tally.take_counted():
            self._counted.append(CountedXid(gpu, name, incident.at))


def _counts(tallies: Mapping[str, _Tally]) -> XidCounts:
    return {name: count for tally in tallies.values() for name, count in tally.counts()}


@dataclass(eq=False, slots=True)
class _Incident:
    """An incident as its first report tells it.

    Attributes:
        at: when it happened, as the source with a clock tells it.
        name: what it is counted as; None while it is held back.
    """

    earliest: float
    latest: float
    at: float
    name: XidName | None = None

    def is_near(self, report: XidReport) -> bool:
        return self.earliest - report.latest <= WINDOW_SECONDS and report.earliest - self.latest <= WINDOW_SECONDS


@dataclass(eq=False, slots=True)
class _Series:
    """What is published of one name.

    Attributes:
        count: incidents.
        newest: the last of them.
        before_newest: when the last one before that happened.
    """

    newest: _Incident
    count: int = 1
    before_newest: float = 0.0

    @property
    def last_at(self) -> float:
        return max(self.before_newest, self.newest.at)


def _queues() -> dict[XidSource, deque[_Incident]]:
    return {source: deque(maxlen=_MOST_AWAITED) for source in XidSource}


@dataclass(eq=False, slots=True)
class _Tally:
    """Incidents of one GPU and Xid.

    Attributes:
        xid: the code as a label writes it.
        told_by_text: whether only the kernel log says if one is fatal, or what it is.
        awaited: by source, those it has not reported yet, oldest first.
    """

    xid: str
    told_by_text: bool = False
    awaited: dict[XidSource, deque[_Incident]] = field(default_factory=_queues)
    _series: dict[XidName, _Series] = field(default_factory=dict)
    _held: deque[_Incident] = field(default_factory=lambda: deque(maxlen=_MOST_AWAITED))
    _counted: list[tuple[XidName, _Incident]] = field(default_factory=list)
    _newest: _Incident | None = None

    def counts(self) -> Iterator[tuple[XidName, XidCount]]:
        """What is published."""
        return ((name, XidCount(series.count, series.last_at)) for name, series in self._series.items())

    def take_counted(self) -> list[tuple[XidName, _Incident]]:
        """The incidents counted since the last call."""
        counted, self._counted = self._counted, []
        return counted

    def began_by(self, at: float) -> bool:
        """Whether the last incident may have happened by this monotonic second."""
        return self._newest is None or self._newest.earliest <= at

    def release(self, until: float) -> None:
        """As XidLedger."""
        while self._held and self._held[0].latest <= until:
            self._count(self._held.popleft(), XidName(self.xid))

    def take_awaited(self, report: XidReport) -> bool:
        """Whether an incident near this report waits for its source; it no longer does."""
        return self._awaited(report) is not None

    def cease_to_await(self, source: XidSource) -> None:
        """Of the newest incident, expect nothing from this source."""
        if self._newest is not None and self._newest in self.awaited[source]:
            self.awaited[source].remove(self._newest)

    def drop_held(self, report: XidReport) -> bool:
        """Whether an incident near this report is held back; it is forgotten."""
        held = next((incident for incident in self._held if incident.is_near(report)), None)
        if held is None:
            return False
        self._held.remove(held)
        if held in self.awaited[XidSource.KMSG]:
            self.awaited[XidSource.KMSG].remove(held)
        return True

    def see(self, report: XidReport) -> bool:
        if report.code is None:
            if self._newest is not None and self._newest.is_near(report):
                return False
            self._add(report, awaited_by=tuple(XidSource))
            return True
        known = self._awaited(report)
        if known is None:
            self._add(report, awaited_by=tuple(source for source in XidSource if source is not report.source))
            return True
        if report.source is XidSource.KMSG:
            # The kernel stamps its records; an NVML event only has the time at which it was fetched.
            known.at = report.latest
            if known.name is None and known in self._held:
                self._held.remove(known)
                self._count(known, XidName(self.xid, FATAL_LABELS[report.fatal]))
        return False

    def _awaited(self, report: XidReport) -> _Incident | None:
        queue = self.awaited[report.source]
        while queue and report.earliest - queue[0].latest > WINDOW_SECONDS:
            queue.popleft()
        return queue.popleft() if queue and queue[0].is_near(report) else None

    def _add(self, report: XidReport, awaited_by: tuple[XidSource, ...]) -> None:
        incident = self._newest = _Incident(report.earliest, report.latest, report.latest)
        if self.told_by_text and report.source is XidSource.NVML:
            if len(self._held) == _MOST_AWAITED:
                self._count(self._held.popleft(), XidName(self.xid))
            self._held.append(incident)
        else:
            self._count(incident, XidName(self.xid, FATAL_LABELS[report.fatal]))
        for source in awaited_by:
            queue = self.awaited[source]
            while queue and incident.earliest - queue[0].latest > _AWAITED_SECONDS:
                queue.popleft()
            queue.append(incident)

    def _count(self, incident: _Incident, name: XidName) -> None:
        incident.name = name
        self._counted.append((name, incident))
        series = self._series.get(name)
        if series is None:
            self._series[name] = _Series(incident)
            return
        series.before_newest, series.newest = series.last_at, incident
        series.count += 1
