"""The judge's history of one GPU: its work, its current class, and its classes over the last half hour."""

import math
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from gpu_triage.judge.bottleneck.classes import Bottleneck, Case, Work, bottleneck_of
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.past import Past
from gpu_triage.machine import Moment, WallTimes
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES

STRIP_SECONDS: Final = 1800.0  # how far back the strip of classes reaches
_MOST_PERIODS: Final = 400  # one per round of the medium tier over STRIP_SECONDS, the fastest a class can change
_WORKS: Final = frozenset({"thermal", "power_brake", "pcie_link", "power_cap", "clock_cap", "compute"})
"""Classes of a GPU that is busy with more than waiting for others."""
_UNKNOWN: Final = frozenset({"unattributed", "idle"})
"""Classes without a known cause or job, which must match for `UNKNOWN_SECONDS` before they are entered."""
_TAKES_TIME: Final = frozenset({"hung", "idle"})
"""Classes that seconds do not prove."""
_HELD_OFF_BY_A_PAUSE: Final = frozenset({"numa", "unattributed"})
"""Classes not entered during a pause: neither explains why a job suddenly stopped after running at full pace."""


class ClassPeriod(NamedTuple):
    """A period a GPU spent in one class, in seconds before the judgment; `ended_ago` is 0 for the current class."""

    name: str
    began_ago: float
    ended_ago: float


class Soon:
    """What the last seconds showed, judgment by judgment, to tell news from what comes and goes."""

    def __init__(self) -> None:
        self.lasted = 0.0  # for how many seconds they have shown the same class
        self._name = ""
        self._since = 0.0
        self._is_news = False
        self._seen_at: dict[str, float] = {}

    def note(self, name: str, now: float) -> bool:
        """Note what they show now; return whether it is news: not seen for `NEWS_SECONDS` before it began."""
        if name != self._name:
            self._name, self._since = name, now
            self._is_news = now - self._seen_at.get(name, -math.inf) >= thresholds.NEWS_SECONDS
        self.lasted = now - self._since
        self._seen_at[name] = now
        return self._is_news


class GpuMemory:
    """Class of a GPU, since when, and the candidate for the next; continues the `seconds` of a GPU that returns."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = dict.fromkeys(BOTTLENECK_CLASSES, 0.0) if seconds is None else seconds
        self.name: str | None = None
        self._since: float | None = None
        self._walls = WallTimes()
        self._work = Work()
        self._worked_at: float | None = None
        self._judged_at = -math.inf
        self._interrupted = False
        self._matched = ("", 0.0)  # why the current class matched, and when it last did
        self._sudden_at = -math.inf
        self._not_begun_at = -math.inf
        self._pace = Past(thresholds.USUAL_SECONDS)
        self._soon = Soon()
        self._next: tuple[str, float] | None = None
        self._periods: deque[tuple[str, float, float]] = deque(maxlen=_MOST_PERIODS)  # class, and from when to when

    def judge(self, gpu: GpuEvidence, host: HostEvidence, longest_gap_seconds: float) -> Bottleneck:
        """Judge the GPU and return its class; a gap of more than `longest_gap_seconds` before is not counted."""
        seconds = host.at.monotonic - self._judged_at
        found = self._judge(gpu, host, longest_gap_seconds)
        loss = self._loss(gpu, seconds if seconds <= longest_gap_seconds else 0.0)
        now = host.at.monotonic
        if found.name in _WORKS:
            self._worked_at = now
        if gpu.deserted or self._work.starting_seconds:
            self._not_begun_at = now
        since = now if self._since is None or found.name != "communication" else self._since
        return found._replace(
            stopped_seconds=self._work.stopped_seconds,
            starting_seconds=self._work.starting_seconds,
            spinning_seconds=now - since,
            spins_after_work=self._worked_at is not None and since - self._worked_at <= thresholds.WORKED_SECONDS,
            loss=loss,
            lately=self._lately(now),
        )

    def _loss(self, gpu: GpuEvidence, seconds: float) -> float | None:
        """Note the pace at which its job worked in the last seconds; return how far it is below the usual one."""
        if gpu.deserted or self._work.others_began:
            self._pace = Past(thresholds.USUAL_SECONDS)
        share = gpu.busy_share or 0.0
        if share < thresholds.LOADED_SHARE:
            return None  # it pauses, as for a checkpoint
        loss = self._pace.shortfall(share)
        self._pace.note(seconds, share * seconds)
        return loss

    def _judge(self, gpu: GpuEvidence, host: HostEvidence, longest_gap_seconds: float) -> Bottleneck:
        now = host.at.monotonic
        self._work.note(gpu, now)
        often = now - self._judged_at <= thresholds.SOON_SECONDS  # else those seconds have a single round
        self._count(now, longest_gap_seconds)
        if gpu.up and not gpu.was_read and not host.released:
            # A GPU always has a class, but it is meaningless before the first reading.
            self.interrupt()
        found = self._sudden(gpu, host) if often else None
        if found is not None:
            self._sudden_at = now
        else:
            case = self._case(gpu, host)
            found = bottleneck_of(case)
            if self.name is not None and self._holds(self.name, found.name, case, now):
                return self._held(self.name, now)
        if found.name != self.name:
            self.name, self._since = found.name, now
            self._periods.append((found.name, now, now))
        self._next, self._matched = None, (found.because, now)
        return found

    def _case(self, gpu: GpuEvidence, host: HostEvidence) -> Case:
        """Return the case over the window; what was before a sudden change does not show what came then."""
        seconds = host.at.monotonic - self._sudden_at + thresholds.SOON_SECONDS
        if seconds < host.seconds:
            host = host.over(seconds)
            gpu = host.same(gpu)
        return Case(gpu, host, self._work, self.name)

    def _held(self, name: str, now: float) -> Bottleneck:
        """Return the class that it stays in, in that class's own words."""
        if self._work.paused:
            return Bottleneck(name, f"pauses, for {self._work.stopped_seconds:.0f} s now; {name} before that")
        because, matched_at = self._matched
        return Bottleneck(name, f"{because}, until {now - matched_at:.0f} s ago")

    def _sudden(self, gpu: GpuEvidence, host: HostEvidence) -> Bottleneck | None:
        """Return the class that the last seconds show strongly, if it is another one, and news; else None."""
        if self._is_young(host.at.monotonic) or host.released or not gpu.was_read:
            return None
        case = Case(host.soon.same(gpu), host.soon, self._work, self.name, soon=True)
        found = bottleneck_of(case)
        unexplained = found.name == "unattributed"
        # A GPU that hardly waits may just as well be in compute: that shows nothing.
        name = "" if unexplained and not case.waiting else found.name
        is_news = self._soon.note(name, host.at.monotonic)
        held_off = case.pauses and name in _HELD_OFF_BY_A_PAUSE
        if not is_news or name in {"", self.name, *_TAKES_TIME} or held_off:
            return None
        return None if unexplained and not self._still_waits(gpu) else found

    def _still_waits(self, gpu: GpuEvidence) -> bool:
        """Whether it has waited for so long, for nothing known, that this is more than an interruption."""
        share = gpu.over(thresholds.STILL_SECONDS).busy_share or 0.0
        return self._soon.lasted >= thresholds.NO_CAUSE_SECONDS and share < thresholds.SOON_WAITING_SHARE

    def interrupt(self) -> None:
        """Leave the time from the last judgment to the next uncounted, because this judgment failed."""
        self._interrupted = True

    def since(self, now: Moment) -> float | None:
        """Return the Unix time in seconds at which the GPU entered its class; None before it was judged."""
        return None if self._since is None else self._walls.of(self._since, now)

    def strip(self, now: float) -> tuple[ClassPeriod, ...]:
        """Return the last half hour, oldest first, without the time that was not counted."""
        recent = ((name, max(began, now - STRIP_SECONDS), ended) for name, began, ended in self._periods)
        return tuple(ClassPeriod(name, now - began, now - ended) for name, began, ended in recent if ended > began)

    def _lately(self, now: float) -> Mapping[str, float]:
        """Return the share of the last minutes in each class; what was before its job began to work does not count."""
        spent: dict[str, float] = {}
        longest = min(thresholds.CLASS_SECONDS, now - self._not_begun_at)
        for name, *ago in self.strip(now):
            began, ended = (min(each, longest) for each in ago)
            spent[name] = spent.get(name, 0.0) + began - ended
        seen = sum(spent.values())
        return {name: each / seen for name, each in spent.items()} if seen >= thresholds.CLASS_SEEN_SECONDS else {}

    def _count(self, now: float, longest_gap_seconds: float) -> None:
        before, self._judged_at = self._judged_at, now
        gap, self._interrupted = self._interrupted or now - before > longest_gap_seconds, False
        if self.name is None:
            return
        name, began, ended = self._periods[-1]
        if not gap:
            self.seconds[self.name] += now - before
            self._periods[-1] = (name, began, now)
        elif began < ended or len(self._periods) == 1:
            self._periods.append((name, now, now))
        else:
            self._periods[-1] = (name, now, now)  # a gap after a gap: it must not displace what was counted

    def _is_young(self, now: float) -> bool:
        """Whether it was first judged less than a window ago, and has nothing to stay in."""
        return not self._periods or now - self._periods[0][1] < thresholds.WINDOW_SECONDS

    def _holds(self, name: str, found: str, case: Case, now: float) -> bool:
        """Whether the GPU stays in its class although another class matched."""
        if case.host.released or self._is_young(now) or found in (name, "sick") or name == "sick":
            return False
        if self._next is None or self._next[0] != found:
            self._next = (found, now)
        if case.pauses and not case.gpu.unobserved and found in _HELD_OFF_BY_A_PAUSE:
            return True
        if found == "idle" and (case.gpu.deserted or case.gpu.processes_known) and case.gpu.busy_share is not None:
            return False  # the job is gone, and its class with it
        return found in _UNKNOWN and now - self._next[1] < thresholds.UNKNOWN_SECONDS
