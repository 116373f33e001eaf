"""The queries about one job, over its time, on its own hosts and GPUs; its steps if counted, its loss if recorded."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.fleet_view import HostKey, Selection, key_of, matcher, matcher_of_any
from gpu_triage.cli.fleet.job_pace import (
    LOST,
    PACE,
    PLACE,
    RECORDED_SECONDS,
    WAITED_FOR,
    Awaited,
    awaited,
    lost_while_waiting,
    steady,
    waiting_since,
)
from gpu_triage.cli.fleet.prometheus import PrometheusClient, Series
from gpu_triage.cli.job.job_runs import Found, Kind, Run, owned, workload_of
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.read.exporter import judgment
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_BUILD_INFO, GPU_EXPORTER_SIMULATED
from gpu_triage.read.gpu.activity import GPU_BUSY_SECONDS_TOTAL, GPU_OBSERVED_SECONDS_TOTAL, GPU_SM_UTILIZATION_RATIO
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.power import GPU_CLOCK_HERTZ, GPU_POWER_WATTS
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_OWNER_INFO
from gpu_triage.serve.page.markup import date_time

GPU: Final = "cluster, job, instance, gpu, uuid"
HOST: Final = "cluster, job, instance"
STEPS: Final = "gpu_job_steps_total"  # what jobs count by convention; see docs/textfile.md

_EVALUATIONS: Final = 250_000
"""How often a query may look at a GPU: seconds for a Prometheus. Large and long jobs are looked at less often."""
_FEWEST_STEPS, _MOST_STEPS = 60, 2000
_SHORTEST_STEP_SECONDS: Final = 15
_LONG_STEP_SECONDS: Final = 60
RATE_SECONDS: Final = 120  # window of rates: two scrapes at the slowest supported interval
AFTERMATH_SECONDS: Final = 300.0
"""A GPU that fails may lose its owner first: findings of so long afterwards belong to the job as well."""
_JUST_BEFORE_SECONDS: Final = 60  # what was scraped so long before a job shows that it was not there yet
_SAME_SCRAPE_SECONDS: Final = 30
_LOADED: Final = 0.2  # clocks count while the GPU is under load, as in the playbook


class Window(NamedTuple):
    """The time looked at, in Unix seconds, and how often."""

    start: float
    end: float
    step_seconds: int

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def range(self, more_seconds: float = 0.0) -> str:
        """The subquery, for an evaluation at its end, or so much later."""
        return f"[{math.ceil(self.seconds + more_seconds)}s:{self.step_seconds}s]"


def window_of(run: Run, since: float | None) -> Window:
    """The window of a run, from `since` on; at least a minute, so that something was scraped in it."""
    start = min(max(run.start, since or 0.0), run.end - _LONG_STEP_SECONDS)
    most = min(_MOST_STEPS, max(_FEWEST_STEPS, _EVALUATIONS // max(1, run.gpus)))
    step = max(_SHORTEST_STEP_SECONDS, math.ceil((run.end - start) / most))
    # Odd, so that it never keeps time with a job that does something every few minutes.
    return Window(start, run.end, step if step < _LONG_STEP_SECONDS else step | 1)


Facts = Mapping[str, list[Series]]
"""The answers of all queries, by the names of `queries` and `late_queries`, and ``held``."""


def facts_of(client: PrometheusClient, selection: Selection, found: Found, window: Window) -> Facts:
    """Run all queries; raises PrometheusUnavailable if the job had no GPU in the window."""
    here = selection.only(found.run.key.cluster)
    held = client.at(f"count_over_time({_own_gpus(here, found.run)}{window.range()})", window.end)
    if not held:
        raise PrometheusUnavailable(
            f"{client.url}: {found.run} was seen on no GPU from {date_time(window.start)} to {date_time(window.end)}; "
            "choose another time with --at or --since"
        )
    # Without its hosts' names, each query would read every host of the fleet.
    hosts = selection.only(found.run.key.cluster, sorted({each.labels["instance"] for each in held}))
    late = min(AFTERMATH_SECONDS, max(0.0, found.asked_at - window.end))
    asked = [(window.end, queries(hosts, found.run, window))]
    asked.append((window.end + late, late_queries(hosts, found.run, window, late)))
    answers = {name: client.at(query, at) for at, every in asked for name, query in every.items()}
    return {"held": held, **answers}


def _own_gpus(selection: Selection, run: Run, suffix: str = "") -> str:
    """1 for each GPU while the job has it."""
    return f"group by ({GPU}) ({owned(selection, run.selector, suffix)})"


def queries(hosts: Selection, run: Run, window: Window) -> Mapping[str, str]:
    """The queries about GPUs and steps, for an evaluation at the window's end; means are over the time on the GPU.

    first, last: Unix seconds at which the job was first and last seen on each GPU.
    classes, neighbors: in how many steps each GPU was in each class, and in how many another job, pod or user had it.
    clocks, power, busy: SM clock under load in hertz, watts, share of the observed time with a kernel (0-1).
    parts: MIG devices that the job had.
    before: hosts of which something was recorded before the job began.
    paces, recent, best: steps per second of each rank: the mean, at the end, and in the best stretch.
    moved: Unix seconds at which each rank last counted a step.
    """
    mine, over = _own_gpus(hosts, run), window.range()
    while_mine = f"and on ({GPU}) {mine}"
    # A rate looks back, and must not see what was there before the job.
    all_along = f"{while_mine} and on ({GPU}) {_own_gpus(hosts, run, f' offset {RATE_SECONDS}s')}"
    worked, observed = (
        f"rate({spec.name}{hosts}[{RATE_SECONDS}s])" for spec in (GPU_BUSY_SECONDS_TOTAL, GPU_OBSERVED_SECONDS_TOTAL)
    )
    loaded = f"{GPU_SM_UTILIZATION_RATIO.name}{hosts} > {_LOADED}"
    clock = f"{GPU_CLOCK_HERTZ.name}{hosts.with_matcher(_SM)}"
    parts = f"{GPU_ALLOCATED.name}{hosts.with_matcher(run.selector + _MIG)} == 1"
    simulated = f"{GPU_EXPORTER_SIMULATED.name}{hosts} == 1"
    ago = math.ceil(window.end - run.start) + _JUST_BEFORE_SECONDS
    before = f"{GPU_EXPORTER_BUILD_INFO.name}{hosts}[10m] offset {ago}s"
    return {
        "first": f"min_over_time(({mine} * 0 + time()){over})",
        "last": f"max_over_time(({mine} * 0 + time()){over})",
        "classes": f"count_over_time((({_classes(hosts)}) {while_mine}){over})",
        "clocks": f"avg_over_time(({clock} and on ({GPU}) {loaded} {while_mine}){over})",
        "power": f"avg_over_time(({GPU_POWER_WATTS.name}{hosts} {while_mine}){over})",
        "busy": f"avg_over_time((clamp_max({worked} / ({observed} > 0), 1) {all_along}){over})",
        "models": f"group by ({GPU}, name) (last_over_time({GPU_INFO.name}{hosts}[{math.ceil(window.seconds)}s]))",
        "neighbors": f"count_over_time(({_others(hosts, run)} {while_mine}){over})",
        "parts": f"group by ({GPU}, mig_uuid) (max_over_time(({parts}){over}))",
        "simulated": f"group by ({HOST}) (max_over_time(({simulated}){over}))",
        "before": f"group by ({HOST}) (last_over_time({before}))",
        **_pace_queries(hosts, run, window),
        **loss_queries(hosts, run, window),
    }


def _classes(hosts: Selection) -> str:
    """The class of each GPU as a label. Prometheus 2 has a bug in count_values over several steps."""
    bottleneck = f"{judgment.GPU_BOTTLENECK.name}{hosts}"
    return " or ".join(
        f'label_replace({bottleneck} == {number}, "class", "{name}", "", "")'
        for number, name in enumerate(judgment.BOTTLENECK_CLASSES, 1)
    )


_SM: Final = 'clock="sm"'
_MIG: Final = ',mig_uuid!=""'


def _others(hosts: Selection, run: Run) -> str:
    """Other jobs and pods, by GPU; users of processes in neither may be those of the job itself."""
    owner = "slurm_job_id, workload_namespace, workload_pod"
    named = ('slurm_job_id!=""', 'workload_pod!=""')
    every = " or ".join(
        f"{name}{hosts.with_matcher(each)}{condition}"
        for name, condition in ((GPU_ALLOCATED.name, " == 1"), (GPU_PROCESS_OWNER_INFO.name, ""))
        for each in named
    )
    own = owned(hosts, run.selector)
    return f"(group by ({GPU}, {owner}) ({every}) unless on ({GPU}, {owner}) group by ({GPU}, {owner}) ({own}))"


_STRETCHES: Final = (3600, 600, 240)


def _stretch_seconds(window: Window) -> int:
    """Length in seconds of the stretches with the paces that are compared: an hour, or less for a short job."""
    return next((each for each in _STRETCHES if window.seconds >= 2 * each), int(window.seconds / 2))


def _pace_queries(hosts: Selection, run: Run, window: Window) -> Mapping[str, str]:
    steps = f"{STEPS}{hosts.with_matcher(matcher_of_any('owner', _file_owners(run)))}"
    over, stretch = window.range(), _stretch_seconds(window)
    # Servers differ in what they make of a stretch that begins before the job.
    stretches = window._replace(step_seconds=max(window.step_seconds, stretch // 12)).range(-stretch)
    return {
        "paces": f"avg_over_time(rate({steps}[{RATE_SECONDS}s]){over})",
        "recent": f"rate({steps}[{min(600, stretch)}s])",
        "best": f"max_over_time(rate({steps}[{stretch}s]){stretches})",
        "moved": f"max_over_time(((rate({steps}[{RATE_SECONDS}s]) > 0) * 0 + time()){over})",
    }


def _file_owners(run: Run) -> list[str]:
    """The owners of the files of a job; see docs/textfile.md."""
    if run.key.kind is Kind.POD:
        return sorted(f"{run.key.namespace}_{pod}" for pod in run.pods)
    return [run.key.name, *sorted(run.users)] if run.key.kind is Kind.SLURM else [run.key.name]


def late_queries(hosts: Selection, run: Run, window: Window, late_seconds: float) -> Mapping[str, str]:
    """The queries about findings and the time after the job, for an evaluation so much after the window's end.

    worst: most advanced state of each finding; found, lost: when it was first and last seen; values: last measured.
    after: hosts that were scraped after the job's end.
    """
    where = hosts.with_matcher(run.selector)
    # A GPU that fails may lose its owner before the finding is published.
    lately = f"{math.ceil(AFTERMATH_SECONDS)}s"
    mine = (
        f"(last_over_time({GPU_ALLOCATED.name}{where}[{lately}]) == 1 "
        f"or last_over_time({GPU_PROCESS_OWNER_INFO.name}{where}[{lately}]))"
    )
    of_gpu = f"{judgment.GPU_FINDING.name}{hosts} > 0 and on ({GPU}) {mine}"
    of_host = f"{judgment.GPU_HOST_FINDING.name}{hosts} > 0 and on ({HOST}) {mine}"
    values = (
        f"{judgment.GPU_FINDING_VALUE.name}{hosts} and on ({GPU}) {mine} "
        f"or {judgment.GPU_HOST_FINDING_VALUE.name}{hosts} and on ({HOST}) {mine}"
    )
    over = window.range(late_seconds)
    states = f"({of_gpu} or {of_host})"
    scraped = f"timestamp({GPU_EXPORTER_BUILD_INFO.name}{hosts})"
    return {
        "after": f"group by ({HOST}) ({scraped} > {window.end + _SAME_SCRAPE_SECONDS:.0f})",
        "worst": f"max_over_time({states}{over})",
        "found": f"min_over_time(({states} * 0 + time()){over})",
        "lost": f"max_over_time(({states} * 0 + time()){over})",
        "values": f"last_over_time(({values}){over})",
    }


_STOPPED_SECONDS: Final = 300.0
"""A checkpoint or an evaluation takes less; a job that counted no step for longer has stopped."""


class Rank(NamedTuple):
    host: HostKey
    job_name: str
    rank: str  # "" if the job does not label it
    per_second: float  # mean over the window
    moved: float | None  # Unix seconds of its last step; None if it never made one

    @property
    def subject(self) -> str:
        """Display name: ``rank 5 on gpu-07:9836``."""
        return f"rank {self.rank} on {self.host}" if self.rank else str(self.host)


@dataclass(frozen=True, slots=True)
class Pace:
    recent: float | None  # steps per second at the end of the window; None if too little was scraped
    best: float | None  # in the best stretch of `stretch_seconds`
    stretch_seconds: int
    ranks: tuple[Rank, ...]  # by host and rank
    stopped_seconds: float  # for how long no rank made a step, at the end; 0 if it is no longer than a checkpoint

    @property
    def slowest(self) -> tuple[Rank, float, float] | None:
        """The rank with the lowest pace, the median of all, and the share it lacks to it; None with fewer than two."""
        if len(self.ranks) < 2:  # noqa: PLR2004 - a pair
            return None
        rank = min(self.ranks, key=lambda each: each.per_second)
        usual = median(each.per_second for each in self.ranks)
        return rank, usual, 1 - rank.per_second / usual if usual else 0.0

    @property
    def below_best(self) -> float | None:
        """By which share it is slower now than in its best stretch, 0-1; None if not known."""
        if self.recent is None or not self.best:
            return None
        return max(0.0, 1 - self.recent / self.best)


def pace_of(facts: Facts, run: Run, window: Window) -> Pace | None:
    """The steps of a job; None if it counts none, or if the user's other jobs count theirs there as well."""
    own = [each for each in facts["paces"] if each.labels["owner"] not in run.users]
    paces = own or facts["paces"]
    if not paces or (not own and len({each.labels["job_name"] for each in paces}) > 1):
        return None
    owners = {each.labels["owner"] for each in paces}
    moved = {_key(each): each.value for each in facts["moved"]}
    ranks = [
        Rank(key_of(each), each.labels["job_name"], each.labels["rank"], each.value, moved.get(_key(each)))
        for each in paces
    ]
    last = max((each.moved for each in ranks if each.moved is not None), default=window.start)
    stopped = window.end - last
    return Pace(
        recent=_median(facts["recent"], owners),
        best=_median(facts["best"], owners),
        stretch_seconds=_stretch_seconds(window),
        ranks=tuple(sorted(ranks, key=lambda each: (each.host, len(each.rank), each.rank))),
        stopped_seconds=stopped if stopped > _STOPPED_SECONDS else 0.0,
    )


def _median(found: Iterable[Series], owners: Iterable[str]) -> float | None:
    """The pace of the job: its ranks count the same steps."""
    values = [each.value for each in found if each.labels["owner"] in owners]
    return median(values) if values else None


def _key(series: Series) -> tuple[tuple[str, str], ...]:
    # Reading a missing label adds an empty one.
    return tuple(sorted((name, value) for name, value in series.labels.items() if value))


DIFFERS: Final = "instance_gpu_owner:gpu_hang_differs:affected"

_RECENT_SECONDS: Final = 300


class OddThread(NamedTuple):
    """Of a job that hangs, the one GPU with a main thread that differs from those of all others."""

    subject: str  # ``GPU 3 of gpu-07:9836``
    runs: bool  # whether it runs while the others sleep; otherwise it sleeps while they run

    def __str__(self) -> str:
        return f"of all main threads, only that on {self.subject} {'runs' if self.runs else 'does not run'}"


@dataclass(frozen=True, slots=True)
class Loss:
    pace: float | None  # at the end, as a share of its best hour; None if it was not known then
    gpus: float | None  # how many GPUs it loses at the end
    gpu_seconds: float  # lost in the whole window, as far as the pace was known
    awaited: Mapping[Awaited, float]  # GPU seconds that it lost meanwhile, the most first
    at_end: frozenset[Awaited]  # what the others wait for at the end
    since: Mapping[Awaited, float]  # Unix seconds at which they were first seen to wait for it

    @property
    def main(self) -> Awaited | None:
        """What the others wait for at the end, or what they waited for the most."""
        return max(self.awaited, key=lambda each: (each in self.at_end, self.awaited[each]), default=None)

    def while_waiting(self, host: HostKey, uuid: str) -> float:
        """GPU seconds lost while the others waited for a GPU or its host; without `uuid`, for a host or its GPUs."""
        return sum(
            seconds
            for each, seconds in self.awaited.items()
            if each.host == host and (each.uuid == uuid or not (each.uuid and uuid))
        )


def loss_queries(hosts: Selection, run: Run, window: Window) -> Mapping[str, str]:
    """The queries about a job's loss, for an evaluation at the window's end; none for what a user runs.

    paced, lost_now: pace and lost GPUs at the end, or before it pauses there. lost_seconds: GPU seconds lost. awaited,
    awaited_now: the same by what the others waited for, and that at the end; awaited_since: from when on. differs: the
    odd main thread at the end, if the job hangs.
    """
    if run.key.kind is Kind.USER:
        return {}
    name = run.key.name
    owner = f"{name}/" if run.key.kind is Kind.SLURM else f"{run.key.namespace}/{workload_of(name)}"
    of_job = Selection(hosts.cluster, hosts.job).with_matcher(matcher("owner", owner))
    step = max(RECORDED_SECONDS, window.step_seconds)
    over, recent = window._replace(step_seconds=step).range(), f"[{_RECENT_SECONDS}s]"
    return {
        "paced": steady(PACE, of_job),
        "lost_now": steady(LOST, of_job),
        "lost_seconds": f"{step} * sum_over_time({LOST}{of_job}{over})",
        "awaited": f"{step} * {lost_while_waiting(of_job, over)}",
        "awaited_since": waiting_since(of_job, over),
        "differs": f"last_over_time({DIFFERS}{of_job}{recent})",
        "awaited_now": f"group by ({PLACE}) (last_over_time({WAITED_FOR}{of_job}{recent}))",
    }


def loss_of(facts: Mapping[str, list[Series]]) -> Loss | None:
    """The loss; None if the pace was never known."""
    if not facts.get("lost_seconds"):
        return None
    lost = {awaited(each): each.value for each in facts["awaited"]}
    return Loss(
        pace=min((each.value for each in facts["paced"]), default=None),
        gpus=max((each.value for each in facts["lost_now"]), default=None),
        gpu_seconds=sum(each.value for each in facts["lost_seconds"]),
        awaited={each: lost[each] for each in sorted(lost, key=lambda each: -lost[each])},
        at_end=frozenset(map(awaited, facts["awaited_now"])),
        since={awaited(each): each.value for each in facts["awaited_since"]},
    )


def odd_thread_of(facts: Mapping[str, list[Series]]) -> OddThread | None:
    """The odd main thread; None if none is, or if it changed within minutes."""
    found = [
        OddThread(key_of(each).part(each.labels["gpu"]), each.value > 0.5)  # noqa: PLR2004 - a half
        for each in facts.get("differs", ())
    ]
    return found[0] if len(found) == 1 else None
