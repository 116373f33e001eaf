"""What Prometheus would hold after scraping a simulated host for hours, computed in seconds on a virtual clock.

It is written as OpenMetrics text with timestamps (https://prometheus.io/docs/specs/om/open_metrics_spec/).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TextIO

from gpu_triage.driver.kernel.procfs import read_boot
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.accepted import accept
from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.judge.report.report import JudgedHost
from gpu_triage.options.config import Config
from gpu_triage.options.option_sources import combined
from gpu_triage.options.option_table import all_options
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_SIMULATED
from gpu_triage.read.host import maintenance
from gpu_triage.read.incidents.decisions import Acceptance, Decisions, Repair, change_decisions
from gpu_triage.read.registry import COLLECTOR_SWITCHES, GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.read.selection import Selection
from gpu_triage.sampler.lanes import InlineLane
from gpu_triage.sampler.sampler import Sampler
from gpu_triage_simulator.clocks import START_OF_TIME, VirtualClock
from gpu_triage_simulator.observer_effects import (
    Accept,
    ExporterDown,
    ExporterRestart,
    Maintenance,
    Reboot,
    Release,
    Repaired,
    ScrapeGap,
)
from gpu_triage_simulator.scenario import Scenario
from gpu_triage_simulator.series import Family, SeriesKey, SeriesRecorder
from gpu_triage_simulator.session import SimulatedMachine, simulated_machine

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
        decided = (*self._timeline.host(Accept), *self._timeline.host(Repaired))
        self._decisions = [event for event, _ in decided]
        self._released = False
        self._planned: maintenance.Maintenance | None = None
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
        """Apply exporter restarts, downtime, releases and maintenance that are due."""
        self._plan(seconds)
        restarted = bool(self._restarts) and self._restarts[0] <= seconds
        self._restarts = [at for at in self._restarts if at > seconds]
        down = self._timeline.host_active(ExporterDown, seconds) or self._timeline.host_active(Reboot, seconds)
        if down or restarted:
            self.close()
        if self._sampler is None and not down:
            self._sampler = self._start()
            self._released = False
        self._decide(seconds)
        released = self._timeline.host_active(Release, seconds)
        if self._sampler is not None and released != self._released:
            driver = self._sampler.driver
            (driver.release if released else driver.acquire)()
            self._released = released

    def _decide(self, seconds: float) -> None:
        """Apply the decisions of operators that are due."""
        folder, now = self._config.state_directory, self._clock.now().wall
        due = [event for event in self._decisions if event.at <= seconds]
        for event in due:
            assert folder is not None  # noqa: S101 - it always gets one
            self._decisions.remove(event)
            gpu = event.effect.gpu
            if isinstance(event.effect, Accept):
                until = math.inf if event.until is None else now + event.until - event.at
                wish = Acceptance(event.effect.code, str(gpu), "", "info", None, now, until, "operator", "known")
                accept(folder, wish, read_boot(self._simulated.machine.procfs).boot_id, even_critical=True)
            else:
                card = self._simulated.host.scenario.card(gpu, seconds)
                repair = Repair(card.uuid, card.slot.bus_id, now, "operator", "repaired")
                change_decisions(folder, partial(_with_repair, repair))

    def _plan(self, seconds: float) -> None:
        begins_at, directory = self._simulated.host.wall(0.0), self._config.state_directory
        planned = next(
            (
                maintenance.Maintenance(begins_at + event.at + effect.lasts, effect.reason)
                for event, effect in self._timeline.host(Maintenance)
                if event.active(seconds)
            ),
            None,
        )
        if planned == self._planned or directory is None:
            return
        self._planned, path = planned, maintenance.path_of(maintenance.COMMAND, directory)
        if planned is None:
            path.unlink()
        else:
            maintenance.FILE.write(path, planned)

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


def _with_repair(repair: Repair, present: Decisions) -> Decisions:
    return replace(present, repairs=(*present.repairs, repair))


def _is_met(condition: Callable[[], bool]) -> bool:
    """Whether it holds now: on a virtual clock, a lane finishes its job immediately."""
    return condition()


__all__ = ["Family", "History", "SeriesKey", "history_config", "record_history"]

DEFAULT_JOB: Final = "gpu-triage"

_LONGEST_FAST_SECONDS: Final = 15.0
"""The driver's ring buffer of utilization samples spans 20 s: with longer intervals, busy time would have gaps."""
_LONGEST_MEDIUM_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class History:
    """Every scrape of a simulated host."""

    start_seconds: float  # Unix seconds of the first scrape; scenario time 0
    step_seconds: float  # scrape interval
    steps: int  # number of scrapes
    # values by series, `steps` values each, NaN where a scrape lacks the series
    series: Mapping[SeriesKey, Sequence[float]]
    families: tuple[Family, ...]  # metric families of these series, by name


def record_history(
    scenario: Scenario,
    *,
    seconds: float,
    step_seconds: float,
    config: Config | None = None,
    target: Mapping[str, str] | None = None,
    start_seconds: float = START_OF_TIME,
    on_progress: Callable[[int, int], None] | None = None,
) -> History:
    """The series of a scenario's first `seconds`, scraped every `step_seconds`, including the first and last instant.

    The exporter's own process metrics (``process_*``) are left out: they would be this process's. Memory use is 8 bytes
    per series and scrape, or 80 MB per thousand series for a week at one scrape per minute.

    Args:
        config: the exporter's; that of `history_config` if None.
        target: labels added by the scrape; override ``job`` gpu-triage and ``instance`` the scenario's name.
        start_seconds: Unix seconds of scenario time 0.
        on_progress: called after each scrape with the number of scrapes done and the total.

    Raises:
        ConfigError: the times are invalid, or the history would be too large for memory.
    """
    if not (math.isfinite(seconds) and math.isfinite(step_seconds) and 0 < step_seconds <= seconds):
        raise ConfigError(f"a history of {seconds:g} s in steps of {step_seconds:g} s has no two scrapes; ask for more")
    steps = math.floor(seconds / step_seconds + 1e-9) + 1
    labels = {"job": DEFAULT_JOB, "instance": scenario.name, **scenario.target.labels, **(target or {})}
    used = config or history_config(scenario, step_seconds)
    recorder = SeriesRecorder(labels, steps, Selection(used))
    clock = VirtualClock(wall=start_seconds)
    with simulated_machine(scenario, clock=clock, when_looked_at=True) as simulated:
        observation = Observation(simulated, clock, used)
        for step in range(steps):
            observation.scrape(step * step_seconds, step, recorder)
            if on_progress is not None:
                on_progress(step + 1, steps)
        observation.close()
    families = recorder.finish()
    return History(start_seconds, step_seconds, steps, recorder.columns, families)


def history_config(scenario: Scenario, step_seconds: float) -> Config:
    """The scenario's configuration over the defaults, sampling no more often than needed for this scrape interval.

    The fast tier divides the step evenly and never exceeds 15 s, which keeps every integral exact.

    Raises:
        ConfigError: an option of the scenario is invalid.
    """
    default = Config()
    fast = step_seconds / math.ceil(step_seconds / _LONGEST_FAST_SECONDS)
    medium = max(default.sample_medium_seconds, fast, min(step_seconds, _LONGEST_MEDIUM_SECONDS))
    base = replace(
        default,
        sample_fast_seconds=fast,
        sample_medium_seconds=medium,
        sample_slow_seconds=max(default.sample_slow_seconds, medium),
        simulate=scenario.name,
    )
    options = all_options(COLLECTOR_SWITCHES)
    return combined(options, base, scenario.exporter_options)


_LABEL_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = _LABEL_ESCAPES


def write_openmetrics(history: History, stream: TextIO) -> None:
    """Write a history, with all samples of a family and of a series together and in time order, then ``# EOF``.

    Raises:
        OSError: the stream cannot be written.
    """
    stamps = [_stamp(history.start_seconds + i * history.step_seconds) for i in range(history.steps)]
    for family in history.families:
        stream.write(f"# TYPE {family.name} {family.kind}\n")
        if family.help:
            stream.write(f"# HELP {family.name} {family.help.translate(_HELP_ESCAPES)}\n")
        stream.writelines("".join(_lines(key, history.series, stamps)) for key in family.series)
    stream.write("# EOF\n")


def _lines(key: SeriesKey, series: Mapping[SeriesKey, Sequence[float]], stamps: list[str]) -> Iterator[str]:
    name, labels = key
    inside = ",".join(f'{label}="{value.translate(_LABEL_ESCAPES)}"' for label, value in labels)
    start = f"{name}{{{inside}}} " if inside else f"{name} "
    for value, stamp in zip(series[key], stamps, strict=True):
        if value == value:  # noqa: PLR0124 - the fastest test for NaN, for tens of millions of values
            yield f"{start}{value!r} {stamp}\n"


def _stamp(seconds: float) -> str:
    """Unix seconds, to the millisecond, because that is the database's resolution."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")
