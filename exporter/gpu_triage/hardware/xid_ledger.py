"""Xids by GPU and code, each incident counted once though two sources report it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_triage.hardware.nvml import MAX_GPUS
from gpu_triage.hardware.xid_events import OFF_THE_BUS, XidReport, XidSource

WINDOW_SECONDS: Final = 5.0
"""How far apart two sources' times of one incident may lie."""

CODES_PER_GPU: Final = 64
"""Distinct Xids kept for one GPU; NVIDIA documents some 130, no board shows more than a handful."""

OTHER: Final = "other"
"""The Xid under which all further ones are counted."""

_MOST_AWAITED: Final = 4096
"""Incidents of one GPU and code that may wait for the other source at a time."""


@dataclass(frozen=True, slots=True)
class XidCount:
    """What one GPU had of one Xid.

    Attributes:
        count: incidents.
        last_at: when the last one happened, Unix seconds.
    """

    count: int
    last_at: float


class XidLedger:
    """Counts incidents. Sources may be read in any order and late, each in the order of its own reports.

    A report is of the oldest incident of that GPU and Xid that its source has not reported yet, if their times lie
    within the window; else it is a new one. So a source's own repeats are incidents of their own. "Fallen off the
    bus" without a code is Xid 79, and never a second one beside another within the window: the driver says it
    several times.
    """

    def __init__(self) -> None:
        self._gpus: dict[str, dict[str, _Tally]] = {}

    def see(self, report: XidReport) -> bool:
        """Take in a report; returns whether it is the first of its incident."""
        tally = self._tally(report)
        return tally is not None and tally.see(report)

    def counts(self) -> Mapping[str, Mapping[str, XidCount]]:
        """What every GPU had, by `XidReport.gpu` and then by Xid as a label writes it.

        A GPU without Xids is not in it; nor are any but the first 256 GPUs, which no host has.
        """
        return {
            gpu: {xid: XidCount(tally.count, tally.last_at) for xid, tally in tallies.items()}
            for gpu, tallies in self._gpus.items()
        }

    def settle(self, gpu: str, until: float) -> dict[str, XidCount]:
        """Close the account of a GPU: what it had up to this monotonic second, by Xid, which is then forgotten here.

        An Xid that it had both before and after stays whole: which of its incidents was when is not kept.
        """
        tallies = self._gpus.get(gpu, {})
        over = {xid: tally for xid, tally in tallies.items() if tally.began_by(until)}
        for xid in over:
            del tallies[xid]
        if not tallies:
            self._gpus.pop(gpu, None)
        return {xid: XidCount(tally.count, tally.last_at) for xid, tally in over.items()}

    def _tally(self, report: XidReport) -> _Tally | None:
        if report.gpu not in self._gpus and len(self._gpus) >= MAX_GPUS:
            return None
        tallies = self._gpus.setdefault(report.gpu, {})
        xid = str(OFF_THE_BUS if report.code is None else report.code)
        if xid not in tallies and len(tallies) >= CODES_PER_GPU:
            xid = OTHER
        return tallies.setdefault(xid, _Tally())


@dataclass(eq=False, slots=True)
class _Incident:
    """An incident as its first report tells it; `wall` as the source with a clock does."""

    earliest: float
    latest: float
    wall: float

    def is_near(self, report: XidReport) -> bool:
        return self.earliest - report.latest <= WINDOW_SECONDS and report.earliest - self.latest <= WINDOW_SECONDS


def _queues() -> dict[XidSource, deque[_Incident]]:
    return {source: deque(maxlen=_MOST_AWAITED) for source in XidSource}


@dataclass(eq=False, slots=True)
class _Tally:
    """Incidents of one GPU and Xid.

    Attributes:
        count: of all.
        awaited: by source, those it has not reported yet, oldest first.
    """

    count: int = 0
    awaited: dict[XidSource, deque[_Incident]] = field(default_factory=_queues)
    _newest: _Incident | None = None
    _before_newest: float = 0.0

    @property
    def last_at(self) -> float:
        """When the last incident happened."""
        return max(self._before_newest, self._newest.wall if self._newest else 0.0)

    def began_by(self, at: float) -> bool:
        """Whether the last incident may have happened by this monotonic second."""
        return self._newest is None or self._newest.earliest <= at

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
            known.wall = report.wall
        return False

    def _awaited(self, report: XidReport) -> _Incident | None:
        queue = self.awaited[report.source]
        while queue and report.earliest - queue[0].latest > WINDOW_SECONDS:
            queue.popleft()
        return queue.popleft() if queue and queue[0].is_near(report) else None

    def _add(self, report: XidReport, awaited_by: tuple[XidSource, ...]) -> None:
        self._before_newest = self.last_at
        self._newest = _Incident(report.earliest, report.latest, report.wall)
        self.count += 1
        for source in awaited_by:
            self.awaited[source].append(self._newest)
