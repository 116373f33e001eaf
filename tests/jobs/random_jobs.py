"""Random jobs of several hosts with one hidden truth each, and what exporters would publish of them.

Every job has a size, a model, a step and chips of its own. A third of them are healthy and odd by design: stages of a
pipeline with unequal work, a parameter server, two models of GPU, evaluations on rank 0, checkpoints, work that changes.
The series come from `gpu_triage_simulator.job` directly, as a whole exporter would take a minute for each host.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage_simulator.history import SeriesKey
from gpu_triage_simulator.job import Episode, Job, Rank, Shares, Trouble

SAMPLE_SECONDS: Final = 30.0
MINUTES: Final = 125
BEGINS: Final = (75 * 60.0, 85 * 60.0)
"""Between these seconds the trouble begins, unless it is there from the first minute."""

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
SPINNING_SM: Final = 24 / 132  # NCCL's channels on an H100


def key(name: str, labels: Mapping[str, str]) -> SeriesKey:
    return name, tuple(sorted(labels.items()))


@dataclass(frozen=True, slots=True)
class Case:
    """One job and its truth."""

    name: str  # also its cluster
    kind: str
    job: Job
    models: Mapping[str, Model]  # by host
    owner: Mapping[str, str]  # labels of what is allocated, without the pod's name
    at: float  # when the trouble begins
    loss: float  # share of its pace that is lost from then on; 0 for a healthy job
    culprit: tuple[str, int | None] | None  # host, and GPU unless it is the host
    slow_clock: bool = False  # whether the culprit's clock shows it
    activity: Mapping[str, float] = field(default_factory=dict)  # sm, dram and watts while it computes
    chips: Sequence[float] = ()  # how each rank's own measurements differ
    seed: int = 0
    host_series: Series = field(default_factory=dict)

    @property
    def pods(self) -> bool:
        return "workload_namespace" in self.owner


SLOW: Final = (
    "slow clock",
    "silent",
    "slow host",
    "starved host",
    "network",
    "slow from the start",
    "starved from the start",
)
HANGS: Final = ("exited", "hung")
HEALTHY: Final = ("plain", "stages", "server", "mixed", "evaluation", "checkpoints", "changed", "late", "uneven data")


def cases(count: int, seed: int) -> Iterator[Case]:
    """Jobs in turn: a third healthy, the others slow or stopped, of every kind."""
    source = random.Random(seed)
    kinds: list[str] = []
    for number in range(count):
        pool = HEALTHY if number % 3 == 0 else HANGS if number % 9 == 1 else SLOW
        kinds.append(pool[(number // 3) % len(pool)] if pool is not SLOW else pool[number % len(pool)])
    for number, kind in enumerate(kinds):
        yield _case(f"{number:02d}-{kind.replace(' ', '-')}", kind, random.Random(source.random()), number)


def _case(name: str, kind: str, chance: random.Random, number: int) -> Case:
    hosts = chance.randint(2, 6)
    each = chance.choice((1, 2, 4, 4, 8, 8)) if kind not in {"slow host", "stages"} else chance.choice((2, 4, 8))
    model = chance.choice((H100, H100, H200, A100))
    if kind == "slow from the start":
        model = chance.choice((H100, H200))  # without GPM, nothing tells it from a stage with more work
    if kind == "starved from the start":
        each = max(2, each)
    names = [f"{name}-{letter}" for letter in "abcdef"[:hosts]]
    models = dict.fromkeys(names, model)
    compute = chance.uniform(0.2, 6.0)
    exchange = compute * chance.uniform(0.03, 0.25)
    work = [compute] * (hosts * each)
    if kind == "stages":
        # The last host has the head of the model, the first one the embeddings.
        for place in range(each):
            work[-1 - place] *= 1.18
            work[place] *= 0.9
    elif kind == "server":
        work[0] *= 0.05
    elif kind == "mixed":
        other = H200 if model is H100 else H100
        models[names[-1]] = other
        work = [
            compute * other.speed / max(1.0, model.speed) if rank // each == hosts - 1 else compute
            for rank in range(hosts * each)
        ]
        work = [compute / models[names[rank // each]].speed for rank in range(hosts * each)]
    elif kind == "uneven data":
        work = [compute * chance.uniform(0.97, 1.0) for _ in work]
    ranks = tuple(Rank(names[n // each], n % each, work[n]) for n in range(hosts * each))
    at = chance.uniform(*BEGINS)
    episodes, culprit, loss = _trouble(kind, chance, at, ranks, exchange)
    owner = (
        {"slurm_job_id": str(4000 + number), "user": "ada", "account": "physics"}
        if chance.random() < 0.6
        else {"workload_namespace": "ml"}
    )
    return Case(
        name, kind, Job(ranks, exchange, episodes), models, owner, episodes[0].at if loss else at, loss, culprit,
        slow_clock=kind == "slow clock",
        activity={"sm": chance.uniform(0.6, 0.93), "dram": chance.uniform(0.2, 0.6), "watts": chance.uniform(0.75, 0.98),
                  "noise": chance.uniform(0.001, 0.008)},
        chips=[chance.gauss(1.0, 0.004) for _ in ranks], seed=number,
        host_series=_host_evidence(name, kind, culprit, at, names),
    )  # fmt: skip


def _trouble(
    kind: str, chance: random.Random, at: float, ranks: Sequence[Rank], exchange: float
) -> tuple[tuple[Episode, ...], tuple[str, int | None] | None, float]:
    end, every = MINUTES * 60.0, frozenset(range(len(ranks)))
    one = chance.randrange(len(ranks))
    host = ranks[one].host
    of_host = frozenset(n for n, rank in enumerate(ranks) if rank.host == host)
    lost = chance.uniform(0.05, 0.5)
    compute = ranks[one].compute_seconds
    # The factor at which the whole step, with its exchange, takes 1 / (1 - lost) times as long.
    step = compute + exchange
    factor = compute / (step / (1 - lost) - exchange)
    alone = sum(rank.host == host for rank in ranks) == 1
    if kind.endswith("from the start"):
        at = 0.0
        kind = "silent" if kind.startswith("slow") else "starved host"
    if kind in {"slow clock", "silent"}:
        return (
            (Episode(Trouble.SLOW, at, end, frozenset({one}), factor),),
            (host, None if alone else ranks[one].gpu),
            lost,
        )
    if kind == "slow host":
        return (Episode(Trouble.SLOW, at, end, of_host, factor),), (host, None), lost
    if kind == "starved host":
        return (Episode(Trouble.STARVED, at, end, of_host, factor),), (host, None), lost
    if kind == "network":
        return (
            (Episode(Trouble.EXCHANGE, at, end, of_host, exchange / (step / (1 - lost) - compute)),),
            (host, None),
            lost,
        )
    if kind in {"exited", "hung"}:
        trouble = Trouble.EXITED if kind == "exited" else Trouble.HUNG
        return (Episode(trouble, at, end, frozenset({one})),), (host, ranks[one].gpu), 1.0
    if kind == "evaluation":
        starts = range(20 * 60, MINUTES * 60, 25 * 60)
        return (
            tuple(Episode(Trouble.ALONE, s, s + chance.choice((200.0, 600.0)), frozenset({0})) for s in starts),
            None,
            0.0,
        )
    if kind == "checkpoints":
        every_minutes, lasts = chance.choice((10, 15, 30)), chance.choice((30.0, 90.0, 170.0))
        starts = range(every_minutes * 60, MINUTES * 60, every_minutes * 60)
        return tuple(Episode(Trouble.PAUSED, s, s + lasts, every) for s in starts), None, 0.0
    if kind == "changed":
        return (Episode(Trouble.CHANGED, at, end, every, chance.uniform(0.6, 0.85)),), None, 0.0
    if kind == "late":
        return (Episode(Trouble.LATE, 0, 400.0, of_host),), None, 0.0
    return (), None, 0.0


def _host_evidence(
    cluster: str, kind: str, culprit: tuple[str, int | None] | None, at: float, names: Sequence[str]
) -> Series:
    """Segments sent again, by host: what differs on the host with a bad network."""
    found: Series = {}
    times = _times()
    for name in names:
        bad = kind == "network" and culprit is not None and culprit[0] == name
        own = {"instance": name, "job": "gpu-triage", "cluster": cluster}
        rate = [0.004 if bad and t >= at else 0.00001 for t in times]
        total = 0.0
        column = []
        for each in rate:
            total += each * 20000 * SAMPLE_SECONDS
            column.append(total)
        found[key("gpu_host_tcp_segments_retransmitted_total", own)] = column
        found[key("gpu_host_tcp_segments_sent_total", own)] = [20000 * t for t in times]
    return found


def _times() -> list[float]:
    return [n * SAMPLE_SECONDS for n in range(int(MINUTES * 60 / SAMPLE_SECONDS) + 1)]


def series_of(case: Case) -> Series:
    """What is scraped of a job's hosts, a sample every `SAMPLE_SECONDS`; its cluster is its name."""
    times = _times()
    chance = random.Random(case.seed)
    shares = [case.job.shares(t) for t in times]
    # The same noise for all: what a step does differs, as with the lengths of texts.
    common = [chance.gauss(1.0, case.activity["noise"]) for _ in times]
    found: Series = dict(case.host_series)
    for number, rank in enumerate(case.job.ranks):
        own = [each[number] for each in shares]
        found |= _gpu(case, number, rank, times, own, common)
    for name in case.models:
        for metric in ("gpu_exporter_build_info", "up"):
            found[key(metric, {"instance": name, "job": "gpu-triage", "cluster": case.name})] = [1.0] * len(times)
    return found


def _gpu(
    case: Case, number: int, rank: Rank, times: Sequence[float], own: Sequence[Shares], common: Sequence[float]
) -> Series:
    model = case.models[rank.host]
    chance = random.Random(case.seed * 1000 + number)
    labels = {
        "instance": rank.host,
        "job": "gpu-triage",
        "cluster": case.name,
        "gpu": str(rank.gpu),
        "uuid": f"GPU-{rank.host}-{rank.gpu}",
    }
    slow = [
        min(
            (
                e.factor
                for e in case.job.episodes
                if e.trouble in {Trouble.SLOW, Trouble.CHANGED} and e.at <= t < e.until and number in e.ranks
            ),
            default=1.0,
        )
        for t in times
    ]
    held = [case.slow_clock and s < 1 for s in slow]
    activity = case.activity
    sm, dram, watts, busy = [], [], [], []
    for share, speed, factor, is_held in zip(own, slow, common, held, strict=True):
        jitter = factor * case.chips[number] * chance.gauss(1.0, 0.002)
        sm.append(
            min(1.0, jitter * (share.computing * activity["sm"] + (share.exchanging + share.spinning) * SPINNING_SM))
        )
        dram.append(min(1.0, jitter * (share.computing * activity["dram"] * speed + share.exchanging * 0.04)))
        at_full = activity["watts"] * model.limit_watts * (0.55 + 0.45 * speed**2 if is_held else 1.0)
        watts.append(
            share.computing * at_full
            + share.exchanging * 0.45 * model.limit_watts
            + share.spinning * model.spinning_watts
            + share.starving * model.awake_watts
        )
        busy.append(share.computing + share.exchanging + share.spinning)

    def series(metric: str, values: Sequence[float], **more: str) -> tuple[SeriesKey, Sequence[float]]:
        return key(metric, {**labels, **more}), values

    def total(rates: Sequence[float]) -> list[float]:
        values, sum_ = [], 0.0
        for rate in rates:
            values.append(sum_)
            sum_ += rate * SAMPLE_SECONDS
        return values

    owner = dict(case.owner)
    if case.pods:
        owner |= {"workload_pod": f"{case.name}-{list(case.models).index(rank.host)}", "workload_container": "main"}
    here = [math.nan if share.absent else 1.0 for share in own]
    classes = [_class(share, watt, t, case) for share, watt, t in zip(own, watts, times, strict=True)]
    return dict([
        series("gpu_up", [1.0] * len(times)),
        series("gpu_info", [1.0] * len(times), name=model.name, pci_bus_id=f"0000:{rank.gpu}5:00.0", serial="1"),
        series("gpu_allocated", [1.0] * len(times), **owner),
        series("gpu_process_owner_info", here, user="1000", **{k: v for k, v in owner.items() if k in {"slurm_job_id", "workload_namespace", "workload_pod"}}),
        series("gpu_processes", [0.0 if share.absent else 1.0 for share in own], type="compute"),
        series("gpu_process_cpu_seconds_total", total([0.02 if share.starving > 0.99 else 1.2 for share in own]), pid="1", process="python"),
        series("gpu_busy_seconds_total", total(busy)),
        series("gpu_observed_seconds_total", times),
        series("gpu_energy_joules_total", total(watts)),
        series("gpu_power_watts", watts),
        series("gpu_power_limit_watts", [model.limit_watts] * len(times)),
        series("gpu_power_default_limit_watts", [model.limit_watts] * len(times)),
        series("gpu_memory_used_bytes", [6e10 if not share.absent else 5e8 for share in own]),
        series("gpu_clock_hertz", [model.clock_mhz * 1e6 * (s if h else 1.0) for s, h in zip(slow, held, strict=True)], clock="sm"),
        series("gpu_bottleneck", [float(BOTTLENECK_CLASSES.index(name) + 1) for name in classes]),
        *([series("gpu_sm_active_ratio", sm), series("gpu_dram_active_ratio", dram)] if model.gpm else []),
    ])  # fmt: skip


def _class(share: Shares, _watts: float, _at: float, _case: Case) -> str:
    if share.absent:
        return "idle"
    if share.spinning > 0.9:
        return "communication"
    return "unattributed" if share.starving > 0.3 else "compute"
