"""Random jobs of several hosts with one hidden truth each, and what exporters would publish of them.

Every job has a size, a model, a step and chips of its own. A third of them are healthy and odd by design: stages of a
pipeline with unequal work, a parameter server, two models of GPU, evaluations on rank 0, checkpoints, other work. The
series come from `gpu_triage_simulator.job` directly, since a whole exporter would take a minute for each host.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage_simulator.history import SeriesKey
from gpu_triage_simulator.job import Episode, Job, Rank, Shares, Trouble

SAMPLE_SECONDS: Final = 30.0
MINUTES: Final = 125
END: Final = MINUTES * 60.0
BEGINS: Final = (75 * 60.0, 85 * 60.0)
"""Between these seconds the trouble begins, unless it is there from the first minute."""
STILL, SPINS, WAITS = 0.99, 0.9, 0.3
"""Shares of the time from which on a rank does nothing, spins, or waits, to the exporter."""

Series = dict[SeriesKey, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Model:
    """What a GPU of a model measures while it computes, exchanges and spins."""

    name: str
    limit_watts: float
    awake_watts: float
    spinning_watts: float
    clock_mhz: float
    speed: float  # relative to an H100
    gpm: bool  # whether the driver reports SM and DRAM activity


H100: Final = Model("NVIDIA H100 80GB HBM3", 700, 72, 123, 1980, 1.0, gpm=True)
H200: Final = Model("NVIDIA H200", 700, 76, 130, 1980, 1.15, gpm=True)
A100: Final = Model("NVIDIA A100-SXM4-80GB", 400, 62, 88, 1410, 0.45, gpm=False)
EXCHANGE_DRAM: Final = 0.04
SPINNING_SM: Final = 24 / 132  # NCCL's channels on an H100


def key(name: str, labels: Mapping[str, str]) -> SeriesKey:
    return name, tuple(sorted(labels.items()))


@dataclass(frozen=True, slots=True)
class Activity:
    """What a job's kernels do while they compute."""

    sm: float  # share of SMs
    dram: float  # share of the memory's bandwidth
    watts: float  # share of the power limit
    noise: float  # by how much steps differ, relative


@dataclass(frozen=True, slots=True)
class Truth:
    """What happens to a job."""

    episodes: tuple[Episode, ...] = ()
    culprit: tuple[str, int | None] | None = None  # host, and GPU unless it is the host
    loss: float = 0.0  # share of its pace that is lost; 0 for a healthy job


@dataclass(frozen=True, slots=True)
class Case:
    """One job and its truth."""

    name: str  # also its cluster
    kind: str
    job: Job
    truth: Truth
    models: Mapping[str, Model]  # by host
    owner: Mapping[str, str]  # labels of what is allocated, without the pod's name
    activity: Activity
    chips: Sequence[float]  # how each rank's own measurements differ
    seed: int

    @property
    def at(self) -> float:
        """Second at which the trouble begins; 0 for a healthy job."""
        return self.truth.episodes[0].at if self.truth.loss else 0.0

    @property
    def pods(self) -> bool:
        return "workload_namespace" in self.owner


FROM_THE_START: Final = " from the start"
SLOW: Final = (
    *("slow clock", "silent", "slow host", "starved host", "network"),
    *(f"{each}{FROM_THE_START}" for each in ("silent", "starved host")),
)
HANGS: Final = ("exited", "hung")
HEALTHY: Final = ("plain", "stages", "server", "mixed", "evaluation", "checkpoints", "changed", "late", "uneven data")


def cases(count: int, seed: int) -> Iterator[Case]:
    """Jobs in turn: a third healthy, a ninth stopped, the others slow, of every kind."""
    source = random.Random(seed)
    for number in range(count):
        pool = HEALTHY if number % 3 == 0 else HANGS if number % 9 == 1 else SLOW
        kind = pool[(number if pool is SLOW else number // 3) % len(pool)]
        yield _case(number, kind, random.Random(source.random()))


def large(hosts: int, seed: int) -> Case:
    """A job of so many hosts with 8 GPUs each, one of which is slow."""
    return _case(0, f"silent{FROM_THE_START}", random.Random(seed), (hosts, 8))


def _case(number: int, kind: str, chance: random.Random, size: tuple[int, int] | None = None) -> Case:
    name = f"{number:02d}-{kind.replace(' ', '-')}"
    hosts, each = size or (chance.randint(2, 6), chance.choice((1, 2, 4, 4, 8, 8)))
    if kind in {"slow host", "stages", f"starved host{FROM_THE_START}"}:
        each = max(2, each)
    # Without GPM, nothing tells a GPU that is slow from the start from a stage with more work.
    model = chance.choice((H100, H200) if kind == f"silent{FROM_THE_START}" else (H100, H100, H200, A100))
    names = [f"{name}-{host}" for host in range(hosts)]
    models = dict.fromkeys(names, model)
    compute = chance.uniform(0.2, 6.0)
    work = [compute] * (hosts * each)
    if kind == "stages":
        # The last host has the head of the model, the first one the embeddings.
        work = [*(0.9 * compute for _ in range(each)), *work[each:-each], *(1.18 * compute for _ in range(each))]
    elif kind == "server":
        work[0] *= 0.05
    elif kind == "mixed":
        models[names[-1]] = H200 if model is H100 else H100
        work = [compute / models[names[rank // each]].speed for rank in range(hosts * each)]
    elif kind == "uneven data":
        work = [compute * chance.uniform(0.97, 1.0) for _ in work]
    ranks = tuple(Rank(names[rank // each], rank % each, work[rank]) for rank in range(hosts * each))
    exchange = compute * chance.uniform(0.03, 0.25)
    truth = _truth(kind, ranks, exchange, chance)
    slurm = {"slurm_job_id": str(4000 + number), "user": "ada", "account": "physics"}
    return Case(
        name,
        kind,
        Job(ranks, exchange, truth.episodes),
        truth,
        models,
        owner=slurm if chance.random() < 0.6 else {"workload_namespace": "ml"},
        activity=Activity(
            sm=chance.uniform(0.6, 0.93),
            dram=chance.uniform(0.2, 0.6),
            watts=chance.uniform(0.75, 0.98),
            noise=chance.uniform(0.001, 0.008),
        ),
        chips=[chance.gauss(1.0, 0.004) for _ in ranks],
        seed=number,
    )


_HEALTHY_EPISODES: Final[Mapping[str, Callable[[random.Random, frozenset[int]], Iterator[Episode]]]] = {
    "evaluation": lambda chance, _: _often(Trouble.ALONE, frozenset({0}), 25, chance.choice((200.0, 600.0))),
    "checkpoints": lambda chance, every: _often(
        Trouble.PAUSED, every, chance.choice((10, 15, 30)), chance.choice((30.0, 90.0, 170.0))
    ),
    "changed": lambda chance, every: iter(
        [Episode(Trouble.CHANGED, chance.uniform(*BEGINS), END, every, chance.uniform(0.6, 0.85))]
    ),
    "late": lambda _, every: iter([Episode(Trouble.LATE, 0.0, 400.0, frozenset({max(every)}))]),
}


def _often(trouble: Trouble, ranks: frozenset[int], minutes: int, lasts: float) -> Iterator[Episode]:
    return (Episode(trouble, at, at + lasts, ranks) for at in range(minutes * 60, int(END), minutes * 60))


def _truth(kind: str, ranks: Sequence[Rank], exchange: float, chance: random.Random) -> Truth:
    every = frozenset(range(len(ranks)))
    if kind in HEALTHY:
        return Truth(tuple(_HEALTHY_EPISODES[kind](chance, every) if kind in _HEALTHY_EPISODES else ()))
    one = chance.randrange(len(ranks))
    host = ranks[one].host
    of_host = frozenset(number for number, rank in enumerate(ranks) if rank.host == host)
    at = 0.0 if kind.endswith(FROM_THE_START) else chance.uniform(*BEGINS)
    if kind in HANGS:
        trouble = Trouble.EXITED if kind == "exited" else Trouble.HUNG
        return Truth((Episode(trouble, at, END, frozenset({one})),), (host, ranks[one].gpu), 1.0)
    lost = chance.uniform(0.05, 0.5)
    # The factor at which the whole step, with its exchange, takes 1 / (1 - lost) times as long.
    compute = ranks[one].compute_seconds
    step = (compute + exchange) / (1 - lost)
    slow = compute / (step - exchange)
    trouble, concerned, factor = {
        "slow clock": (Trouble.SLOW, frozenset({one}), slow),
        "silent": (Trouble.SLOW, frozenset({one}), slow),
        "slow host": (Trouble.SLOW, of_host, slow),
        "starved host": (Trouble.STARVED, of_host, 1 - lost),
        "network": (Trouble.EXCHANGE, of_host, exchange / (step - compute)),
    }[kind.removesuffix(FROM_THE_START)]
    gpu = ranks[one].gpu if len(concerned) < len(of_host) else None
    return Truth((Episode(trouble, at, END, concerned, factor),), (host, gpu), lost)


TIMES: Final = tuple(number * SAMPLE_SECONDS for number in range(int(END / SAMPLE_SECONDS) + 1))


def total(rates: Iterable[float]) -> list[float]:
    """A counter that grows by these rates."""
    return list(accumulate((rate * SAMPLE_SECONDS for rate in rates), initial=0.0))[:-1]


def series_of(case: Case) -> Series:
    """What is scraped of a job's hosts, a sample every `SAMPLE_SECONDS`; its cluster is its name."""
    chance = random.Random(case.seed)
    shares = [case.job.shares(at) for at in TIMES]
    # The same for all: what a step does differs, as with the lengths of texts.
    common = [chance.gauss(1.0, case.activity.noise) for _ in TIMES]
    found: Series = {}
    for number in range(len(case.job.ranks)):
        found |= _gpu(case, number, [each[number] for each in shares], common)
    for name in case.models:
        own = {"instance": name, "job": "gpu-triage", "cluster": case.name}
        found |= {key(metric, own): [1.0] * len(TIMES) for metric in ("gpu_exporter_build_info", "up")}
        # TCP segments: more are sent again where the network is bad.
        bad = case.kind == "network" and case.truth.culprit == (name, None)
        again = [0.004 if bad and at >= case.at else 0.00001 for at in TIMES]
        found[key("gpu_host_tcp_segments_retransmitted_total", own)] = total(20_000 * each for each in again)
        found[key("gpu_host_tcp_segments_sent_total", own)] = [20_000 * at for at in TIMES]
    return found


def _speed(case: Case, number: int, at: float) -> float:
    """How fast a rank computes, relative to what it could."""
    slow = (Trouble.SLOW, Trouble.CHANGED)
    own = (each for each in case.truth.episodes if each.trouble in slow and number in each.ranks)
    return min((each.factor for each in own if each.at <= at < each.until), default=1.0)


def _gpu(case: Case, number: int, shares: Sequence[Shares], common: Sequence[float]) -> Series:
    rank, activity = case.job.ranks[number], case.activity
    model = case.models[rank.host]
    chance = random.Random(case.seed * 1000 + number)
    speeds = [_speed(case, number, at) for at in TIMES]
    clocks = speeds if case.kind == "slow clock" else [1.0] * len(TIMES)
    jitter = [each * case.chips[number] * chance.gauss(1.0, 0.002) for each in common]
    sm = [
        factor * (each.computing * activity.sm + (each.exchanging + each.spinning) * SPINNING_SM)
        for each, factor in zip(shares, jitter, strict=True)
    ]
    dram = [
        factor * (each.computing * activity.dram * speed + each.steps * case.job.exchange_seconds * EXCHANGE_DRAM)
        for each, speed, factor in zip(shares, speeds, jitter, strict=True)
    ]
    watts = [
        each.computing * activity.watts * model.limit_watts * (0.55 + 0.45 * clock**2)
        + each.exchanging * 0.45 * model.limit_watts
        + each.spinning * model.spinning_watts
        + each.starving * model.awake_watts
        for each, clock in zip(shares, clocks, strict=True)
    ]
    threads = total(0.02 if each.starving > STILL else 1.0 for each in shares)
    steady = [1.0] * len(TIMES)
    uuid = f"GPU-{rank.host}-{rank.gpu}"
    labels = {"instance": rank.host, "job": "gpu-triage", "cluster": case.name, "gpu": str(rank.gpu), "uuid": uuid}
    owner = dict(case.owner)
    if case.pods:
        owner |= {"workload_pod": f"{case.name}-{list(case.models).index(rank.host)}"}
    process = {name: value for name, value in owner.items() if name not in {"user", "account"}} | {"user": "1000"}

    def series(metric: str, values: Sequence[float], **more: str) -> tuple[SeriesKey, Sequence[float]]:
        return key(metric, {**labels, **more}), values

    return dict(
        [
            series("gpu_up", steady),
            series("gpu_info", steady, name=model.name, pci_bus_id=f"0000:{rank.gpu}5:00.0", serial="1"),
            series("gpu_allocated", steady, **owner),
            series("gpu_process_owner_info", [math.nan if each.absent else 1.0 for each in shares], **process),
            series("gpu_processes", [float(not each.absent) for each in shares], type="compute"),
            series(
                "gpu_main_thread_cpu_seconds_total",
                [math.nan if each.absent else seconds for each, seconds in zip(shares, threads, strict=True)],
            ),
            series("gpu_busy_seconds_total", total(1.0 - each.starving for each in shares)),
            series("gpu_observed_seconds_total", TIMES),
            series("gpu_energy_joules_total", total(watts)),
            series("gpu_power_watts", watts),
            series("gpu_power_limit_watts", [model.limit_watts] * len(TIMES)),
            series("gpu_power_default_limit_watts", [model.limit_watts] * len(TIMES)),
            series("gpu_clock_hertz", [model.clock_mhz * 1e6 * each for each in clocks], clock="sm"),
            series("gpu_bottleneck", [BOTTLENECK_CLASSES.index(_class(each)) + 1.0 for each in shares]),
            *([series("gpu_sm_active_ratio", sm), series("gpu_dram_active_ratio", dram)] if model.gpm else []),
        ]
    )


def _class(share: Shares) -> str:
    if share.absent:
        return "idle"
    if share.spinning > SPINS:
        return "communication"
    return "unattributed" if share.starving > WAITS else "compute"
