"""When findings became pending, were confirmed and ended, for a host judged on a virtual clock; as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Final

from gpu_triage.cli.machines import judged_host
from gpu_triage.documents import printable
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.settings import Change, JudgeSettings
from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.judge.report.machine_readable import changed_setting
from gpu_triage.machine import Machine, Moment, SteppedClock
from gpu_triage.options.config import Config
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.sampler.lanes import InlineLane
from gpu_triage.sampler.outcomes import OutcomeStore
from gpu_triage.sampler.sampler import Sampler

Key = tuple[str, str]
"""A finding's subject (UUID, or its name in messages) and code."""


@dataclass(slots=True)
class Period:
    """One occurrence of a finding; Unix seconds by the host's clock.

    Attributes:
        pending_at: when its condition was first found to hold.
        confirmed_at: None if it was not confirmed.
        ended_at: when it ended or, if never confirmed, its condition did; None if present at the end of the timeline.
    """

    pending_at: float
    confirmed_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class FindingHistory:
    """A finding as last seen, and all its occurrences, oldest first."""

    finding: Finding
    periods: list[Period] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Timelines:
    """Results of several judges with different settings on the same samples.

    Attributes:
        began_at, ended_at: period of the samples, Unix seconds by the host's clock.
        of: findings and their occurrences, one mapping per judge, in the order of the settings.
    """

    began_at: float
    ended_at: float
    of: tuple[Mapping[Key, FindingHistory], ...]


class _WatchedJudge(DaemonJudge):
    """The daemon's judge, recording the occurrences of its findings."""

    def __init__(self, config: Config, settings: JudgeSettings) -> None:
        super().__init__(config, judged_host(config, continuous=True))
        self.use(settings)
        self.courses: dict[Key, FindingHistory] = {}

    def judge(self, store: OutcomeStore, now: Moment) -> Iterator[Sample]:
        """Judge like DaemonJudge, and record the findings."""
        samples = super().judge(store, now)
        assert self.latest is not None  # noqa: S101 - it has just judged
        found = {(each.uuid or each.subject, each.check.code): each for each in self.latest.report.findings}
        for key, finding in found.items():
            self._note(key, finding, now.wall)
        for key, course in self.courses.items():
            if key not in found and course.periods[-1].ended_at is None:
                course.periods[-1].ended_at = now.wall
        return samples

    def _note(self, key: Key, finding: Finding, wall: float) -> None:
        before = self.courses.get(key)
        periods = [] if before is None else before.periods
        if not periods or periods[-1].ended_at is not None:
            periods.append(Period(wall))
        if finding.state is State.CONFIRMED and periods[-1].confirmed_at is None:
            periods[-1].confirmed_at = wall
        self.courses[key] = FindingHistory(finding, periods)


class _Judges:
    """Several judges on one sampler; the first one's output is published."""

    def __init__(self, judges: Sequence[_WatchedJudge]) -> None:
        self._judges = judges
        self.saved = judges[0].saved  # never written by this sampler

    def judge(self, store: OutcomeStore, now: Moment) -> Iterator[Sample]:
        """Run all judges; see `DaemonJudge.judge`."""
        samples, *_ = [judge.judge(store, now) for judge in self._judges]
        return samples

    def interrupt(self) -> None:
        """Interrupt all judges; see `DaemonJudge.interrupt`."""
        for judge in self._judges:
            judge.interrupt()


def timelines(
    machine: Machine,
    config: Config,
    seconds: float,
    settings: Sequence[JudgeSettings],
    on_progress: Callable[[float], None] = lambda _seconds: None,
) -> Timelines:
    """Return what judges with these settings find on a machine with a stepped clock, run at full speed.

    Args:
        machine: a simulated or recorded machine.
        config: as for the daemon; its state directory is not written.
        seconds: how long to run.
        settings: one or more; the machine is sampled once for all of them.
        on_progress: called with the number of seconds completed.
    """
    clock = machine.clock
    assert isinstance(clock, SteppedClock)  # noqa: S101 - the caller chose it
    judges = [_WatchedJudge(config, each) for each in settings]
    sampler = Sampler(
        machine, config, lambda name: InlineLane(clock, name), GPU_COLLECTORS, HOST_COLLECTORS, judge=_Judges(judges)
    )
    began = clock.now()
    while (elapsed := clock.now().monotonic - began.monotonic) <= seconds:
        sampler.step()
        sampler.publish()
        on_progress(elapsed)
        clock.advance(config.sample_fast_seconds)
    sampler.close(lambda condition: condition())
    return Timelines(began.wall, began.wall + seconds, tuple(judge.courses for judge in judges))


FORMAT: Final = "gpu-triage-judge"
VERSION: Final = 1
_MOST_PERIODS: Final = 6
"""Maximum number of occurrences shown per finding; if there are more, the first ones and the last are shown."""


def render_text(found: Timelines, source: str, names: Sequence[str], changes: Sequence[Change]) -> str:
    """Return the timelines as text; `names` label the judges, and `changes` are settings that differ between them."""
    began, ended = (_moment(each) for each in (found.began_at, found.ended_at))
    lasted = length_of_time(found.ended_at - found.began_at)
    lines = [f"{printable(source)}: {began:%Y-%m-%d %H:%M:%S} to {ended:%Y-%m-%d %H:%M:%S} UTC, {lasted}"]
    lines += (f"  {each.text}" for each in changes)
    keys = _keys(found)
    if not keys:
        return "\n".join((*lines, "", "No findings.")) + "\n"
    differing = [key for key in keys if _differs(found, key)]
    if len(found.of) > 1:
        lines += ["", f"{len(differing)} of {len(keys)} findings {'differs' if len(differing) == 1 else 'differ'}."]
    for key in (*differing, *(each for each in keys if each not in differing)):
        lines += _finding(found, key, names)
    return "\n".join(lines) + "\n"


def render_json(found: Timelines, source: str, names: Sequence[str], changes: Sequence[Change]) -> str:
    """Return the timelines as JSON; docs/check.md describes the format. Times are Unix seconds by the host's clock."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "source": source,
        "began_at": round(found.began_at, 3),
        "ended_at": round(found.ended_at, 3),
        "settings": [changed_setting(each) for each in changes],
        "findings": [_finding_document(found, key, names) for key in _keys(found)],
    }
    return json.dumps(document, indent=2) + "\n"


def _finding_document(found: Timelines, key: Key, names: Sequence[str]) -> dict[str, Any]:
    finding = _course(found, key).finding
    return {
        "code": finding.check.code,
        "severity": finding.severity.value,
        "alert": finding.check.alert,
        "gpu": finding.gpu,
        "uuid": finding.uuid or None,
        "pci_bus_id": finding.pci_bus_id or None,
        "measured": finding.measured,
        "differs": _differs(found, key),
        "periods": {
            name: [
                {
                    "pending_at": _rounded(p.pending_at),
                    "confirmed_at": _rounded(p.confirmed_at),
                    "ended_at": _rounded(p.ended_at),
                }
                for p in _periods(courses.get(key))
            ]
            for name, courses in zip(names, found.of, strict=True)
        },
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _moment(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, timezone.utc)


def _keys(found: Timelines) -> list[Key]:
    """Return every finding of any judge: most severe first, then by time."""
    keys = dict.fromkeys(key for courses in found.of for key in courses)

    def rank(key: Key) -> tuple[int, float]:
        course = _course(found, key)
        return -course.finding.severity.rank, course.periods[0].pending_at

    return sorted(keys, key=rank)


def _course(found: Timelines, key: Key) -> FindingHistory:
    return next(courses[key] for courses in found.of if key in courses)


def _periods(course: FindingHistory | None) -> Sequence[Period]:
    return () if course is None else course.periods


def _differs(found: Timelines, key: Key) -> bool:
    first, *others = (_periods(courses.get(key)) for courses in found.of)
    return any(other != first for other in others)


def _finding(found: Timelines, key: Key, names: Sequence[str]) -> Iterator[str]:
    finding = _course(found, key).finding
    yield ""
    yield f"{finding.severity.value} {finding.subject} {finding.check.code}: {printable(finding.measured)}"
    width = max(map(len, names)) + 2 if len(names) > 1 else 0
    for name, courses in zip(names, found.of, strict=True):
        label = name.ljust(width) if width else ""
        for line in _lines(_periods(courses.get(key))):
            yield f"  {label}{line}"
            label = " " * width


def _lines(periods: Sequence[Period]) -> Iterator[str]:
    if not periods:
        yield "not found"
        return
    shown = periods if len(periods) <= _MOST_PERIODS else (*periods[: _MOST_PERIODS - 1], periods[-1])
    for place, period in enumerate(shown):
        if place == _MOST_PERIODS - 1 and len(periods) > _MOST_PERIODS:
            yield f"{len(periods) - _MOST_PERIODS} more times"
        yield ", ".join(_stages(period))


def _stages(period: Period) -> Iterator[str]:
    yield f"pending {_moment(period.pending_at):%H:%M:%S}"
    if period.confirmed_at is not None:
        yield f"confirmed {_moment(period.confirmed_at):%H:%M:%S}"
    if period.ended_at is not None:
        word = "over" if period.confirmed_at is None else "ended"
        yield f"{word} {_moment(period.ended_at):%H:%M:%S}"
    elif period.confirmed_at is None:
        yield "not confirmed by the end"
