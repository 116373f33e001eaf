"""Hosts that play a recorded history of one simulated host, each from another moment on."""

from __future__ import annotations

import math
import random
import re
import threading
from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tests.bench.fleet import MET_SECONDS, MET_SHARE, is_met, of_host, written

from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.history import History, history_config, record_history
from gpu_triage_simulator.series import UP, SeriesKey

SCENARIO = "h100-8"
TARGET = ("instance", "job")
"""Labels that a scrape attaches, which a page does not have."""
PHASES = 40
"""Moments that hosts begin at: neighbors in a request of remote write do not send the same values."""

NOISE = 0.02
READING = re.compile(r"_(ratio|watts|celsius|hertz|bytes|bytes_per_second|seconds_total|bytes_total|joules_total)$")
CONSTANT = re.compile(
    r"limit|max|min_|threshold|expected|total_bytes|reserved|default|target|_rate_|_speed_|classified|bottleneck|up_seconds"
)
RESOLUTION = {"ratio": 0.01, "watts": 0.001, "celsius": 1.0, "hertz": 15e6, "bytes": 2.0**20, "second": 1024.0}
"""Of readings by the last word of the metric's name, as drivers report them."""


def profile_history(profile: str, seconds: float, step_seconds: float, start_seconds: float) -> History:
    """What a Prometheus holds of one healthy host with eight H100 whose exporter uses a metrics profile."""
    scenario = load_scenario(SCENARIO)
    config = replace(history_config(scenario, step_seconds), metrics_profile=profile)
    return record_history(
        scenario, seconds=seconds, step_seconds=step_seconds, config=config, start_seconds=start_seconds
    )


def with_noise(history: History, seed: int = 1) -> History:
    """The history with 2% of noise on every reading that is not 0, rounded as drivers report it.

    The simulated host's readings are calmer than a real one's, and what does not change costs almost no disk.
    """
    chance = random.Random(seed)
    return replace(history, series={key: _noisy(key, values, chance) for key, values in history.series.items()})


def changing_series(history: History) -> int:
    return sum(len(set(values)) > 2 for values in history.series.values())


def _noisy(key: SeriesKey, values: Sequence[float], chance: random.Random) -> Sequence[float]:
    name = key[0]
    if not READING.search(name) or CONSTANT.search(name) or any(map(math.isnan, values)):
        return values
    if name.endswith("_total"):
        return _noisy_counter(values, chance)
    step = RESOLUTION[name.rsplit("_", 1)[1]]
    noisy = (round(value * (1 + chance.gauss(0, NOISE)) / step) * step for value in values)
    return array("d", (min(each, 1.0) for each in noisy) if name.endswith("_ratio") else noisy)


def _noisy_counter(values: Sequence[float], chance: random.Random) -> Sequence[float]:
    found = array("d", values[:1])
    for before, after in pairwise(values):
        found.append(found[-1] + max(0.0, after - before) * max(0.0, 1 + chance.gauss(0, NOISE)))
    return found


class PlayedPages:
    """Pages of hosts that play a history.

    Args:
        start_seconds: Unix time at which host 0 plays its first moment.
    """

    def __init__(self, history: History, start_seconds: float) -> None:
        self._history = history
        self._start_seconds = start_seconds
        self._lock = threading.Lock()
        self._frames: dict[int, str] = {}
        self._series = [
            (name, written({key: value for key, value in labels if key not in TARGET}), values)
            for (name, labels), values in history.series.items()
            if name != UP
        ]

    @property
    def series(self) -> int:
        """Series on the page of one host at the history's end; rates need two readings and are absent at first."""
        return sum(not math.isnan(values[-1]) for _, _, values in self._series)

    def page(self, host: int, now_seconds: float) -> bytes:
        step = int((now_seconds - self._start_seconds) // self._history.step_seconds) + host % PHASES
        with self._lock:
            frame = self._frames.get(step)
            if frame is None:
                frame = self._frames[step] = self._rendered(step)
        return of_host(frame, host).encode()

    def _rendered(self, step: int) -> str:
        moment = step % self._history.steps
        # Times that the host reports are those of its history: moved to now, a Prometheus takes them for recent ones.
        moved = self._start_seconds - self._history.start_seconds
        lines = []
        for name, labels, values in self._series:
            value = values[moment]
            if math.isnan(value):
                continue
            if name.endswith("_timestamp_seconds"):
                value += moved
            elif is_met(name, labels):
                value = MET_SECONDS + MET_SHARE * step * self._history.step_seconds
            lines.append(f"{name}{{{labels}}} {value!r}\n")
        return "".join(lines)
