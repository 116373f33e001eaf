"""What Prometheus has of the six jobs of `situations`, made of few recordings.

Hosts to which the same happens are copies of one recording, with names and UUIDs of their own. Every recording has both
kinds of owner, and a copy keeps one of them.
"""

import math
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from tests.jobs.situations import (
    ACCOUNT,
    HOSTS,
    JOB_NAME,
    LETTERS,
    MINUTES,
    SLOW_CHIP,
    STEP_SECONDS,
    STEPS,
    USER,
    Event,
    Scheduler,
    Situation,
)
from tests.recordings import recorded, thinned
from tests.rules.cases import FOLDER

from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESS_OWNER_INFO
from gpu_triage_simulator.history import Family, History, SeriesKey
from gpu_triage_simulator.scenario import Scenario
from gpu_triage_simulator.scenario_file import read_scenario
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
    for letter, kind in situation.hosts.items():
        copied = _copy(situation, letter, scheduler, target or {})
        for key, column in _recording(kind).series.items():
            if metrics is None or key[0] in metrics:
                renamed = copied(key)
                if renamed is not None:
                    made[renamed] = column
    whole = _recording("checkpoints")
    if steps:
        made |= _steps(situation, scheduler, whole.steps, target or {})
    return replace(whole, series=made, families=families_of(made))


def scenario_of(kind: str) -> Scenario:
    """A host of two GPUs to which this happens, with both kinds of owner."""
    base = read_toml(FOLDER / "base" / "two-h100.toml")
    gpus, processes = base["gpu"], base["process"]
    if kind == SLOW_CHIP:
        gpus = [gpus[0], {**gpus[1], "boost_mhz": 1386}]
    numbered = [
        {**each, "cgroup": f"/system.slice/slurmstepd.scope/job_{_NUMBER}/step_0/user/task_{place}"}
        for place, each in enumerate(processes)
    ]
    owners: list[Event] = [
        {"gpu": gpu, owner: named}
        for gpu in range(len(gpus))
        for owner, named in (
            ("slurm", {"job": _NUMBER, "user": USER, "account": ACCOUNT}),
            ("pod", {"name": _POD, "namespace": _NAMESPACE, "container": "trainer"}),
        )
    ]
    name = f"job-{kind.replace(' ', '-').lower()}"
    changed = {"gpu": gpus, "process": numbered, "allocation": owners, "event": [*HOSTS.get(kind, ())], "name": name}
    return read_scenario({**base, **changed}, f"{name}.toml")


@cache
def _recording(kind: str) -> History:
    return thinned(recorded(scenario_of(kind), seconds=MINUTES * 60.0), STEP_SECONDS)


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
    column = array("d", [0.0])
    for step in range(1, count):
        column.append(column[-1] + STEP_SECONDS * situation.pace((step - 1) * STEP_SECONDS))
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


def edited(history: History, change: Callable[[SeriesKey, float, float], float]) -> History:
    """The history with other values: `change` gets a series, the minute and the value, and returns NaN for none."""
    series = {
        key: array("d", (change(key, step * STEP_SECONDS / 60, value) for step, value in enumerate(column)))
        for key, column in history.series.items()
    }
    kept = {key: column for key, column in series.items() if not all(map(math.isnan, column))}
    return replace(history, series=kept, families=families_of(kept))


def relabeled(history: History, change: Callable[[str, dict[str, str]], dict[str, str]]) -> History:
    """The history with other labels: `change` gets a metric and its labels, and returns the new ones."""
    series = {
        (name, tuple(sorted(change(name, dict(labels)).items()))): column
        for (name, labels), column in history.series.items()
    }
    return replace(history, series=series, families=families_of(series))
