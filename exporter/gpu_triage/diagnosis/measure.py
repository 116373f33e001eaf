"""Runs the daemon's own sampler for a few seconds, and has the judge say what that means."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from gpu_triage.collectors.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.config import Config
from gpu_triage.diagnosis.evidence import History
from gpu_triage.diagnosis.judge import HostJudge, Judgement
from gpu_triage.diagnosis.report import Subject
from gpu_triage.machine import Clock, Machine, Moment
from gpu_triage.sampler.lanes import InlineLane
from gpu_triage.sampler.runner import Runner, SteppedClock
from gpu_triage.sampler.sampler import Sampler

Progress = Callable[[float, float], None]
"""Told how many seconds of how many have been measured."""

_ROUNDS: Final = 4
"""Rounds of the medium tier that a measurement should see: counters need two, and one may be late."""

_MOST_ROUNDS: Final = 60
"""And those that it keeps, however long it takes."""

_NO_ANSWER: Final = "no_answer"
"""The error of a driver that has said nothing yet."""

_GRACE_SECONDS: Final = 5.0
_PROGRESS_SECONDS: Final = 0.25


class _Observer:
    """Follows a sampler from its first answer to the end. `note` runs on the sampler's thread."""

    def __init__(self, sampler: Sampler, clock: Clock, seconds: float, patience_seconds: float) -> None:
        self.done = threading.Event()
        self.measured_seconds = 0.0
        self._sampler = sampler
        self._clock = clock
        self._seconds = seconds
        self._patience_seconds = patience_seconds
        self._now = clock.now()
        self._started_at = self._now.monotonic
        self._began_at: float | None = None
        self._noted_at: float | None = None
        self._history = History(seconds)

    def note(self) -> None:
        """Take in a publication."""
        if self.done.is_set():
            return
        self._now = self._clock.now()
        now = self._now.monotonic
        if self._began_at is None and self._settled(now):
            self._began_at = now
        if self._began_at is None:
            return
        self.measured_seconds = now - self._began_at
        ends = self.measured_seconds >= self._seconds or self.blocked is not None
        if ends or self._noted_at is None or now - self._noted_at >= self._seconds / _MOST_ROUNDS:
            self._history.note(self._sampler.store, self._now)
            self._noted_at = now
        if ends:
            self.done.set()

    def judgement(self, subject: Subject) -> Judgement:
        """What was measured, judged."""
        began_at = self._now.monotonic if self._began_at is None else self._began_at
        evidence = self._history.evidence(Moment(began_at + self.measured_seconds, self._now.wall))
        return HostJudge(subject).judge(evidence, self.blocked)

    @property
    def blocked(self) -> str | None:
        """Why the driver cannot be used, as far as it is known."""
        presence = self._sampler.presence
        if presence is None or not presence.driver_known:
            return _NO_ANSWER
        return presence.driver_error

    def _settled(self, now: float) -> bool:
        return self._sampler.waiting_for() is None or now - self._started_at >= self._patience_seconds


def tuned(config: Config, seconds: float) -> Config:
    """The configuration with a medium tier that is fast enough for so short a measurement."""
    fast = min(config.sample_fast_seconds, seconds / _ROUNDS)
    medium = max(fast, min(config.sample_medium_seconds, seconds / _ROUNDS))
    return replace(config, sample_fast_seconds=fast, sample_medium_seconds=medium)


def measure(
    machine: Machine,
    subject: Subject,
    config: Config,
    seconds: float,
    *,
    patience_seconds: float,
    progress: Progress,
) -> Judgement:
    """Measure a machine in real time, and judge it.

    Args:
        machine: to measure.
        subject: what it is called.
        config: as for the daemon.
        seconds: how long, from the first answer of everything on.
        patience_seconds: how long to wait for that answer; past it, what answers is measured without the rest.
        progress: called a few times a second.
    """
    config = tuned(config, seconds)
    runner = Runner(machine.clock, config)
    sampler = Sampler(machine, config, runner.lane, GPU_COLLECTORS, HOST_COLLECTORS)
    observer = _Observer(sampler, machine.clock, seconds, patience_seconds)
    runner.start(sampler, observer.note, lambda _cause: observer.done.set())
    ends_at = machine.clock.now().monotonic + patience_seconds + seconds + _GRACE_SECONDS
    try:
        while not observer.done.wait(_PROGRESS_SECONDS) and machine.clock.now().monotonic < ends_at:
            progress(observer.measured_seconds, seconds)
    finally:
        runner.stop()
    return observer.judgement(subject)


def measure_stepped(
    machine: Machine,
    clock: SteppedClock,
    subject: Subject,
    config: Config,
    seconds: float,
    *,
    patience_seconds: float,
) -> Judgement:
    """Measure a machine on a stepped clock, as fast as it goes; arguments as `measure`."""
    config = tuned(config, seconds)
    sampler = Sampler(machine, config, lambda _name: InlineLane(machine.clock), GPU_COLLECTORS, HOST_COLLECTORS)
    observer = _Observer(sampler, machine.clock, seconds, patience_seconds)
    while True:
        sampler.step()
        sampler.publish()
        observer.note()
        if observer.done.is_set():
            break
        clock.advance(config.sample_fast_seconds)
    sampler.close(lambda condition: condition())
    return observer.judgement(subject)
