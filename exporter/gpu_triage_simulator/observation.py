"""Runs the exporter on a simulated host, on a virtual clock, and scrapes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.judge.report.report import JudgedHost
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_SIMULATED
from gpu_triage.read.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.sampler.lanes import InlineLane
from gpu_triage.sampler.sampler import Sampler
from gpu_triage_simulator.clocks import VirtualClock
from gpu_triage_simulator.observer_effects import ExporterDown, ExporterRestart, Reboot, Release, ScrapeGap
from gpu_triage_simulator.series import SeriesRecorder
from gpu_triage_simulator.session import SimulatedMachine

_FIRST_ROUNDS: Final = 3
"""Rounds that a new sampler needs to read everything once: the driver, its GPUs, and their readings."""
_TOLERANCE_SECONDS: Final = 1e-6


class Observation:
    """A sampler that is stepped once per fast interval of scenario time, and scraped in between.

    Unless the configuration names a state directory, it gets one, like an exporter installed from the systemd unit or
    the Helm chart.
    """

    def __init__(self, simulated: SimulatedMachine, clock: VirtualClock, config: Config) -> None:
        self._simulated = simulated
        self._timeline = simulated.host.timeline
        self._clock = clock
        self._config = simulated.remembering(
            replace(config, state_directory=config.state_directory or simulated.state_directory)
        )
        self._subject = JudgedHost(simulated.host.scenario.name, continuous=True, simulated=True)
        self._elapsed = 0.0
        self._rounds = 0
        self._restarts = sorted(event.at for event, _ in self._timeline.host(ExporterRestart))
        self._released = False
        self._sampler: Sampler | None = None

    def scrape(self, seconds: float, step: int, recorder: SeriesRecorder) -> None:
        """Advance to a scenario time and record scrape number `step`; records nothing during a scrape gap."""
        self._sample_to(seconds)
        if self._timeline.host_active(ScrapeGap, seconds):
            return
        if self._sampler is None:
            recorder.up(step, answered=False)
            return
        recorder.scrape(step, self._sampler.store, self._simulated.machine.clock.now().wall)
        self._sampler.status.scrapes += 1

    def close(self) -> None:
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
        """Apply exporter restarts, downtime and releases that are due."""
        restarted = bool(self._restarts) and self._restarts[0] <= seconds
        self._restarts = [at for at in self._restarts if at > seconds]
        down = self._timeline.host_active(ExporterDown, seconds) or self._timeline.host_active(Reboot, seconds)
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
        """A new exporter that has completed its first rounds, as it would have by its first scrape."""
        clock = self._clock
        sampler = Sampler(
            self._simulated.for_another_process(),
            self._config,
            lambda name: InlineLane(clock, name),
            GPU_COLLECTORS,
            HOST_COLLECTORS,
            judge=DaemonJudge(self._config, self._subject),
            writes_state=True,
            constants=(GPU_EXPORTER_SIMULATED.sample(1),),
        )
        for _ in range(_FIRST_ROUNDS):
            sampler.step()
            sampler.publish()
        return sampler


def _is_met(condition: Callable[[], bool]) -> bool:
    """Whether it holds now: on a virtual clock, a lane finishes its job immediately."""
    return condition()
