"""What Prometheus would hold after scraping a simulated host for hours, computed in seconds on a virtual clock.

It is written as OpenMetrics text with timestamps (https://prometheus.io/docs/specs/om/open_metrics_spec/).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TextIO

from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config
from gpu_triage.options.option_sources import config_of_scenario
from gpu_triage.options.option_table import all_options
from gpu_triage.read.registry import COLLECTOR_SWITCHES
from gpu_triage.read.selection import Selection
from gpu_triage_simulator.clocks import START_OF_TIME, VirtualClock
from gpu_triage_simulator.observation import Observation
from gpu_triage_simulator.scenario import Scenario
from gpu_triage_simulator.series import Family, SeriesKey, SeriesRecorder
from gpu_triage_simulator.session import simulated_machine

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
    return config_of_scenario(options, scenario.exporter_options, base)


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
