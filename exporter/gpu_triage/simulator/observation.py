"""The exporter at work on a simulated host, on a virtual clock, and a scraper that looks at it."""

from __future__ import annotations

from gpu_triage.collectors.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.config import Config
from gpu_triage.sampler.lanes import InlineLane
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.simulator.clocks import VirtualClock
from gpu_triage.simulator.series import SeriesRecorder
from gpu_triage.simulator.session import SimulatedMachine

_FIRST_ROUNDS = 3
"""Rounds within which a new sampler has asked everything once: for the driver, for its GPUs, for what they say."""


class Observation:
    """A sampler that is stepped once a fast interval of scenario time, and scraped in between."""

    def __init__(self, simulated: SimulatedMachine, clock: VirtualClock, config: Config) -> None:
        self._simulated = simulated
        self._clock = clock
        self._config = config
        self._elapsed = 0.0
        self._rounds = 0
        self._sampler = self._start()

    def scrape(self, seconds: float, step: int, recorder: SeriesRecorder) -> None:
        """Go on to a scenario time and record what is published then, as scrape number `step`."""
        self._sample_to(seconds)
        recorder.scrape(step, self._sampler.store)
        self._sampler.status.scrapes += 1

    def close(self) -> None:
        """End the sampler as a process ends it."""
        self._sampler.close(lambda condition: condition())

    def _sample_to(self, seconds: float) -> None:
        while (at := self._rounds * self._config.sample_fast_seconds) <= seconds + 1e-6:
            self._advance_to(at)
            self._sampler.step()
            self._sampler.publish()
            self._rounds += 1
        self._advance_to(seconds)

    def _advance_to(self, seconds: float) -> None:
        if seconds > self._elapsed:
            self._clock.advance(seconds - self._elapsed)
            self._elapsed = seconds

    def _start(self) -> Sampler:
        """A new exporter that has had its first rounds, as by the time of its first scrape."""
        clock = self._clock
        sampler = Sampler(
            self._simulated.machine, self._config, lambda _name: InlineLane(clock), GPU_COLLECTORS, HOST_COLLECTORS
        )
        for _ in range(_FIRST_ROUNDS):
            sampler.step()
            sampler.publish()
        return sampler
