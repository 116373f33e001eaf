"""Recordings of scenarios, each made once and kept: what an exporter publishes while a scenario goes on.

Making one takes seconds of a CPU, and the tests of rules, dashboards and fleets read the same ones. They are kept in
build/recordings under a hash of everything they are made of: a change of rules records nothing. A worker that needs one
that another worker is making waits for it. The folder can be removed at any time.
"""

import hashlib
import math
import os
import pickle
import sys
import time
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

from filelock import FileLock

import gpu_triage
from gpu_triage.options.config import Config
from gpu_triage.read.metrics.contract import runs
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.registry import ALL_COLLECTORS, METRICS
from gpu_triage.read.selection import Selection
from gpu_triage_simulator import Scenario
from gpu_triage_simulator.history import History, SeriesKey, history_config, record_history

STEP_SECONDS: Final = 30.0
"""Between two scrapes. A link that comes and goes within a minute must be seen by an exporter that is scraped once a
minute, so its exporter samples as often."""

MARGIN_SECONDS: Final = 120
"""How long a scenario goes on after its last expectation: nothing unforeseen may fire then either."""

OFF_BY_DEFAULT: Final = {"pcie_throughput": True, "process_memory_locality": True}
IN_DETAIL: Final = (
    *("gpu_process_*", "gpu_processes_truncated", "gpu_busiest_thread_ratio", "gpu_running_thread_seconds_total"),
    *("gpu_cgroup_pressure_seconds_total", "gpu_nvlink_fec_blocks_total", "gpu_host_infiniband_events_total"),
)
"""Metrics of which somebody reads every series; of all others a recording has what every page shows."""
DRILL: Final = {"drill": "true"}
"""The label of a target that is simulated on purpose."""

REPOSITORY: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = REPOSITORY / "build" / "recordings"
MOST_BYTES: Final = 256 << 20

PACKAGE: Final = Path(gpu_triage.__file__).parent
UNUSED: Final = frozenset({"alerting", "cli", "record", "serve"})
"""Folders of the package that no recording depends on."""

_SPECS: Final = {spec.name: spec for spec in METRICS}


def recorded(
    scenario: Scenario, *, seconds: float, step_seconds: float = STEP_SECONDS, folder: Path = FOLDER
) -> History:
    """What is published in a scenario's first `seconds`: by default everything that any family of tests reads.

    Its expectations do not count: a recording is of what happens.

    Args:
        seconds: how much of it; a recording that is longer serves as well.
        folder: where recordings are kept.
    """
    step_seconds = float(step_seconds)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{scenario.name}-{step_seconds:g}s"
    path = folder / f"{name}-{key(scenario, step_seconds)}.history"
    with FileLock(folder / f"{name}.lock"):
        kept = _kept(path)
        if kept is None or kept.steps < _steps(seconds, step_seconds):
            kept = _record(scenario, seconds, step_seconds)
            _write(path, kept)
            _prune(folder)
    return shortened(kept, seconds)


def seconds_of(scenario: Scenario) -> float:
    """Up to a little after its last expectation; 0 where it has none."""
    return max((float(each.at) + MARGIN_SECONDS for each in scenario.expectations), default=0.0)


def key(scenario: Scenario, step_seconds: float) -> str:
    """A hash of what a recording is made of: the package's sources, the scenario, the libraries and Python."""
    happening = replace(scenario, description="", expectations=())
    parts = (_sources(), sys.version, repr(happening), f"{step_seconds:g}")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def sources() -> tuple[Path, ...]:
    """The files that decide what is recorded, but for the scenario's own."""
    unused = [PACKAGE / folder for folder in UNUSED]
    kinds = (PACKAGE.parent.rglob("*.py"), PACKAGE.rglob("*.json"), PACKAGE.rglob("*.toml"))
    used = (path for path in chain(*kinds) if not any(map(path.is_relative_to, unused)))
    return (*sorted(used), REPOSITORY / "requirements" / "runtime.txt", Path(__file__))


def shortened(history: History, seconds: float) -> History:
    """Its first `seconds`, without the series that begin later."""
    steps = _steps(seconds, history.step_seconds)
    if steps == history.steps:
        return history
    return _with(replace(history, steps=steps), {name: column[:steps] for name, column in history.series.items()})


def thinned(history: History, step_seconds: float) -> History:
    """The same, scraped less often: every `step_seconds`, a multiple of its own."""
    each = round(step_seconds / history.step_seconds)
    steps = (history.steps - 1) // each + 1
    found = {name: column[::each] for name, column in history.series.items()}
    return _with(replace(history, step_seconds=step_seconds, steps=steps), found)


def published(history: History, config: Config) -> History:
    """Of a recording, what an exporter of this configuration publishes."""
    config = replace(config, state_directory=config.state_directory or FOLDER)  # as in every history
    selection = Selection(config)
    silent = [collector for collector in ALL_COLLECTORS if not runs(collector, config)]
    unread = {spec.name for collector in silent for spec in collector.metrics}
    names = {collector.name for collector in silent}

    def shown(series: SeriesKey, column: Sequence[float]) -> Sequence[float]:
        name, labels = series[0], dict(series[1])
        spec = _SPECS.get(name)
        if spec is None:
            return column
        chosen = selection.shown(spec)
        if chosen is False or name in unread or labels.get("collector") in names:
            return ()
        if chosen is True:
            return column
        own = tuple(labels.get(f"exported_{label}", labels.get(label, "")) for label in spec.labels)
        return array("d", (value if chosen(Sample(spec, own, value)) else math.nan for value in column))

    return _with(history, {series: shown(series, column) for series, column in history.series.items()})


def _with(history: History, series: Mapping[SeriesKey, Sequence[float]]) -> History:
    """A history with these of its series, but for those without a sample."""
    kept = {name: column for name, column in series.items() if any(value == value for value in column)}  # noqa: PLR0124 - NaN is no sample
    families = (replace(each, series=tuple(name for name in each.series if name in kept)) for each in history.families)
    return replace(history, series=kept, families=tuple(each for each in families if each.series))


def _config(scenario: Scenario, step_seconds: float) -> Config:
    usual = history_config(scenario, step_seconds)
    return replace(usual, collectors={**usual.collectors, **OFF_BY_DEFAULT}, metrics_include=IN_DETAIL)


def _record(scenario: Scenario, seconds: float, step_seconds: float) -> History:
    config = _config(scenario, step_seconds)
    return record_history(
        scenario, seconds=seconds, step_seconds=step_seconds, config=config, target={**DRILL, **scenario.target.labels}
    )


def _steps(seconds: float, step_seconds: float) -> int:
    return int(seconds / step_seconds + 1e-9) + 1


@cache
def _sources() -> str:
    digest = hashlib.sha256()
    for path in sources():
        digest.update(f"{path.relative_to(REPOSITORY)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _kept(path: Path) -> History | None:
    """The recording in a file, which is noted as read; None if there is none."""
    try:
        content = path.read_bytes()
        os.utime(path, (time.time(), path.stat().st_mtime))
    except FileNotFoundError:
        return None
    history: History = pickle.loads(zlib.decompress(content))  # noqa: S301 - written below, in a folder of this checkout
    return history


def _write(path: Path, history: History) -> None:
    compact = replace(history, series={name: array("d", column) for name, column in history.series.items()})
    new = path.with_suffix(".new")
    new.write_bytes(zlib.compress(pickle.dumps(compact), 1))
    new.replace(path)


def _prune(folder: Path) -> None:
    """Remove what was read longest ago, until the rest is within MOST_BYTES."""
    kept = sorted((path.stat().st_atime, path.stat().st_size, path) for path in folder.glob("*.history"))
    total = sum(size for _, size, _ in kept)
    for _, size, path in kept:
        if total <= MOST_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= size
