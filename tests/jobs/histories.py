"""What Prometheus has of the six jobs of `situations`, made of few recordings.

Hosts to which the same happens are copies of one recording, with names and UUIDs of their own. Every recording has both
kinds of owner, and a copy keeps one of them. What the hosts of a job do to each other is in the recordings.
"""

import math
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from tests.jobs.situations import (
    ACCOUNT,
    BY_NAME,
    COMPUTE_SECONDS,
    CULPRIT,
    EXCHANGE_SECONDS,
    JOB_NAME,
    LETTERS,
    MINUTES,
    STEP_SECONDS,
    STEPS,
    USER,
    Scheduler,
    Situation,
    Table,
)
from tests.recordings import recorded, thinned
from tests.rules.cases import FOLDER

from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESS_OWNER_INFO
from gpu_triage_simulator.conditions import Timeline
from gpu_triage_simulator.history import Family, History, SeriesKey
from gpu_triage_simulator.scenario import Scenario
from gpu_triage_simulator.scenario_file import read_fleet
from gpu_triage_simulator.schema import read_toml

_NUMBER, _POD, _NAMESPACE = "4711", "train-0", "research"
"""The owners of what is recorded; those of a copy take their place."""
_OWNER_METRICS: Final = frozenset({GPU_ALLOCATED.name, GPU_PROCESS_INFO.name, GPU_PROCESS_OWNER_INFO.name})
_POD_LABELS: Final = ("workload_pod", "workload_namespace", "workload_container", "pod_uid")


def history_of(
    situation: Situation,
    scheduler: Scheduler = Scheduler.SLURM,
    *,
    steps: bool = True,
    metrics: Collection[str] | None = None,
    target: Mapping[str, str] | None = None,
) -> History:
    """What Prometheus has of a job's hosts.

    Args:
        steps: whether each rank counts its steps.
        metrics: of these alone; None for all that a recording has.
        target: labels that the scrape adds.
    """
    made: dict[SeriesKey, Sequence[float]] = {}
    for letter in situation.hosts:
        copied = _copy(situation, letter, scheduler, target or {})
        # To all hosts but one, the same happens.
        whole = _recording(situation.happens, letter if letter == CULPRIT else LETTERS[0])
        for key, column in whole.series.items():
            if metrics is None or key[0] in metrics:
                renamed = copied(key)
                if renamed is not None:
                    made[renamed] = column
    if steps:
        made |= _steps(situation, scheduler, whole.steps, target or {})
    return replace(whole, series=made, families=families_of(made))


def fleet_of(situation: Situation) -> Mapping[str, Scenario]:
    """The job's hosts by letter, each of two GPUs and with both kinds of owner."""
    base = read_toml(FOLDER / "base" / "two-h100.toml")
    processes = [
        {**each, "cgroup": f"/system.slice/slurmstepd.scope/job_{_NUMBER}/step_0/user/task_{place}"}
        for place, each in enumerate(base["process"])
    ]
    owners: list[Table] = [
        {"gpu": gpu, owner: named}
        for gpu in range(2)
        for owner, named in (
            ("slurm", {"job": _NUMBER, "user": USER, "account": ACCOUNT}),
            ("pod", {"name": _POD, "namespace": _NAMESPACE, "container": "trainer"}),
        )
    ]
    names = {letter: f"job-{situation.happens}-{letter}" for letter in situation.hosts}
    ranks = [{"host": name, "gpus": [0, 1], "compute_seconds": COMPUTE_SECONDS} for name in names.values()]
    job = {"exchange_seconds": EXCHANGE_SECONDS, "ranks": ranks, "episode": [*situation.episodes]}
    hosts = [
        {"name": names[letter], "event": [*host.events], "gpu": [base["gpu"][0], {**base["gpu"][1], **host.second_gpu}]}
        for letter, host in situation.hosts.items()
    ]
    changed = {"process": processes, "allocation": owners, "job": [job], "host": hosts}
    return dict(zip(names, read_fleet({**base, **changed}, f"{situation.happens}.toml"), strict=True))


@cache
def _recording(happens: str, letter: str) -> History:
    scenario = fleet_of(BY_NAME[happens])[letter]
    return thinned(recorded(scenario, seconds=MINUTES * 60.0), STEP_SECONDS)


def _copy(
    situation: Situation, letter: str, scheduler: Scheduler, target: Mapping[str, str]
) -> Callable[[SeriesKey], SeriesKey | None]:
    """How a series is named on a host; None for one of the other scheduler."""
    instance = situation.instance(letter)
    pod = f"train-{LETTERS.index(letter)}"

    def copied(key: SeriesKey) -> SeriesKey | None:
        name, pairs = key
        labels = dict(pairs)
        labels |= {"instance": instance, **target}
        if "uuid" in labels:
            labels["uuid"] = f"{labels['uuid']}-{situation.name}-{letter}"
        if name in _OWNER_METRICS:
            others = ("slurm_job_id",) if scheduler is Scheduler.KUBERNETES else _POD_LABELS
            if name == GPU_ALLOCATED.name and any(labels.get(other) for other in others):
                return None
            labels = {label: value for label, value in labels.items() if label not in others}
            named = {"slurm_job_id": situation.number, "workload_pod": pod, "workload_namespace": situation.name}
            labels |= {label: value for label, value in named.items() if label in labels}
        return name, tuple(sorted(labels.items()))

    return copied


def _steps(
    situation: Situation, scheduler: Scheduler, count: int, target: Mapping[str, str]
) -> dict[SeriesKey, Sequence[float]]:
    """The counters of the ranks, one per GPU, as the jobs' files have them (docs/textfile.md)."""
    timeline = Timeline(fleet_of(situation)[LETTERS[0]])
    column = array("d", [0.0])
    for scrape in range(1, count):
        seconds = range(int((scrape - 1) * STEP_SECONDS), int(scrape * STEP_SECONDS))
        shares = [timeline.shares(0, second) for second in seconds]
        column.append(column[-1] + sum(each.steps for each in shares if each is not None))
    made: dict[SeriesKey, Sequence[float]] = {}
    for host, letter in enumerate(situation.hosts):
        pod = f"{situation.name}_train-{LETTERS.index(letter)}"
        owner = situation.number if scheduler is Scheduler.SLURM else pod
        for gpu in range(2):
            labels = {
                "instance": situation.instance(letter),
                "job": "gpu-triage",
                "job_name": JOB_NAME,
                "owner": owner,
                "rank": str(2 * host + gpu),
                **target,
            }
            # A rank is a few steps ahead of another at the instant of a scrape.
            made[STEPS, tuple(sorted(labels.items()))] = array("d", (value + gpu for value in column))
    return made


def families_of(series: Mapping[SeriesKey, Sequence[float]]) -> tuple[Family, ...]:
    members: dict[str, list[SeriesKey]] = {}
    for key in sorted(series):
        members.setdefault(key[0], []).append(key)
    return tuple(
        Family(name.removesuffix("_total"), "counter" if name.endswith("_total") else "unknown", "", tuple(keys))
        for name, keys in members.items()
    )


def with_series(history: History, series: Mapping[SeriesKey, Sequence[float]]) -> History:
    """A history of the same time with these series."""
    return replace(history, series=series, families=families_of(series))


def edited(history: History, change: Callable[[SeriesKey, float, float], float]) -> History:
    """The history with other values: `change` gets a series, the minute and the value, and returns NaN for none."""
    series = {
        key: array("d", (change(key, step * STEP_SECONDS / 60, value) for step, value in enumerate(column)))
        for key, column in history.series.items()
    }
    kept = {key: column for key, column in series.items() if not all(map(math.isnan, column))}
    return with_series(history, kept)


def relabeled(history: History, change: Callable[[str, dict[str, str]], dict[str, str]]) -> History:
    """The history with other labels: `change` gets a metric and its labels, and returns the new ones."""
    series = {
        (name, tuple(sorted(change(name, dict(labels)).items()))): column
        for (name, labels), column in history.series.items()
    }
    return with_series(history, series)
