"""When findings became pending, were confirmed and ended, on a host that is judged on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpu_triage.config import Config
from gpu_triage.diagnosis.findings.finding import Finding, State
from gpu_triage.diagnosis.findings.settings import JudgeSettings
from gpu_triage.diagnosis.judge import DaemonJudge
from gpu_triage.machine import Machine, Moment, SteppedClock
from gpu_triage.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.sampler.lanes import InlineLane
from gpu_triage.sampler.outcomes import OutcomeStore
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.subjects.metric import Sample

Key = tuple[str, str]
"""A finding's subject (UUID, or how messages call it) and its code."""


@dataclass(slots=True)
class Period:
    """One time that a finding was there; Unix seconds by the host's clock.

    Attributes:
        pending_at: when its condition was first judged to hold.
        confirmed_at: None while it had not lasted long enough.
        ended_at: when it ended, or was over before it was confirmed; None at the end of the timeline.
    """

    pending_at: float
    confirmed_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """A finding, as it was last seen, and every period of it, oldest first."""

    finding: Finding
    periods: list[Period] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Timelines:
    """What several judges with different settings made of the same samples.

    Attributes:
        began_at, ended_at: of the samples, Unix seconds by the host's clock.
        of: the courses of findings, one mapping for each judge, in the order of the settings.
    """

    began_at: float
    ended_at: float
    of: tuple[Mapping[Key, Course], ...]


class _WatchedJudge:
    """The daemon's judge, and what became of its findings."""

    def __init__(self, config: Config, settings: JudgeSettings) -> None:
        self._judge = DaemonJudge(config)
        self._judge.use(settings)
        self.saved = self._judge.saved  # which this sampler never writes
        self.courses: dict[Key, Course] = {}

    def judge(self, store: OutcomeStore, now: Moment) -> Iterator[Sample]:
        """As DaemonJudge."""
        samples = self._judge.judge(store, now)
        assert self._judge.latest is not None  # noqa: S101 - it has just judged
        found = {(each.uuid or each.subject, each.check.code): each for each in self._judge.latest.report.findings}
        for key, finding in found.items():
            self._note(key, finding, now.wall)
        for key, course in self.courses.items():
            if key not in found and course.periods[-1].ended_at is None:
                course.periods[-1].ended_at = now.wall
        return samples

    def interrupt(self) -> None:
        """As DaemonJudge."""
        self._judge.interrupt()

    def _note(self, key: Key, finding: Finding, wall: float) -> None:
        before = self.courses.get(key)
        periods = [] if before is None else before.periods
        if not periods or periods[-1].ended_at is not None:
            periods.append(Period(wall))
        if finding.state is State.CONFIRMED and periods[-1].confirmed_at is None:
            periods[-1].confirmed_at = wall
        self.courses[key] = Course(finding, periods)


class _Judges:
    """Several judges of one sampler; what the first one says is published."""

    def __init__(self, judges: Sequence[_WatchedJudge]) -> None:
        self._judges = judges
        self.saved = judges[0].saved

    def judge(self, store: OutcomeStore, now: Moment) -> Iterator[Sample]:
        """As StoreJudge."""
        samples, *_ = [judge.judge(store, now) for judge in self._judges]
        return samples

    def interrupt(self) -> None:
        """As StoreJudge."""
        for judge in self._judges:
            judge.interrupt()


def timelines(
    machine: Machine,
    config: Config,
    seconds: float,
    settings: Sequence[JudgeSettings],
    on_progress: Callable[[float], None] = lambda _seconds: None,
) -> Timelines:
    """What judges with these settings find on a machine whose clock is stepped, as fast as it goes.

    Args:
        machine: simulated or recorded.
        config: as for the daemon; nothing is read from, or written to, its state directory.
        seconds: for how long.
        settings: one or more; the machine is sampled once for all of them.
        on_progress: told how many seconds are done.
    """
    clock = machine.clock
    assert isinstance(clock, SteppedClock)  # noqa: S101 - the caller chose it
    config = replace(config, state_directory=None, flight_recorder_directory=None)
    judges = [_WatchedJudge(config, each) for each in settings]
    sampler = Sampler(
        machine,
        config,
        lambda name: InlineLane(clock, name),
        GPU_COLLECTORS,
        HOST_COLLECTORS,
        judge=_Judges(judges),
    )
    began = clock.now()
    while (elapsed := clock.now().monotonic - began.monotonic) <= seconds:
        sampler.step()
        sampler.publish()
        on_progress(elapsed)
        clock.advance(config.sample_fast_seconds)
    sampler.close(lambda condition: condition())
    return Timelines(began.wall, began.wall + seconds, tuple(judge.courses for judge in judges))
