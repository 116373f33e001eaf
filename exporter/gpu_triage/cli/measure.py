"""Measures a host once: runs the daemon's sampler for some seconds, then has the judge interpret the result."""

import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, closing, suppress
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
from gpu_triage.read.metrics.contract import AnyGpuCollector, AnyHostCollector
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
    measurement = _Measurement(machine.clock, seconds, patience_seconds)
    # The patience and the measurement may each end up to a round late.
    most_seconds = patience_seconds + seconds + max(_GRACE_SECONDS, 3 * fast)
    sample_for(most_seconds, machine, config, measurement.progress, measurement.note)
    host = measurement.evidence()
    host.memory.widest.see(_links_seen_by_the_exporter(machine, config))
    return judge.judge(host, measurement.driver_error)


def measure_configured(
    config: Config, seconds: float, patience_seconds: float = 30.0, last_seconds: float = 0.0
) -> Judgment:
    """Like `measure`, for the host that a configuration names; for `last_seconds` see `stepped_host`."""
    with ExitStack() as stack:
        host = stepped_host(config, stack, last_seconds)
        return measure(host.machine, host.config, seconds, patience_seconds)


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
    machine: Machine,
    config: Config,
    progress: Callable[[float], str],
    note: Callable[[Sampler], bool] = lambda _sampler: False,
    *,
    judge: DaemonJudge | None = None,
    collectors: tuple[Iterable[AnyGpuCollector], Iterable[AnyHostCollector]] = (GPU_COLLECTORS, HOST_COLLECTORS),
) -> None:
    """Sample a machine for some seconds, at full speed on a stepped clock, with a progress line on a terminal.

    `note` is called with the sampler after each publication, and ends it by returning True.
    """
    clock, interval_seconds, ended = machine.clock, config.sample_fast_seconds, threading.Event()
    runner = Runner(clock, interval_seconds)
    lane = partial(InlineLane, clock) if isinstance(clock, SteppedClock) else runner.lane
    sampler = Sampler(machine, config, lane, *collectors, judge=judge)

    def published() -> None:
        if not ended.is_set() and note(sampler):
            ended.set()

    if isinstance(clock, SteppedClock):
        rounds, last_seconds = _rounds(sampler, clock, interval_seconds, published), seconds - interval_seconds
    else:
        rounds, last_seconds = _in_real_time(sampler, runner, published, ended), seconds
    with closing(rounds), ProgressLine() as line:
        for done in rounds:
            if ended.is_set() or done > last_seconds:
                break
            line.show(progress(done))


_Seconds = Generator[float, None, None]


def _rounds(sampler: Sampler, clock: SteppedClock, interval_seconds: float, published: Callable[[], None]) -> _Seconds:
    """Yield the seconds since the start after each publication."""
    began_at = clock.now().monotonic
    try:
        while True:
            sampler.step()
            sampler.publish()
            published()
            yield clock.now().monotonic - began_at
            clock.advance(interval_seconds)
    finally:
        sampler.close(lambda condition: condition())


def _in_real_time(sampler: Sampler, runner: Runner, published: Callable[[], None], ended: threading.Event) -> _Seconds:
    """Yield the seconds since the start whenever a progress line is due."""
    runner.start(sampler, published, lambda _cause: ended.set())
    began_at = time.monotonic()
    try:
        while True:
            yield time.monotonic() - began_at
            ended.wait(_PROGRESS_SECONDS)
    finally:
        runner.stop()


class _Measurement:
    """Follows a sampler from its first response to the end. `note` runs on the sampler's thread."""

    def __init__(self, clock: Clock, seconds: float, patience_seconds: float) -> None:
        self.driver_error: str | None = "no_answer"
        self._clock, self._seconds = clock, seconds
        self._now = clock.now()
        self._patient_until = self._now.monotonic + patience_seconds
        self._began_at: float | None = None
        self._noted_at = -math.inf
        self._history = MetricHistory(seconds)

    def note(self, sampler: Sampler) -> bool:
        self._now = self._clock.now()
        now, presence = self._now.monotonic, sampler.presence
        self.driver_error = "no_answer" if presence is None or presence.driver_up is None else presence.driver_error
        if self._began_at is None:
            if now < self._patient_until and sampler.waiting_for() is not None:
                return False
            self._began_at = now
        answering = presence is not None and any(gpu.up for gpu in presence.gpus)  # of a driver that fails, one may
        ends = now - self._began_at >= self._seconds or (self.driver_error is not None and not answering)
        if ends or now - self._noted_at >= self._seconds / _MOST_ROUNDS:
            self._history.note(sampler.store, self._now)
            self._noted_at = now
        return ends

    def evidence(self) -> HostEvidence:
        return self._history.evidence(self._now)

    def progress(self, _done_seconds: float) -> str:
        measured_seconds = 0.0 if self._began_at is None else self._now.monotonic - self._began_at
        return f"measuring, {int(measured_seconds)} of {self._seconds:.0f} s"


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
        used = replace(host.config, sample_medium_seconds=medium)
        judge = DaemonJudge(used, judged_host(used, continuous=True))
        play(host.machine, used, judge, seconds)
    assert judge.latest is not None  # noqa: S101 - it judged the first round
    return judge.latest.report


def play(machine: Machine, config: Config, judge: DaemonJudge, seconds: float) -> None:
    """Sample and judge for so long on a stepped clock."""
    sample_for(
        seconds, machine, config, lambda done: f"judging, {done / 60:.0f} of {seconds / 60:.0f} min", judge=judge
    )
