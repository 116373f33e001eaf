"""What the rules and the command make of random jobs."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner
from tests.dashboards.fleet import Fleet
from tests.dashboards.store import serving
from tests.jobs.histories import families_of
from tests.jobs.random_jobs import MINUTES, SAMPLE_SECONDS, Case, series_of
from tests.promql.promtool import Run, ask, selector
from tests.rules.rulefile import groups_of, rule_files

from gpu_triage.cli.fleet.job_pace import LOST, PACE, WAITED_FOR
from gpu_triage.cli.main import group
from gpu_triage_simulator.clocks import START_OF_TIME
from gpu_triage_simulator.history import History, SeriesKey

FIRING: Final = 'ALERTS{alertstate="firing"}'
OF_JOBS: Final = frozenset({"GpuJobSlow", "GpuJobHung", "GpuStragglerAcrossHosts"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was said of one job."""

    case: Case
    told: Mapping[str, float]  # minutes from the trouble, or from minute 30, to the first alert of each name
    document: Mapping[str, Any]  # of ``gpu-triage job`` at the end

    @property
    def lost(self) -> float | None:
        """The share that is lost at the end, as told."""
        loss = self.document["loss"]
        return None if loss is None or loss["pace"] is None else 1 - loss["pace"]

    @property
    def named(self) -> tuple[str, str] | None:
        """Host and GPU ("" for the host) that the others wait for at the end."""
        waits = [each for each in (self.document["loss"] or {"waits_for": ()})["waits_for"] if each["at_end"]]
        return (waits[0]["instance"], waits[0]["uuid"] or "") if waits else None

    @property
    def right(self) -> bool:
        """Whether the culprit is named, and of a healthy job none."""
        if self.case.truth.culprit is None:
            return self.named is None
        host, gpu = self.case.truth.culprit
        alone = sum(rank.host == host for rank in self.case.job.ranks) == 1
        gpus = {""} if gpu is None else {f"GPU-{host}-{gpu}", *([""] if alone else [])}
        gpus |= {f"GPU-{host}-0"} if alone else set()
        return self.named is not None and self.named[0] == host and self.named[1] in gpus


def play(promtool: Path, prometheus: Path, directory: Path, cases: Sequence[Case]) -> Iterator[Outcome]:
    """The outcome of each job: all in one run of the rules, then in one Prometheus that the command asks."""
    raw = {name: values for case in cases for name, values in series_of(case).items()}
    rules = tuple(path for path in rule_files() if path.name == "alerts-jobs.yml")
    minutes = [minute * 60.0 for minute in range(MINUTES + 1)]
    run = Run(
        rules,
        groups_of(rules),
        SAMPLE_SECONDS,
        {selector(name, labels): values for (name, labels), values in raw.items()},
        tuple((question, at) for question in (PACE, LOST, WAITED_FOR, FIRING) for at in minutes),
        (),
        30.0,
    )
    steps = len(next(iter(raw.values())))
    recorded: dict[SeriesKey, array[float]] = {}
    told: dict[str, dict[str, float]] = {case.name: {} for case in cases}
    for (question, at), samples in ask(promtool, run, directory).samples.items():
        for sample in samples:
            if question == FIRING:
                told[sample.labels["cluster"]].setdefault(sample.labels["alertname"], at)
                continue
            column = recorded.setdefault(
                (question, tuple(sorted(sample.labels.items()))), array("d", [math.nan]) * steps
            )
            place = round(at / SAMPLE_SECONDS)
            column[place : place + 2] = array("d", [sample.value] * len(column[place : place + 2]))
    every: dict[SeriesKey, Sequence[float]] = {**raw, **recorded}
    history = History(START_OF_TIME, SAMPLE_SECONDS, steps, every, families_of(every))
    with serving(Fleet(history, {}), prometheus, promtool, directory) as store:
        for case in cases:
            name = case.owner.get("slurm_job_id") or f"ml/{case.name}"
            arguments = ["job", name, "--prometheus", f"http://{store.address}", "--cluster", case.name]
            end = f"{START_OF_TIME + MINUTES * 60:.0f}"
            result = CliRunner().invoke(
                group, [*arguments, "--at", end, "--format", "json"], catch_exceptions=False, standalone_mode=False
            )
            begins = max(case.at, 30 * 60.0) if case.truth.loss else 0.0
            yield Outcome(
                case,
                {alert: (first - begins) / 60 for alert, first in told[case.name].items()},
                json.loads(result.stdout),
            )
