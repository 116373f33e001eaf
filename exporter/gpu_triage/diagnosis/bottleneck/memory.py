"""What the judge remembers of one GPU: when it worked, which class it is in since when, and its last half hour."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.diagnosis.bottleneck.classes import Bottleneck, Case, bottleneck_of
from gpu_triage.diagnosis.bottleneck.work import Work
from gpu_triage.diagnosis.evidence import thresholds
from gpu_triage.diagnosis.evidence.gpu import GpuEvidence
from gpu_triage.diagnosis.evidence.host import HostEvidence
from gpu_triage.machine import Moment, WallTimes
from gpu_triage.subjects.judgement import BOTTLENECK_CLASSES

STRIP_SECONDS: Final = 1800.0  # how far back the strip of classes reaches
_MOST_STRETCHES: Final = 400  # one a round of the medium tier for as long: no GPU changes more often
_HELD_OFF_BY_A_PAUSE: Final = frozenset({"numa", "unattributed"})
"""Neither says why a job stopped that worked at full pace until then."""

_ENTERED_AFTER: Final[Mapping[str, float]] = MappingProxyType(
    {
        "unattributed": thresholds.UNKNOWN_SECONDS,
        "idle": thresholds.UNKNOWN_SECONDS,
        "communication": thresholds.SPINNING_SECONDS,
    }
)
"""Seconds for which a class must have been found before it is entered; others are entered at once."""


class Stretch(NamedTuple):
    """A time that a GPU spent in one class, in seconds before the judgement; 0 for what lasts."""

    name: str
    began_ago: float
    ended_ago: float


class GpuMemory:
    """The class that a GPU is in: since when, for how long each was, and what would take its place.

    Args:
        seconds: for how long each class was before; None for a GPU that is seen for the first time.
    """

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = dict.fromkeys(BOTTLENECK_CLASSES, 0.0) if seconds is None else seconds
        self.name: str | None = None
        self._since: float | None = None
        self._walls = WallTimes()
        self._work = Work()
        self._first_at: float | None = None
        self._judged_at: float | None = None
        self._interrupted = False
        self._next: tuple[str, float] | None = None
        self._changes: deque[tuple[float, str]] = deque(maxlen=_MOST_STRETCHES)
        self._gaps: deque[tuple[float, float]] = deque(maxlen=_MOST_STRETCHES)

    def judge(self, gpu: GpuEvidence, host: HostEvidence, longest_gap_seconds: float) -> Bottleneck:
        """The class that the GPU is in from now on.

        If the judgement before is longer ago than `longest_gap_seconds`, nobody judged the time since: it is not
        counted.
        """
        now = host.at
        self._work.note(gpu, now.monotonic)
        case = Case(gpu, host, self._work, self.name)
        found = bottleneck_of(case)
        self._count(now.monotonic, longest_gap_seconds)
        if gpu.up and not gpu.was_read and not host.released:
            # It has a class at all times, but until its first reading that says nothing.
            self.interrupt()
        if self._first_at is None:
            self._first_at = now.monotonic
        if self.name is None or not self._holds(self.name, found.name, case, now.monotonic):
            self._next = None
            if found.name != self.name:
                self.name, self._since = found.name, now.monotonic
                self._changes.append((now.monotonic, found.name))
            return found
        if case.work.paused:
            because = f"pauses, for {case.work.stopped_seconds:.0f} s now; {self.name} before that"
            return Bottleneck(self.name, because)
        return found._replace(name=self.name)

    def interrupt(self) -> None:
        """Count nothing from the last judgement to the next: this one failed."""
        self._interrupted = True

    def since(self, now: Moment) -> float | None:
        """Unix seconds at which the GPU came into its class; None before it was judged."""
        return None if self._since is None else self._walls.of(self._since, now)

    def strip(self, now: float) -> tuple[Stretch, ...]:
        """The last half hour, oldest first."""
        ends = [*(at for at, _ in self._changes), now][1:]
        return tuple(
            Stretch(name, now - start, now - end)
            for (began, name), ended in zip(self._changes, ends, strict=True)
            for start, end in self._without_gaps(max(began, now - STRIP_SECONDS), ended)
        )

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
        """Whether the GPU stays in its class though another was found."""
        young = self._first_at is None or now - self._first_at < thresholds.WINDOW_SECONDS
        if case.host.released or young or found in (name, "sick") or name == "sick":
            return False
        if self._next is None or self._next[0] != found:
            self._next = (found, now)
        pauses = (case.work.paused and case.gpu.occupied) or case.work.recovering
        if pauses and found in _HELD_OFF_BY_A_PAUSE:
            return True
        after = _ENTERED_AFTER.get(found, 0.0)
        if name == "compute" and found == "unattributed":
            after = thresholds.LESS_BUSY_SECONDS
        return now - self._next[1] < after
