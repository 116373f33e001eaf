"""Runs the daemon's own sampler for a few seconds and keeps what it publishes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from gpu_triage.collectors.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.config import Config
from gpu_triage.diagnosis.evidence import Evidence, Recorder
from gpu_triage.machine import Clock, Machine
from gpu_triage.sampler.lanes import InlineLane
from gpu_triage.sampler.runner import Runner, SteppedClock
from gpu_triage.sampler.sampler import Sampler

Progress = Callable[[float, float], None]
"""Told how many seconds of how many have been watched."""

_ROUNDS: Final = 4
"""Rounds of the medium tier that a watch should see: counters need two, and one may be late."""

_NO_ANSWER: Final = "no_answer"
"""The error of a driver that has said nothing yet."""

_GRACE_SECONDS: Final = 5.0
_PROGRESS_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Watched:
    """What a watch brought.

    Attributes:
        evidence: all that was published.
        blocked: why the GPUs could not be looked at, as a named error; None when they could.
    """

    evidence: Evidence
    blocked: str | None


class _Observer:
    """Follows a sampler from its first answer to the end of the watch. `note` runs on the sampler's thread."""

    def __init__(self, sampler: Sampler, clock: Clock, watch_seconds: float, patience_seconds: float) -> None:
        self.done = threading.Event()
        self.watched_seconds = 0.0
        self._sampler = sampler
        self._clock = clock
        self._watch_seconds = watch_seconds
        self._patience_seconds = patience_seconds
        self._started_at = clock.now().monotonic
        self._began_at: float | None = None
        self._wall = clock.now().wall
        self._recorder = Recorder()

    def note(self) -> None:
        """Take in a publication."""
        if self.done.is_set():
            return
        moment = self._clock.now()
        now, self._wall = moment.monotonic, moment.wall
        if self._began_at is None and self._settled(now):
            self._began_at = now
        if self._began_at is None:
            return
        self._recorder.note(self._sampler.store)
        self.watched_seconds = now - self._began_at
        if self.watched_seconds >= self._watch_seconds or self.blocked is not None:
            self.done.set()

    def watched(self) -> Watched:
        """What the watch brought."""
        evidence = self._recorder.evidence(self.watched_seconds, self._wall)
        return Watched(evidence, self.blocked)

    @property
    def blocked(self) -> str | None:
        """Why the driver cannot be used, as far as it is known."""
        presence = self._sampler.presence
        if presence is None or not presence.driver_known:
            return _NO_ANSWER
        return presence.driver_error

    def _settled(self, now: float) -> bool:
        return self._sampler.waiting_for() is None or now - self._started_at >= self._patience_seconds


def tuned(config: Config, watch_seconds: float) -> Config:
    """The configuration with a medium tier that is fast enough for so short a watch."""
    fast = min(config.sample_fast_seconds, watch_seconds / _ROUNDS)
    medium = max(fast, min(config.sample_medium_seconds, watch_seconds / _ROUNDS))
    return replace(config, sample_fast_seconds=fast, sample_medium_seconds=medium)


def watch(
    machine: Machine, config: Config, watch_seconds: float, patience_seconds: float, progress: Progress
) -> Watched:
    """Watch a machine in real time.

    Args:
        machine: to watch.
        config: as for the daemon.
        watch_seconds: how long, from the first answer of everything on.
        patience_seconds: how long to wait for that answer; past it, what answers is watched without the rest.
        progress: called a few times a second.
    """
    config = tuned(config, watch_seconds)
    runner = Runner(machine.clock, config)
    sampler = Sampler(machine, config, runner.lane, GPU_COLLECTORS, HOST_COLLECTORS)
    observer = _Observer(sampler, machine.clock, watch_seconds, patience_seconds)
    runner.start(sampler, observer.note, lambda _cause: observer.done.set())
    ends_at = machine.clock.now().monotonic + patience_seconds + watch_seconds + _GRACE_SECONDS
    try:
        while not observer.done.wait(_PROGRESS_SECONDS) and machine.clock.now().monotonic < ends_at:
            progress(observer.watched_seconds, watch_seconds)
    finally:
        runner.stop()
    return observer.watched()


def watch_stepped(
    machine: Machine, clock: SteppedClock, config: Config, watch_seconds: float, patience_seconds: float
) -> Watched:
    """Watch a machine on a stepped clock, as fast as it goes; arguments as `watch`."""
    config = tuned(config, watch_seconds)
    sampler = Sampler(machine, config, lambda _name: InlineLane(machine.clock), GPU_COLLECTORS, HOST_COLLECTORS)
    observer = _Observer(sampler, machine.clock, watch_seconds, patience_seconds)
    while True:
        sampler.step()
        sampler.publish()
        observer.note()
        if observer.done.is_set():
            break
        clock.advance(config.sample_fast_seconds)
    sampler.close(lambda condition: condition())
    return observer.watched()
