"""Measures a host once: runs the daemon's sampler for some seconds, then has the judge interpret the result."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from gpu_triage.cli.machines import is_made_up, judged_host, stepped_host
from gpu_triage.driver.kernel.procfs import read_boot
from gpu_triage.errors import StateError
from gpu_triage.judge.evidence.history import MetricHistory
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.past import WidestLink
from gpu_triage.judge.findings.saved import saved_in
from gpu_triage.judge.findings.settings import judge_settings
from gpu_triage.judge.host_judge import DaemonJudge, HostJudge, Judgment
from gpu_triage.judge.report.report import Report
from gpu_triage.machine import Clock, Machine, SteppedClock
from gpu_triage.options.config import Config
from gpu_triage.options.option import Option
from gpu_triage.options.progress import ProgressLine
from gpu_triage.options.values import duration
from gpu_triage.read.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.sampler.lanes import InlineLane
from gpu_triage.sampler.runner import Runner
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.sampler.state_directory import INCIDENTS, UNIT_STATE_DIRECTORY, StateDirectory

MEASURE: Final = duration("2s", "1h")
_SECTIONS: Final = frozenset(
    {"Expectations", "Findings", "Collectors", "Schedulers", "Paths", "Simulation", "Configuration file"}
)
_FOR_THE_DAEMON: Final = frozenset({"baseline.from-host", "flight-recorder.directory", "simulate-pace"})

_ROUNDS: Final = 4  # rounds of the medium tier per measurement: counters need two, and one may be late
_MOST_ROUNDS: Final = 60  # maximum number of rounds to keep, regardless of duration
_GRACE_SECONDS: Final = 5.0
_PROGRESS_SECONDS: Final = 0.25


def applies(option: Option) -> bool:
    return (option.section in _SECTIONS or option.key == "sample.deadline") and option.key not in _FOR_THE_DAEMON


def measure(machine: Machine, config: Config, seconds: float, patience_seconds: float = 30.0) -> Judgment:
    """Measure and judge a machine, with a progress line on a terminal; a stepped clock runs at full speed.

    The time counts from when all has responded, at the latest after `patience_seconds`. ConfigError: of the settings.
    """
    judge = HostJudge(judged_host(config, continuous=False), settings=judge_settings(config.judge))
    units = StateDirectory(UNIT_STATE_DIRECTORY).path(INCIDENTS)
    if not is_made_up(config) and config.state_directory is None and os.access(units, os.R_OK):
        config = replace(config, state_directory=UNIT_STATE_DIRECTORY)
    # Speed up the medium tier for such a short measurement.
    fast = min(config.sample_fast_seconds, seconds / _ROUNDS)
    medium = max(fast, min(config.sample_medium_seconds, seconds / _ROUNDS))
    config = replace(config, sample_fast_seconds=fast, sample_medium_seconds=medium)
    host, error = _run(machine, config, seconds, patience_seconds).evidence()
    host.memory.widest.see(_links_seen_by_the_exporter(machine, config))
    return judge.judge(host, error)


def _links_seen_by_the_exporter(machine: Machine, config: Config) -> tuple[WidestLink, ...]:
    """Links of this boot in the exporter's state, if readable: a short look cannot know that one had more lanes."""
    with suppress(StateError):
        if config.state_directory is not None:
            saved, boot = saved_in(config.state_directory, machine.clock.now().wall), read_boot(machine.procfs).boot_id
            if boot and saved.boot == boot:
                return saved.links
    return ()


def sample_for(
    seconds: float,
    runner: Runner,
    sampler: Sampler,
    note: Callable[[], None],
    ended: threading.Event,
    *,
    progress: Callable[[float], str],
) -> None:
    """Sample for some seconds in real time, or until `ended`; `note` is called after each publication."""
    runner.start(sampler, note, lambda _cause: ended.set())
    ends_at = time.monotonic() + seconds
    with ProgressLine() as line:
        try:
            while (left := ends_at - time.monotonic()) > 0 and not ended.wait(min(left, _PROGRESS_SECONDS)):
                line.show(progress(seconds - left))
        finally:
            runner.stop()


class _Measurement:
    """Follows a sampler from its first response to the end. `note` runs on the sampler's thread."""

    def __init__(self, sampler: Sampler, clock: Clock, seconds: float, patience_seconds: float) -> None:
        self.done = threading.Event()
        self._measured_seconds = 0.0
        self._sampler, self._clock, self._seconds = sampler, clock, seconds
        self._now = clock.now()
        self._patient_until = self._now.monotonic + patience_seconds
        self._began_at: float | None = None
        self._noted_at: float | None = None
        self._history = MetricHistory(seconds)

    def note(self) -> None:
        if self.done.is_set():
            return
        self._now = self._clock.now()
        now = self._now.monotonic
        if self._began_at is None:
            if now < self._patient_until and self._sampler.waiting_for() is not None:
                return
            self._began_at = now
        self._measured_seconds = now - self._began_at
        presence = self._sampler.presence
        answering = presence is not None and any(gpu.up for gpu in presence.gpus)  # of a driver that fails, one may
        ends = self._measured_seconds >= self._seconds or (self._driver_error is not None and not answering)
        if ends or self._noted_at is None or now - self._noted_at >= self._seconds / _MOST_ROUNDS:
            self._history.note(self._sampler.store, self._now)
            self._noted_at = now
        if ends:
            self.done.set()

    def evidence(self) -> tuple[HostEvidence, str | None]:
        return self._history.evidence(self._now), self._driver_error

    @property
    def progress(self) -> str:
        return f"measuring, {int(self._measured_seconds)} of {self._seconds:.0f} s"

    @property
    def _driver_error(self) -> str | None:
        presence = self._sampler.presence
        return "no_answer" if presence is None or presence.driver_up is None else presence.driver_error


def _run(machine: Machine, config: Config, seconds: float, patience_seconds: float) -> _Measurement:
    clock = machine.clock
    runner = Runner(clock, config.sample_fast_seconds)
    lane = partial(InlineLane, clock) if isinstance(clock, SteppedClock) else runner.lane
    sampler = Sampler(machine, config, lane, GPU_COLLECTORS, HOST_COLLECTORS)
    measurement = _Measurement(sampler, clock, seconds, patience_seconds)
    note, done = measurement.note, measurement.done
    if not isinstance(clock, SteppedClock):
        most_seconds = patience_seconds + seconds + _GRACE_SECONDS
        sample_for(most_seconds, runner, sampler, note, done, progress=lambda _: measurement.progress)
        return measurement
    with ProgressLine() as line:
        for _ in rounds(sampler, clock, config.sample_fast_seconds):
            note()
            if done.is_set():
                break
            line.show(measurement.progress)
    return measurement


def judge_recording(config: Config) -> Report:
    """Judge the recording that a configuration names, to its end, as an exporter does that starts with it.

    What a GPU did before decides on its class, and how long a condition has lasted on its finding. Raises
    RecordingError if it cannot be read, ConfigError if the settings of the judge are invalid.
    """
    from gpu_triage.record.bundle import read_recording  # noqa: PLC0415 - only this needs it

    assert config.replay is not None  # noqa: S101 - checked by the callers
    seconds = read_recording(config.replay).seconds
    medium = max(config.sample_fast_seconds, min(config.sample_medium_seconds, seconds / _ROUNDS))
    seconds = seconds // medium * medium  # so that the last round is at its end, the event that it was made for
    with ExitStack() as stack:
        host = stepped_host(config, stack, last_seconds=seconds)
        used, clock = replace(host.config, sample_medium_seconds=medium), host.machine.clock
        assert isinstance(clock, SteppedClock)  # noqa: S101 - made by `stepped_host`
        judge = DaemonJudge(used, judged_host(used, continuous=True))
        lane = partial(InlineLane, clock)
        play(Sampler(host.machine, used, lane, GPU_COLLECTORS, HOST_COLLECTORS, judge=judge), clock, used, seconds)
    assert judge.latest is not None  # noqa: S101 - it judged the first round
    return judge.latest.report


def play(sampler: Sampler, clock: SteppedClock, config: Config, seconds: float) -> None:
    """Sample and judge for so long on a stepped clock, with a progress line on a terminal."""
    with ProgressLine() as line:
        for done in rounds(sampler, clock, config.sample_fast_seconds):
            line.show(f"judging, {done / 60:.0f} of {seconds / 60:.0f} min")
            if done + config.sample_fast_seconds > seconds:
                break


def rounds(sampler: Sampler, clock: SteppedClock, interval_seconds: float) -> Iterator[float]:
    """Sample on a stepped clock at full speed; yields the seconds since the start after each publication."""
    began_at = clock.now().monotonic
    try:
        while True:
            sampler.step()
            sampler.publish()
            yield clock.now().monotonic - began_at
            clock.advance(interval_seconds)
    finally:
        sampler.close(lambda condition: condition())
