"""What the judge remembers of one GPU: when it worked, which class it is in since when, and its last half hour."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis import thresholds
from gpu_triage.diagnosis.ladder import Bottleneck, Case, Work
from gpu_triage.diagnosis.view import GpuView
from gpu_triage.machine import Moment

STRIP_SECONDS: Final = 1800.0
"""How far back the strip of classes reaches."""

_MOST_STRETCHES: Final = 400
"""One a round of the medium tier for as long: no GPU changes more often."""

_HELD_OFF_BY_A_PAUSE: Final = frozenset({"numa", "unattributed"})
"""Neither says why a job stopped that worked at full pace until then."""

_ENTERED_AFTER: Final[Mapping[str, float]] = MappingProxyType(
    {
        "unattributed": thresholds.CALM_SECONDS,
        "idle": thresholds.CALM_SECONDS,
        "communication": thresholds.SPINNING_SECONDS,
    }
)
"""Seconds for which a class must have been found before it is entered; others are entered at once."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time that a GPU spent in one class.

    Attributes:
        name: the class.
        began_ago, ended_ago: seconds before the judgement; 0 for what lasts.
    """

    name: str
    began_ago: float
    ended_ago: float


class WorkMemory:
    """When a GPU last worked, how much before it came to rest, and since when it rests or works again."""

    def __init__(self) -> None:
        self._worked_at: float | None = None
        self._pace = 0.0
        self._rests_since: float | None = None
        self._resumed_at: float | None = None
        self._worked_seconds = 0.0
        self._read: tuple[float, float] | None = None

    def note(self, gpu: GpuView, now: float) -> Work:
        """Take in what was read since the last time."""
        window_share = gpu.busy_share or 0.0
        if window_share >= thresholds.WORKING_SHARE:
            self._worked_at = now
        before = self._read
        share = self._share(gpu)
        if share is not None and before is not None and self._read is not None:
            self._take(share, before[0], self._read[0])
        recovering = self._recovers(now)
        if self._rests_since is None and not recovering:
            self._pace = window_share
        recently = self._worked_at is not None and now - self._worked_at <= thresholds.WORKED_SECONDS
        resting = None if self._rests_since is None else now - self._rests_since
        return Work(recently, resting, self._pace, recovering)

    def _take(self, share: float, began_at: float, ended_at: float) -> None:
        if share < thresholds.WORKING_SHARE:
            if self._rests_since is None:
                self._rests_since = began_at
            return
        if self._rests_since is not None:
            paused_seconds, self._rests_since = began_at - self._rests_since, None
            if paused_seconds >= thresholds.PAUSE_SECONDS:
                # One pause after the other is no pause: something keeps the job waiting.
                alone = self._resumed_at is None or began_at - self._resumed_at > thresholds.PAUSES_APART_SECONDS
                self._resumed_at, self._worked_seconds = (began_at if alone else None), 0.0
        self._worked_seconds += share * (ended_at - began_at)

    def _recovers(self, now: float) -> bool:
        """Whether the window still shows a pause since which it has worked at its pace, as far as can be told yet."""
        if self._resumed_at is None or self._pace < thresholds.WORKED_SHARE:
            return False
        seconds = now - self._resumed_at
        at_pace = self._worked_seconds >= thresholds.SAME_PACE * self._pace * seconds
        return seconds < thresholds.WINDOW_SECONDS and (at_pace or seconds < thresholds.RECENT_SECONDS)

    def _share(self, gpu: GpuView) -> float | None:
        """Share of the time since the last reading that it worked; None where nothing new was read."""
        busy = gpu.one(catalogue.BUSY_SECONDS)
        # Without a counter, as under MIG, the activity of the busiest instance stands for the time since.
        activity = max(gpu.series(catalogue.MIG_SM_ACTIVE), key=lambda track: track.last, default=None)
        track = busy or activity
        before = self._read
        if track is None:
            self._read = None
            return None
        if before is not None and track.last_at <= before[0]:
            return None
        self._read = (track.last_at, track.last)
        if before is None:
            return None
        video = (gpu.last(catalogue.ENCODER_UTILIZATION) or 0.0, gpu.last(catalogue.DECODER_UTILIZATION) or 0.0)
        kernels = track.last if busy is None else (track.last - before[1]) / (track.last_at - before[0])
        return max(kernels, *video)


class ClassMemory:
    """The class that a GPU is in: since when, for how long each was, and what would take its place."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(catalogue.BOTTLENECK_CLASSES, 0.0)
        self.name: str | None = None
        self.since: Moment | None = None
        self._first_at: float | None = None
        self._judged_at: float | None = None
        self._interrupted = False
        self._next: tuple[str, float] | None = None
        self._changes: deque[tuple[float, str]] = deque(maxlen=_MOST_STRETCHES)
        self._gaps: deque[tuple[float, float]] = deque(maxlen=_MOST_STRETCHES)

    def settle(self, found: Bottleneck, case: Case, now: Moment, longest_gap_seconds: float) -> Bottleneck:
        """The class that the GPU is in from now on, given what was found.

        Args:
            found: the class by the ladder.
            case: what it was found in.
            now: of the judgement.
            longest_gap_seconds: since the judgement before; a longer time was judged by nobody, and does not count.
        """
        self._count(now.monotonic, longest_gap_seconds)
        if case.gpu.up and not case.gpu.was_read and not case.host.released:
            # It has a class at all times, but until its first reading that says nothing.
            self.interrupt()
        if self._first_at is None:
            self._first_at = now.monotonic
        if not self._holds(found, case, now.monotonic):
            self._enter(found.name, now)
            return found
        assert self.name is not None  # noqa: S101 - what holds has a name
        resting = case.work.resting_seconds
        if case.work.paused and resting is not None:
            return Bottleneck(self.name, f"pauses, for {resting:.0f} s now; {self.name} before that")
        return replace(found, name=self.name)

    def interrupt(self) -> None:
        """Count nothing from the last judgement to the next: this one failed."""
        self._interrupted = True

    def strip(self, now: float) -> tuple[Stretch, ...]:
        """The last half hour, oldest first."""
        begins = [*(at for at, _ in self._changes), now][1:]
        stretches = []
        for (began, name), ended in zip(self._changes, begins, strict=True):
            for start, end in self._without_gaps(max(began, now - STRIP_SECONDS), ended):
                stretches.append(Stretch(name, now - start, now - end))
        return tuple(stretches)

    def _without_gaps(self, start: float, end: float) -> list[tuple[float, float]]:
        pieces = []
        for gap_start, gap_end in self._gaps:
            if gap_end > start and gap_start < end:
                pieces.append((start, gap_start))
                start = gap_end
        pieces.append((start, end))
        return [(a, b) for a, b in pieces if b > a]

    def _count(self, now: float, longest_gap_seconds: float) -> None:
        before, self._judged_at = self._judged_at, now
        interrupted, self._interrupted = self._interrupted, False
        if self.name is None or before is None:
            return
        if interrupted or now - before > longest_gap_seconds:
            self._gaps.append((before, now))
        else:
            self.seconds[self.name] += now - before

    def _enter(self, name: str, now: Moment) -> None:
        self._next = None
        if name != self.name:
            self.name, self.since = name, now
            self._changes.append((now.monotonic, name))

    def _holds(self, found: Bottleneck, case: Case, now: float) -> bool:
        """Whether the GPU stays in its class though another was found."""
        young = self._first_at is None or now - self._first_at < thresholds.WINDOW_SECONDS
        if case.host.released or young or self.name is None or found.name in (self.name, "sick") or self.name == "sick":
            return False
        if self._next is None or self._next[0] != found.name:
            self._next = (found.name, now)
        pauses = (case.work.paused and case.gpu.occupied) or case.work.recovering
        if pauses and found.name in _HELD_OFF_BY_A_PAUSE:
            return True
        after = _ENTERED_AFTER.get(found.name, 0.0)
        if self.name == "compute" and found.name == "unattributed":
            after = thresholds.LESS_BUSY_SECONDS
        return now - self._next[1] < after
