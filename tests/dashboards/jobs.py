"""What a Prometheus has of the six jobs of `tests.jobs.situations`, of jobs seen in part, and of a host without one."""

import math
import re
from array import array
from collections.abc import Iterator
from pathlib import Path

from tests.dashboards.fleet import Fleet, joined, with_rules
from tests.dashboards.grafana import FOLDER
from tests.dashboards.job_board import FILE
from tests.jobs.conftest import job, owned_between, owners_of
from tests.jobs.histories import edited, history_of, with_series
from tests.jobs.situations import BY_NAME, SITUATIONS, Scheduler, Situation
from tests.rules.examine import mentioned
from tests.rules.rulefile import rule_files

from gpu_triage_simulator.history import History, SeriesKey

ENDED = "4804"
"""It ran for the first 20 of 40 minutes."""
ENDED_AFTER_MINUTES = 20
SHARED = "4805"
"""It has GPU 0 of a host, and `NEIGHBOR` has GPU 1."""
NEIGHBOR = "4806"
KNOWN_FROM_MINUTE = 31
PAUSED_PACE, PAUSED_MINUTE = 0.2, 39
"""Of the job that saves a checkpoint then."""
PACES = {"slow-gpu": 0.7, "starved": 0.3, "checkpoints": 1.0, "slow-host": 0.8}
"""What the rules recorded of the jobs of four hosts with two GPUs, from a minute on; of the others nothing."""
CHANGED = "slow-host"
CHANGED_MINUTE = 35
"""Its work has changed, so that its pace is not known from then on."""
PACE_OF_ENDED = 0.5
WAITED_FOR = {"slow-gpu": ("1", "computing"), "starved": ("", "starving")}
"""GPU ("" for all of the culprit) and reason."""
FREE = "free:9836"
"""A host that tells no owners."""


MADE = {
    *("instance_gpu_owner:gpu_job:member", "owner_of:gpu_job:usual", "owner_bottleneck:gpu_job:gpus"),
    *("owner:gpu_job_steps:slowest", "owner:gpu_job:pausing", "owner:gpu_hang:stuck"),
}
"""What the rules make of these jobs in 40 minutes; the pace takes them longer."""


def record_jobs(promtool: Path, directory: Path) -> Fleet:
    """Jobs of Slurm count their steps, those of Kubernetes do not; the series of the pace are written by hand."""
    rules = tuple(path for path in rule_files() if path.name == "alerts-jobs.yml")
    metrics = frozenset(re.findall(r"\bgpu_\w+|\bup\b", (FOLDER / FILE).read_text(encoding="utf-8"))) | mentioned(rules)
    histories = [
        history_of(
            situation, scheduler, steps=scheduler is Scheduler.SLURM, metrics=metrics, target=target_of(scheduler)
        )
        for situation in SITUATIONS
        for scheduler in Scheduler
    ]
    history = joined([*histories, *_others()])
    history = with_rules(history, promtool, directory, rules, MADE)
    recorded: dict[SeriesKey, array[float]] = {}
    for name, labels, value, first, last in _recorded():
        key = (name, tuple(sorted(labels.items())))
        column = recorded.setdefault(key, array("d", [math.nan]) * history.steps)
        for step in range(first, min(last, history.steps - 1) + 1):
            column[step] = value
    return Fleet(joined([history, with_series(history, recorded)]), {})


def _recorded() -> Iterator[tuple[str, dict[str, str], float, int, int]]:
    """Name, labels, value, first and last minute of each series that the rules recorded."""
    known = [
        (_owner(BY_NAME[name], scheduler), target_of(scheduler), pace, 8, name, KNOWN_FROM_MINUTE)
        for name, pace in PACES.items()
        for scheduler in Scheduler
    ]
    known.append((f"{ENDED}/", {}, PACE_OF_ENDED, 2, "ended", 5))
    for owner, target, pace, gpus, name, first in known:
        labels = {"job": "gpu-triage", "owner": owner, **target}
        last = {CHANGED: CHANGED_MINUTE, "ended": ENDED_AFTER_MINUTES}.get(name, 99)
        times = [(pace, first, last)]
        if name == "checkpoints":
            times = [(pace, first, PAUSED_MINUTE - 1), (PAUSED_PACE, PAUSED_MINUTE, last)]
        for each, since, until in times:
            yield "owner:gpu_job:pace", labels, each, since, until
            yield "owner:gpu_job_lost:gpus", labels, gpus * (1 - each), since, until
        if name in WAITED_FOR:
            gpu, why = WAITED_FOR[name]
            place = {"instance": BY_NAME[name].culprit, "why": why} | ({"gpu": gpu, "uuid": "GPU-1"} if gpu else {})
            yield "instance_gpu_owner_why:gpu_job_waited_for:affected", {**labels, **place}, 0.3, first, last


def _owner(situation: Situation, scheduler: Scheduler) -> str:
    return f"{situation.number}/" if scheduler is Scheduler.SLURM else f"{situation.name}/train"


def target_of(scheduler: Scheduler) -> dict[str, str]:
    """Labels that the scrape adds; jobs of Slurm are in no cluster."""
    return {"cluster": "kubernetes"} if scheduler is Scheduler.KUBERNETES else {}


def _others() -> Iterator[History]:
    yield owned_between(job("ended", ENDED, ""), 0, ENDED_AFTER_MINUTES)
    yield _only_gpu(job("shared", SHARED, ""), "0")
    yield _only_gpu(job("shared", NEIGHBOR, "", user="bob"), "1")
    owners = owners_of(free := job("free", "0", ""))
    yield edited(free, lambda key, _minute, value: float("nan") if key in owners.series else value)


def _only_gpu(history: History, gpu: str) -> History:
    return edited(history, lambda key, _minute, value: value if dict(key[1]).get("gpu", gpu) == gpu else float("nan"))
