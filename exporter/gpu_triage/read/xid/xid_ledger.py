"""Count Xids by GPU and code, each incident once even if two sources report it; and SXids by switch and code."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpu_triage.driver.nvml.session import MAX_GPUS
from gpu_triage.read.xid.codes import XID_CODES
from gpu_triage.read.xid.xid_events import OFF_THE_BUS, UNKNOWN, SwitchError, XidReport, XidSource

WINDOW_SECONDS: Final = 5.0  # maximum difference between two sources' times of the same incident
CODES_PER_GPU: Final = 64
"""Distinct Xids kept per GPU; NVIDIA documents about 160, and no GPU reports more than a handful."""

OTHER: Final = "other"  # the name under which all further Xids are counted
UNKNOWN_XID: Final = "unknown"
"""The name of an incident with a code that NVML does not know and the kernel log does not contain."""

_MOST_AWAITED: Final = 4096  # maximum incidents per GPU and code that wait for a report from the other source
_AWAITED_SECONDS: Final = 600.0
"""How long an incident waits for the other source; without a limit it would wait forever if one is unavailable."""

_MOST_NEWS: Final = 4096  # maximum incidents kept for `take_counted`
FATAL_LABELS: Final[Mapping[bool | None, str]] = {None: "", True: "true", False: "false"}
"""Values of the label `fatal`: empty if the kernel log does not state it."""


class XidName(NamedTuple):
    """Labels of an Xid: code, `OTHER` or `UNKNOWN_XID`; `fatal` is ``true`` or ``false`` by the kernel log, else ""."""

    xid: str
    fatal: str = ""


@dataclass(frozen=True, slots=True)
class XidCount:
    """Incidents of one Xid on one GPU; the last in monotonic seconds in a ledger, in Unix seconds when published."""

    count: int
    last_at: float


XidCounts = dict[XidName, XidCount]


def add_counts(known: XidCounts, more: XidCounts) -> None:
    """Add counts to the known ones; beyond CODES_PER_GPU names, as `OTHER`."""
    for name, count in more.items():
        kept = name if name in known or len(known) < CODES_PER_GPU else XidName(OTHER, name.fatal)
        had = known.get(kept)
        known[kept] = count if had is None else XidCount(had.count + count.count, max(had.last_at, count.last_at))


@dataclass(frozen=True, slots=True)
class CountedXid:
    """An incident that was counted under this name, at the monotonic second at which it happened."""

    gpu: str
    name: XidName
    at: float


class XidLedger:
    """Counts incidents. Sources may be read late and in any order, but each delivers its own reports in order.

    A report is matched to the oldest incident of that GPU and Xid that its source has not reported yet, if their times
    are within the window; otherwise it is a new incident. So repeated reports by one source are separate incidents.
    "Fallen off the bus" without a code is Xid 79, printed several times: it is dropped with another one in the window.

    For some codes, only the kernel log states whether they are fatal. If only NVML has reported such an Xid, it is held
    back until the kernel log does too, or until `release`: counts never move from one name to another. The same applies
    to an Xid that NVML does not know: it is matched with one in the kernel log within the window.
    """

    def __init__(self) -> None:
        self._gpus: dict[str, dict[str, _Tally]] = {}
        self._counted: deque[CountedXid] = deque(maxlen=_MOST_NEWS)

    def see(self, report: XidReport) -> bool:
        if report.code == UNKNOWN and self._is_known(report):
            return False
        tally = self._tally(report)
        if tally is None:
            return False
        is_first = tally.see(report)
        unknown = self._gpus[report.gpu].get(UNKNOWN_XID)
        if is_first and report.source is XidSource.KMSG and unknown is not None and unknown.drop_held(report):
            # NVML reported this incident without a known code.
            tally.stop_awaiting(XidSource.NVML)
        return is_first

    def release(self, until: float) -> None:
        """Count held-back incidents that were reported by this monotonic second."""
        for tallies in self._gpus.values():
            for tally in tallies.values():
                tally.release(until)

    def take_counted(self) -> tuple[CountedXid, ...]:
        """Incidents counted since the last call, oldest first; in a flood, only the latest."""
        counted = tuple(self._counted)
        self._counted.clear()
        return counted

    def counts(self) -> Mapping[str, XidCounts]:
        """Counts by `XidReport.gpu`, then by Xid; without GPUs beyond the first 256, more than any host has."""
        return {gpu: counts for gpu, tallies in self._gpus.items() if (counts := _counts(tallies))}

    def settle(self, gpu: str, until: float) -> XidCounts:
        """Remove and return a GPU's counts up to this monotonic second, by Xid.

        An Xid that occurred both before and after is not split, because times of single incidents are not kept.
        """
        tallies = self._gpus.get(gpu, {})
        over = {xid: tally for xid, tally in tallies.items() if tally.began_by(until)}
        for xid, tally in over.items():
            tally.release(until)
            del tallies[xid]
        if not tallies:
            self._gpus.pop(gpu, None)
        return _counts(over)

    def _is_known(self, report: XidReport) -> bool:
        """Whether the kernel log already reported this incident, which NVML reports without a known code."""
        tallies = self._gpus.get(report.gpu, {})
        # Try high codes first: a code that NVML does not know is a new one.
        newest_first = sorted(tallies, key=lambda xid: int(xid) if xid.isdecimal() else 0, reverse=True)
        return any(tallies[xid].take_awaited(report) is not None for xid in newest_first)

    def _tally(self, report: XidReport) -> _Tally | None:
        if report.gpu not in self._gpus and len(self._gpus) >= MAX_GPUS:
            return None
        tallies = self._gpus.setdefault(report.gpu, {})
        code = OFF_THE_BUS if report.code is None else report.code
        xid = UNKNOWN_XID if code == UNKNOWN else str(code)
        if xid not in tallies and len(tallies) >= CODES_PER_GPU:
            xid = OTHER
        known = None if xid == OTHER else XID_CODES.get(code)
        decided_by_text = xid == UNKNOWN_XID or (known is not None and known.fatal_in_text)
        return tallies.setdefault(xid, _Tally(report.gpu, xid, decided_by_text, self._counted))


def _counts(tallies: Mapping[str, _Tally]) -> XidCounts:
    series = (each for tally in tallies.values() for each in tally.series.items())
    return {name: XidCount(count, newest.last_at) for name, (count, newest) in series}


@dataclass(eq=False, slots=True)
class _Incident:
    """An incident that happened `at`, by the source with timestamps if any; the name is None while it is held back.

    `before` is the time of the latest one that was counted under its name before it.
    """

    earliest: float
    latest: float
    at: float
    name: XidName | None = None
    before: float = 0.0

    @property
    def last_at(self) -> float:
        return max(self.before, self.at)

    def is_near(self, report: XidReport) -> bool:
        return self.earliest - report.latest <= WINDOW_SECONDS and report.earliest - self.latest <= WINDOW_SECONDS


@dataclass(eq=False, slots=True)
class _Tally:
    """Incidents of one GPU and Xid; `decided_by_text` if only the kernel log has the code or whether it is fatal.

    `awaited` has the incidents that each source has not reported yet, oldest first; `counted` is the ledger's; `series`
    has how many incidents each name has, and the newest.
    """

    gpu: str
    xid: str
    decided_by_text: bool
    counted: deque[CountedXid]
    awaited: dict[XidSource, deque[_Incident]] = field(
        default_factory=lambda: {source: deque(maxlen=_MOST_AWAITED) for source in XidSource}
    )
    series: dict[XidName, tuple[int, _Incident]] = field(default_factory=dict)
    _held: deque[_Incident] = field(default_factory=lambda: deque(maxlen=_MOST_AWAITED))
    _newest: _Incident | None = None

    def began_by(self, at: float) -> bool:
        """Whether the latest incident may have happened by this monotonic second."""
        return self._newest is None or self._newest.earliest <= at

    def release(self, until: float) -> None:
        while self._held and self._held[0].latest <= until:
            self._count(self._held.popleft(), XidName(self.xid))

    def take_awaited(self, report: XidReport) -> _Incident | None:
        """The incident near this report that awaited it from this source, which then no longer does; or None."""
        queue = self.awaited[report.source]
        while queue and report.earliest - queue[0].latest > WINDOW_SECONDS:
            queue.popleft()
        return queue.popleft() if queue and queue[0].is_near(report) else None

    def stop_awaiting(self, source: XidSource) -> None:
        """Stop waiting for this source to report the newest incident."""
        if self._newest is not None and self._newest in self.awaited[source]:
            self.awaited[source].remove(self._newest)

    def drop_held(self, report: XidReport) -> bool:
        """Whether an incident near this report is held back; if so, discard it."""
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
        known = self.take_awaited(report)
        if known is None:
            self._add(report, awaited_by=tuple(source for source in XidSource if source is not report.source))
            return True
        if report.source is XidSource.KMSG:
            # The kernel timestamps its records; for an NVML event, only the time it was fetched is known.
            known.at = report.latest
            if known.name is None and known in self._held:
                self._held.remove(known)
                self._count(known, XidName(self.xid, FATAL_LABELS[report.fatal]))
        return False

    def _add(self, report: XidReport, awaited_by: tuple[XidSource, ...]) -> None:
        incident = self._newest = _Incident(report.earliest, report.latest, report.latest)
        if self.decided_by_text and report.source is XidSource.NVML:
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
        self.counted.append(CountedXid(self.gpu, name, incident.at))
        count, newest = self.series.get(name, (0, incident))
        if newest is not incident:
            incident.before = newest.last_at
        self.series[name] = (count + 1, incident)


_MOST_SWITCHES: Final = 64


def count_switch_error(counts: dict[str, XidCounts], error: SwitchError) -> None:
    """Count an SXid by switch and code, with the time of the latest."""
    if error.switch in counts or len(counts) < _MOST_SWITCHES:
        name = XidName(str(error.code), FATAL_LABELS[error.fatal])
        add_counts(counts.setdefault(error.switch, {}), {name: XidCount(1, error.at)})
