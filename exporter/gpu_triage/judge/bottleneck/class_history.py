"""The judge's history of one GPU: its work, its current class, and its classes over the last half hour."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.judge.bottleneck.classes import Bottleneck, Case, Work, bottleneck_of
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.machine import Moment, WallTimes
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES

STRIP_SECONDS: Final = 1800.0  # how far back the strip of classes reaches
_MOST_STRETCHES: Final = 400  # one per round of the medium tier over STRIP_SECONDS, the fastest a class can change
_WORKS: Final = frozenset({"thermal", "power_brake", "pcie_link", "power_cap", "clock_cap", "compute"})
"""Classes of a GPU that is busy with more than waiting for others."""
_TAKES_TIME: Final = frozenset({"hung", "unattributed", "idle"})
"""Classes that a few seconds do not prove."""
_HELD_OFF_BY_A_PAUSE: Final = frozenset({"numa", "unattributed"})
"""Classes not entered during a pause: neither explains why a job suddenly stopped after running at full pace."""

_ENTERED_AFTER: Final[Mapping[str, float]] = MappingProxyType(
    {
        "unattributed": thresholds.UNKNOWN_SECONDS,
        "idle": thresholds.UNKNOWN_SECONDS,
    }
)
"""How long in seconds a class must match before it is entered; other classes are entered at once."""


class ClassPeriod(NamedTuple):
    """A period a GPU spent in one class, in seconds before the judgment; `ended_ago` is 0 for the current class."""

    name: str
    began_ago: float
    ended_ago: float


class Soon:
    """What the last seconds showed, judgment by judgment, to tell news from what comes and goes."""

    def __init__(self) -> None:
        self._name = ""
        self._since = 0.0
        self._left: dict[str, float] = {}

    def note(self, name: str, now: float) -> bool:
        """Note what they show now; return whether it is news: not seen for `NEWS_SECONDS` before it began."""
        if name != self._name:
            if self._name:
                self._left[self._name] = now
            self._name, self._since = name, now
        return self._since - self._left.get(name, -math.inf) >= thresholds.NEWS_SECONDS


class GpuMemory:
    """The current class of a GPU, when it began, the time spent in each class, and the candidate for the next.

    It continues the `seconds` that a returning GPU already spent in each class.
    """

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = dict.fromkeys(BOTTLENECK_CLASSES, 0.0) if seconds is None else seconds
        self.name: str | None = None
        self._since: float | None = None
        self._walls = WallTimes()
        self._work = Work()
        self._first_at: float | None = None
        self._worked_at: float | None = None
        self._judged_at: float | None = None
        self._interrupted = False
        self._because = ""
        self._matched_at = 0.0
        self._sudden_at: float | None = None
        self._soon = Soon()
        self._next: tuple[str, float] | None = None
        self._changes: deque[tuple[float, str]] = deque(maxlen=_MOST_STRETCHES)
        self._gaps: deque[tuple[float, float]] = deque(maxlen=_MOST_STRETCHES)

    def judge(self, gpu: GpuEvidence, host: HostEvidence, longest_gap_seconds: float) -> Bottleneck:
        """Judge the GPU and return its current class.

        If the previous judgment is more than `longest_gap_seconds` old, the time since then is not counted.
        """
        found = self._judge(gpu, host, longest_gap_seconds)
        now = host.at.monotonic
        if found.name in _WORKS:
            self._worked_at = now
        since = now if self._since is None or found.name != "communication" else self._since
        return found._replace(
            stopped_seconds=self._work.stopped_seconds,
            spinning_seconds=now - since,
            spins_after_work=self._worked_at is not None and since - self._worked_at <= thresholds.WORKED_SECONDS,
            lately=self._lately(now),
        )

    def _judge(self, gpu: GpuEvidence, host: HostEvidence, longest_gap_seconds: float) -> Bottleneck:
        now = host.at
        self._work.note(gpu, now.monotonic)
        whole = gpu.seconds >= thresholds.WINDOW_SECONDS
        sudden = self._sudden(gpu, host) if whole else None
        if self._sudden_at is not None:
            # What was before the change does not show what came then.
            host = host.over(now.monotonic - self._sudden_at + thresholds.SOON_SECONDS)
            gpu = host.same(gpu)
        case = Case(gpu, host, self._work, self.name)
        found = bottleneck_of(case)
        if sudden is not None and found.name != "sick":
            found, self._sudden_at = sudden, now.monotonic
        if found.name == self.name or self.name is None:
            self._because, self._matched_at = found.because, now.monotonic
        self._count(now.monotonic, longest_gap_seconds)
        if gpu.up and not gpu.was_read and not host.released:
            # A GPU always has a class, but it is meaningless before the first reading.
            self.interrupt()
        if self._first_at is None:
            self._first_at = now.monotonic
        if found is sudden or self.name is None or not self._holds(self.name, found.name, case, now.monotonic):
            self._next = None
            if found.name != self.name:
                self.name, self._since = found.name, now.monotonic
                self._because, self._matched_at = found.because, now.monotonic
                self._changes.append((now.monotonic, found.name))
            return found
        if case.work.paused:
            because = f"pauses, for {case.work.stopped_seconds:.0f} s now; {self.name} before that"
            return Bottleneck(self.name, because)
        seconds = now.monotonic - self._matched_at
        return Bottleneck(self.name, f"{self._because}, until {seconds:.0f} s ago" if seconds else self._because)

    def _sudden(self, gpu: GpuEvidence, host: HostEvidence) -> Bottleneck | None:
        """Return the class that the last seconds show strongly, if it is another one, and news; else None."""
        if host.released or not gpu.was_read:
            return None
        found = bottleneck_of(Case(host.soon.same(gpu), host.soon, self._work, self.name, soon=True))
        is_news = self._soon.note(found.name, host.at.monotonic)
        pauses = (self._work.paused or self._work.recovering) and found.name in _HELD_OFF_BY_A_PAUSE
        if not is_news or found.name == self.name or found.name in _TAKES_TIME or pauses:
            return None
        return found

    def interrupt(self) -> None:
        """Leave the time from the last judgment to the next uncounted, because this judgment failed."""
        self._interrupted = True

    def since(self, now: Moment) -> float | None:
        """Return the Unix time in seconds at which the GPU entered its class; None before it was judged."""
        return None if self._since is None else self._walls.of(self._since, now)

    def strip(self, now: float) -> tuple[ClassPeriod, ...]:
        """Return the last half hour, oldest first."""
        ends = [*(at for at, _ in self._changes), now][1:]
        return tuple(
            ClassPeriod(name, now - start, now - end)
            for (began, name), ended in zip(self._changes, ends, strict=True)
            for start, end in self._without_gaps(max(began, now - STRIP_SECONDS), ended)
        )

    def _lately(self, now: float) -> Mapping[str, float]:
        spent: dict[str, float] = {}
        for name, *ago in self.strip(now):
            began, ended = (min(each, thresholds.CLASS_SECONDS) for each in ago)
            spent[name] = spent.get(name, 0.0) + began - ended
        seen = sum(spent.values())
        return {name: each / seen for name, each in spent.items()} if seen >= thresholds.CLASS_SEEN_SECONDS else {}

    def _without_gaps(self, start: float, end: float) -> Iterator[tuple[float, float]]:
        for gap_start, gap_end in self._gaps:
            if gap_end > start and gap_start < end:
                if gap_start > start:
                    yield start, gap_start
                start = gap_end
        if end > start:
            yield start, end

    def _count(self, now: float, longest_gap_seconds: float) -> None:
        before, self._judged_at = self._judged_at, now
        interrupted, self._interrupted = self._interrupted, False
        if self.name is None or before is None:
            return
        if interrupted or now - before > longest_gap_seconds:
            self._gaps.append((before, now))
        else:
            self.seconds[self.name] += now - before

    def _holds(self, name: str, found: str, case: Case, now: float) -> bool:
        """Whether the GPU stays in its class although another class matched."""
        young = self._first_at is None or now - self._first_at < thresholds.WINDOW_SECONDS
        if self._sudden_at is not None and now - self._sudden_at > thresholds.WINDOW_SECONDS:
            self._sudden_at = None
        if case.host.released or young or found in (name, "sick") or name == "sick":
            return False
        if self._next is None or self._next[0] != found:
            self._next = (found, now)
        pauses = (case.work.paused and case.gpu.occupied) or case.work.recovering
        if pauses and not case.gpu.unobserved and found in _HELD_OFF_BY_A_PAUSE:
            return True
        if found == "idle" and case.gpu.processes_known and case.gpu.busy_share is not None:
            return False  # the job is gone, and its class with it
        return now - self._next[1] < _ENTERED_AFTER.get(found, 0.0)
