"""What a Prometheus would hold after scraping a simulated host for hours, made in seconds on a virtual clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpu_triage.config import Config
from gpu_triage.errors import ConfigError
from gpu_triage.options.sources import config_of_scenario
from gpu_triage.options.table import all_options
from gpu_triage.registry import COLLECTOR_SWITCHES
from gpu_triage.selection import Selection
from gpu_triage.simulator.clocks import START_OF_TIME, VirtualClock
from gpu_triage.simulator.observation import Observation
from gpu_triage.simulator.scenario import Scenario
from gpu_triage.simulator.series import Family, SeriesKey, SeriesRecorder
from gpu_triage.simulator.session import simulated_machine

__all__ = ["Family", "History", "SeriesKey", "history_config", "record_history"]

DEFAULT_JOB: Final = "gpu-triage"

_LONGEST_FAST_SECONDS: Final = 15.0
"""The driver's ring of utilisation samples reaches back 20 s: read less often, busy time would have holes."""
_LONGEST_MEDIUM_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class History:
    """Every scrape of a simulated host.

    Attributes:
        start_seconds: of the first scrape, since the Unix epoch; scenario time 0.
        step_seconds: from one scrape to the next.
        steps: number of scrapes.
        series: values by series, `steps` of them each, NaN where a scrape lacks the series.
        families: the metrics these series are of, by name.
    """

    start_seconds: float
    step_seconds: float
    steps: int
    series: Mapping[SeriesKey, Sequence[float]]
    families: tuple[Family, ...]


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
    """The series of a scenario's first `seconds`, scraped every `step_seconds`, the first and last instant included.

    The exporter's own process metrics (``process_*``) are left out: they would be this process's. Memory is 8 bytes
    a series and scrape: 80 MB a thousand series and week of minutes.

    Args:
        scenario: what happens.
        seconds: how much of it.
        step_seconds: the scrape interval.
        config: the exporter's; that of `history_config` if None.
        target: labels that the scrape attaches, over ``job`` gpu-triage and ``instance`` the scenario's name.
        start_seconds: scenario time 0, since the Unix epoch.
        on_progress: called after each scrape with the number of scrapes done and of all.

    Raises:
        ConfigError: the times make no sense, or the history would be too large to hold.
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
    """The scenario's configuration over the defaults, sampling no more often than scrapes of this interval can tell.

    The fast tier divides the step evenly and never exceeds 15 s, which keeps every integral exact.

    Raises:
        ConfigError: an option of the scenario cannot be used.
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
