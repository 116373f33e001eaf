"""The exporter at work on a simulated host, on a virtual clock, and a scraper that looks at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from gpu_triage.config import Config
from gpu_triage.diagnosis.judge import DaemonJudge
from gpu_triage.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.sampler.lanes import InlineLane
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.simulator.clocks import VirtualClock
from gpu_triage.simulator.observer_effects import ExporterDown, ExporterRestart, Release, ScrapeGap
from gpu_triage.simulator.series import SeriesRecorder
from gpu_triage.simulator.session import SimulatedMachine

_FIRST_ROUNDS: Final = 3
"""Rounds within which a new sampler has asked everything once: for the driver, for its GPUs, for what they say."""
_TOLERANCE_SECONDS: Final = 1e-6


class Observation:
    """A sampler that is stepped once a fast interval of scenario time, and scraped in between.

    It has a state directory, as the unit and the chart provide one, unless the configuration names another.
    """

    def __init__(self, simulated: SimulatedMachine, clock: VirtualClock, config: Config) -> None:
        self._simulated = simulated
        self._timeline = simulated.host.timeline
        self._clock = clock
        self._config = config if config.state_directory is not None else _with_state_directory(config, simulated)
        self._elapsed = 0.0
        self._rounds = 0
        self._restarts = sorted(event.at for event, _ in self._timeline.host(ExporterRestart))
        self._released = False
        self._sampler: Sampler | None = None

    def scrape(self, seconds: float, step: int, recorder: SeriesRecorder) -> None:
        """Go on to a scenario time and record what a scrape brings then, as number `step`: nothing in a gap."""
        self._sample_to(seconds)
        if self._timeline.host_active(ScrapeGap, seconds):
            return
        if self._sampler is None:
            recorder.up(step, answered=False)
            return
        recorder.scrape(step, self._sampler.store, self._simulated.machine.clock.now().wall)
        self._sampler.status.scrapes += 1

    def close(self) -> None:
        """End the sampler, if one runs, as a process ends it."""
        if self._sampler is not None:
            self._sampler.close(_is_met)
            self._sampler.save(_is_met)
            self._sampler = None

    def _sample_to(self, seconds: float) -> None:
        while (at := self._rounds * self._config.sample_fast_seconds) <= seconds + _TOLERANCE_SECONDS:
            self._advance_to(at)
            self._act(at)
            if self._sampler is not None:
                self._sampler.step()
                self._sampler.publish()
            self._rounds += 1
        self._advance_to(seconds)

    def _advance_to(self, seconds: float) -> None:
        if seconds > self._elapsed:
            self._clock.advance(seconds - self._elapsed)
            self._elapsed = seconds

    def _act(self, seconds: float) -> None:
        """Let happen to the exporter what is due."""
        restarted = bool(self._restarts) and self._restarts[0] <= seconds
        self._restarts = [at for at in self._restarts if at > seconds]
        down = self._timeline.host_active(ExporterDown, seconds)
        if down or restarted:
            self.close()
        if self._sampler is None and not down:
            self._sampler = self._start()
            self._released = False
        released = self._timeline.host_active(Release, seconds)
        if self._sampler is not None and released != self._released:
            (self._sampler.release if released else self._sampler.acquire)()
            self._released = released

    def _start(self) -> Sampler:
        """A new exporter that has had its first rounds, as by the time of its first scrape."""
        clock = self._clock
        sampler = Sampler(
            self._simulated.for_another_process(),
            self._config,
            lambda name: InlineLane(clock, name),
            GPU_COLLECTORS,
            HOST_COLLECTORS,
            judge=DaemonJudge(self._config),
            writes_state=True,
        )
        for _ in range(_FIRST_ROUNDS):
            sampler.step()
            sampler.publish()
        return sampler


def _is_met(condition: Callable[[], bool]) -> bool:
    """Whether it holds now: what a lane on a virtual clock is given is done at once."""
    return condition()


def _with_state_directory(config: Config, simulated: SimulatedMachine) -> Config:
    folder = simulated.root / "state"
    folder.mkdir(exist_ok=True)
    return replace(config, state_directory=folder)
