"""Six jobs of four hosts, one thing wrong with each, as Prometheus has them: with steps or without, Slurm's or a pod's.

A job is made of few recordings: hosts to which the same happens are copies of one, with names and UUIDs of their own.
Every recording has both kinds of owner, and a copy keeps one of them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, Final

from tests.recordings import recorded, thinned
from tests.rules.cases import FOLDER

from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESS_OWNER_INFO
from gpu_triage_simulator.history import Family, History, SeriesKey
from gpu_triage_simulator.scenario import Scenario
from gpu_triage_simulator.scenario_file import read_scenario
from gpu_triage_simulator.schema import read_toml

MINUTES: Final = 40
STEP_SECONDS: Final = 60.0
"""Between two scrapes: the slowest that the exporter supports."""
LETTERS: Final = "abcd"
CULPRIT: Final = "c"
"""The host on which something is wrong, its GPU 1 if it is one GPU."""
STEPS: Final = "gpu_job_steps_total"
USER, ACCOUNT = "ada", "physics"
JOB_NAME: Final = "pretraining"

_NUMBER, _POD, _NAMESPACE = "4711", "train-0", "research"
"""The owners of what is recorded; those of a copy take their place."""
_OWNER_METRICS: Final = frozenset({GPU_ALLOCATED.name, GPU_PROCESS_INFO.name, GPU_PROCESS_OWNER_INFO.name})
_FORWARD: Final = 2.0
"""Steps per second of a healthy job."""


class Scheduler(Enum):
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


Event = Mapping[str, Any]


def _load(at: str, **effect: float | bool) -> Event:
    return {"at": at, "effect": {"kind": "load", **effect}}


_SPIN: Final = {
    "utilization": 1.0,
    "memory_utilization": 0.02,
    "intensity": 0.05,
    "spinning": True,
    "jitter": 0.0,
    "pcie_receive_bytes_per_second": 0.0,
    "pcie_transmit_bytes_per_second": 0.0,
}
"""A rank that waits in a collective."""
_PAUSES: Final = tuple(
    {**_load(f"{minute}m", utilization=0.0), "until": f"{minute * 60 + 90}s"} for minute in (8, 18, 28, 38)
)

HOSTS: Final[Mapping[str, tuple[Event, ...]]] = {
    # It waits at the end of each step for a slower one: less power, and the same clock.
    "waiting": (_load("0m", utilization=1.0, intensity=0.6),),
    "slow GPU": (
        _load("0m", utilization=1.0, intensity=0.6),
        {
            "at": "12m",
            "gpu": 1,
            "effect": {"kind": "thermal_throttle", "source": "hw", "sm_clock_mhz": 1250, "ambient_celsius": 44},
        },
    ),
    "locked clocks": (
        _load("0m", utilization=1.0, intensity=0.9),
        {"at": "0m", "effect": {"kind": "application_clock", "sm_mhz": 1410}},
    ),
    "spins": (_load("20m", **_SPIN),),
    # Its GPU 0 waits for its GPU 1, like all others.
    "hung rank": (
        {**_load("20m", **_SPIN), "gpu": 0},
        {**_load("20m", utilization=0.0, memory_utilization=0.0), "gpu": 1},
    ),
    "starved": (
        _load("5m", utilization=0.3, memory_utilization=0.15, intensity=0.8),
        {
            "at": "5m",
            "effect": {
                "kind": "nfs",
                "mount": "/mnt/datasets",
                "reads_per_second": 90,
                "read_bytes_per_second": 4.0e7,
                "read_seconds": 0.11,
            },
        },
    ),
    "waits for the starved": (_load("5m", utilization=1.0, intensity=0.3, spinning=True, jitter=0.0),),
    "checkpoints": _PAUSES,
}
"""What happens to a host of two GPUs, by its kind."""
SLOW_CHIP: Final = "slow chip"
"""A kind of host whose GPU 1 has a lower clock than GPU 0 of the same model, and no reason for it that is known."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A job and what is wrong with it.

    Attributes:
        name: also the prefix of its hosts.
        number: of its Slurm job.
        hosts: the kind of each host, by letter.
        pace: steps per second of every rank at a time in seconds.
        must_say: what an answer about it must have, with ``{host}`` for the culprit; by what it is about: ``slow``,
            ``first``.
    """

    name: str
    number: str
    hosts: Mapping[str, str]
    pace: Callable[[float], float]
    must_say: Mapping[str, str]

    def instance(self, letter: str) -> str:
        return f"{self.name}-{letter}:9836"

    @property
    def culprit(self) -> str:
        """The host that is to be named; of a healthy job the third as well."""
        return self.instance(CULPRIT if CULPRIT in self.hosts else LETTERS[0])


def _hosts(kind: str, others: str) -> dict[str, str]:
    return {letter: kind if letter == CULPRIT else others for letter in LETTERS}


def _after(minute: float, before: float, after: float) -> Callable[[float], float]:
    return lambda seconds: before if seconds < minute * 60 else after


SITUATIONS: Final = (
    Situation(
        "slow-gpu",
        "4701",
        _hosts("slow GPU", "waiting"),
        _after(12, _FORWARD, 1.4),
        {
            "slow": "GPU 1 of {host} is throttled by heat",
            "first": "GPU 1 of {host}: Take it out of use; check fans, airflow, dust, inlet air and the cooler's",
        },
    ),
    Situation(
        "slow-host",
        "4702",
        _hosts("locked clocks", "waiting"),
        lambda _seconds: 1.5,
        {
            "slow": "{host} is held back by a clock limit",
            "first": "Unless that is intended, reset them (nvidia-smi -rac, and -rgc for locked ones).",
        },
    ),
    Situation(
        "slow-pair",
        "4703",
        {LETTERS[0]: SLOW_CHIP},
        lambda _seconds: 1.4,
        {
            "slow": "GPU 1 of {host} runs 30% below the SM clock of the other, and a synchronous job runs at its pace",
            "first": "GPU 1 of {host}: Look at its heat, power and clocks first; move the job off it.",
        },
    ),
    Situation(
        "hang",
        "4704",
        _hosts("hung rank", "spins"),
        _after(20, _FORWARD, 0.0),
        {
            "slow": "GPU 1 of {host} is hung",
            "first": "GPU 1 of {host}: Save the stacks of its ranks (py-spy dump), then have its owner restart it.",
        },
    ),
    Situation(
        "starved",
        "4705",
        _hosts("starved", "waits for the starved"),
        _after(5, _FORWARD, 0.6),
        {
            "slow": "{host} is waiting for storage",
            "first": "{host}: Keep the data local, cache, prefetch or shard it, before adding GPUs.",
        },
    ),
    Situation(
        "checkpoints",
        "4706",
        dict.fromkeys(LETTERS, "checkpoints"),
        lambda seconds: 0.0 if seconds // 60 % 10 == 8 else _FORWARD,
        {
            "slow": "nothing holds its GPUs back, and none of them is slower than the others",
            "first": "Profile the job: nothing outside of it holds its GPUs back.",
        },
    ),
)
BY_NAME: Final = {situation.name: situation for situation in SITUATIONS}


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
    return replace(whole, series=made, families=_families(made))


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


_POD_LABELS: Final = ("workload_pod", "workload_namespace", "workload_container", "pod_uid")


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


def _families(series: Mapping[SeriesKey, Sequence[float]]) -> tuple[Family, ...]:
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
    return replace(history, series=kept, families=_families(kept))


def relabeled(history: History, change: Callable[[str, dict[str, str]], dict[str, str]]) -> History:
    """The history with other labels: `change` gets a metric and its labels, and returns the new ones."""
    series = {
        (name, tuple(sorted(change(name, dict(labels)).items()))): column
        for (name, labels), column in history.series.items()
    }
    return replace(history, series=series, families=_families(series))
