"""When findings became pending, were confirmed and ended, for a host judged on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpu_triage.cli.machines import judged_host
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.settings import JudgeSettings
from gpu_triage.judge.host_judge import DaemonJudge
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
