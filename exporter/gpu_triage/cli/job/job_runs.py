"""The job (of Slurm, a pod or workload, a user), and when it had which GPUs; any size takes as many queries."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.fleet_view import Selection, matcher, matcher_of_any, nothing_found
from gpu_triage.cli.fleet.prometheus import PrometheusClient, Series
from gpu_triage.documents import nearest, quoted
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.judge.evidence.wording import first_few
from gpu_triage.options.values import TextType
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_BUILD_INFO
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_OWNER_INFO
from gpu_triage.serve.page.markup import date_time


class Kind(Enum):
    """What a job is known by; the value is the prefix that selects it."""

    SLURM = "slurm"
    POD = "pod"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Wanted:
    kinds: tuple[Kind, ...]  # what it may name, in order of preference
    name: str
    namespace: str = ""  # of the pod; "" for any

    def __str__(self) -> str:
        """As it can be typed again: ``4711``, ``research/train-0``."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_SLURM_STEP: Final = re.compile(r"([0-9]{1,10})\.(?:[0-9]+|batch|extern|interactive)")
_SLURM_PART: Final = re.compile(r"[0-9]{1,10}(?:_(?:[0-9]+|\[.*\])|\+[0-9]+)(?:\..*)?")
_LONGEST: Final = 253

_ROLES: Final = frozenset(
    {"chief", "evaluator", "head", "launcher", "leader", "master", "ps", "server", "task", "worker", "workers"}
)
"""Words that training operators put between the name of a job and the number of a pod."""
_ORDINAL: Final = re.compile(r"[0-9]{1,5}")
_SUFFIX: Final = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}|[bcdfghjklmnpqrstvwxz2456789]{8,10}")
"""What Kubernetes generates: of a pod (five characters), of a ReplicaSet's template (eight to ten)."""


def parse_wanted(text: str) -> Wanted:
    """Parse ``4711``, ``research/train-0``, ``train-0``, ``ada``, or one of them after ``slurm:``, ``pod:``, ``user:``.

    A number is a Slurm job if there is one, another name a pod or a user. ValueError: empty, or part of a Slurm job.
    """
    prefix, colon, rest = text.partition(":")
    kinds = tuple(kind for kind in Kind if colon and kind.value == prefix)
    name = rest if kinds else text
    if not name.strip() or len(name) > _LONGEST * 2:
        raise ValueError(f"{quoted(text)} names no job; write a Slurm job's number, a pod, or a user")
    if (not kinds or kinds == (Kind.SLURM,)) and _NUMBER.match(name):
        _refuse_parts(name)
    namespace, slash, pod = name.partition("/")
    if slash and kinds in ((), (Kind.POD,)):
        if not namespace or not pod:
            raise ValueError(f"{quoted(text)} names no pod; write NAMESPACE/POD")
        return Wanted((Kind.POD,), pod, namespace)
    if kinds:
        return Wanted(kinds, name)
    return Wanted(tuple(Kind) if _NUMBER.fullmatch(name) else (Kind.POD, Kind.USER), name)


def _refuse_parts(name: str) -> None:
    if step := _SLURM_STEP.fullmatch(name):
        raise ValueError(f"{quoted(name)} is a step; write the job's number, {step[1]}")
    if _SLURM_PART.fullmatch(name):
        raise ValueError(
            f"{quoted(name)} is a part of an array or of a heterogeneous job, and each part has a number of its own; "
            f"write the JobId that scontrol show job {name} prints"
        )


WANTED: Final = TextType("JOB", parse_wanted)


def workload_of(pod: str) -> str:
    """The workload of a pod, from its name alone: ``train`` for ``train-worker-3``, ``train-0``, ``train-x7k2p``."""
    parts = pod.split("-")
    while len(parts) > 1 and (_ORDINAL.fullmatch(parts[-1]) or _SUFFIX.fullmatch(parts[-1]) or parts[-1] in _ROLES):
        parts.pop()
    return "-".join(parts)


def matchers(wanted: Wanted) -> dict[Kind, str]:
    """The matchers that find everything the name may mean, by kind; pods include those of the same workload."""
    stem = workload_of(wanted.name)
    pattern = f"{re.escape(wanted.name)}|{re.escape(stem)}(?:-.+)?"
    pods = f"workload_pod=~{json.dumps(pattern, ensure_ascii=False)}"
    namespace = f",{matcher('workload_namespace', wanted.namespace)}" if wanted.namespace else ""
    every = {
        Kind.SLURM: matcher("slurm_job_id", wanted.name),
        Kind.POD: f"{pods}{namespace}",
        Kind.USER: matcher("user", wanted.name),
    }
    return {kind: every[kind] for kind in wanted.kinds}


LONGEST_GAP_SECONDS: Final = 3600.0
"""A job that had no GPU for longer ran twice; a Prometheus that was down for less does not split a job."""


class JobKey(NamedTuple):
    """What identifies a job; "" for what does not apply."""

    kind: Kind
    cluster: str
    namespace: str
    name: str  # number of a Slurm job, name of a pod or of its workload, or user

    @property
    def argument(self) -> str:
        """As it can be typed: ``4711``, ``research/train-0``."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Run:
    """A period in which a job had GPUs."""

    key: JobKey
    users: frozenset[str]  # from the allocation if there is one, else of its processes
    accounts: frozenset[str]  # of Slurm
    pods: frozenset[str]  # all that belong to it; empty for Slurm jobs and users
    start: float  # Unix seconds of the first and last time at which it had a GPU
    end: float  # likewise
    gpus: int  # the most that it had at one time
    by_user: bool = False  # whether only its user matches

    def __str__(self) -> str:
        """Display name: ``Slurm job 4711 of ada``, ``pod research/train-0``, ``user ada``."""
        name = self.key.name
        if self.key.kind is Kind.SLURM:
            return f"Slurm job {name}" + (f" of {', '.join(sorted(self.users))}" if self.users else "")
        if self.key.kind is Kind.USER:
            return f"user {name}"
        return f"{'pod' if len(self.pods) == 1 else 'pods'} {self.key.argument}"

    @property
    def selector(self) -> str:
        """The matchers of its series of gpu_allocated and gpu_process_owner_info."""
        if self.key.kind is Kind.SLURM:
            return matcher("slurm_job_id", self.key.name)
        if self.key.kind is Kind.USER:
            return f'{matcher("user", self.key.name)},slurm_job_id="",workload_pod=""'
        namespace = matcher("workload_namespace", self.key.namespace)
        return f"{namespace},{matcher_of_any('workload_pod', sorted(self.pods))}"

    def ran_at(self, seconds: float, slack_seconds: float) -> bool:
        """Whether it had GPUs at this Unix time; it may have begun so much before its start."""
        return self.start - slack_seconds <= seconds <= self.end


class _Sighting(NamedTuple):
    """An owner had so many GPUs at a time (Unix seconds). Allocations and processes name the same ones."""

    at: float
    gpus: int
    is_allocation: bool
    labels: Mapping[str, str]


def runs_of(wanted: Wanted, allocated: Iterable[Series], processes: Iterable[Series]) -> tuple[Run, ...]:
    """The periods of all jobs; numbers of Slurm jobs begin again after a reinstallation, so other users, other jobs."""
    allocated, processes = list(allocated), list(processes)
    exact = any(each.labels["workload_pod"] == wanted.name for each in (*allocated, *processes))
    by_key: defaultdict[JobKey, list[_Sighting]] = defaultdict(list)
    named: set[JobKey] = set()
    for is_allocation, found in ((True, allocated), (False, processes)):
        for series in found:
            if (key := _named(wanted, series, exact=exact)) is not None:
                named.add(key)
            if key is None and Kind.USER in wanted.kinds and series.labels["user"] == wanted.name:
                key = _owner(series)
            if key is not None:
                seen = (_Sighting(at, int(count), is_allocation, series.labels) for at, count in series.samples)
                by_key[key].extend(seen)
    return tuple(_run(key, part, by_user=key not in named) for key, seen in by_key.items() for part in _parts(seen))


def _named(wanted: Wanted, series: Series, *, exact: bool) -> JobKey | None:
    """The Slurm job or pod of that name; unless named in full (`exact`), pods of a workload belong together."""
    labels = series.labels
    if Kind.SLURM in wanted.kinds and labels["slurm_job_id"] == wanted.name:
        return JobKey(Kind.SLURM, labels["cluster"], "", wanted.name)
    pod, namespace = labels["workload_pod"], labels["workload_namespace"]
    if Kind.POD not in wanted.kinds or wanted.namespace not in ("", namespace):
        return None
    if exact:
        return JobKey(Kind.POD, labels["cluster"], namespace, pod) if pod == wanted.name else None
    return _workload(labels) if pod.startswith(f"{wanted.name}-") else None


def _owner(series: Series) -> JobKey | None:
    """The owner of a GPU: a Slurm job, a workload, or else a user; None if none is known."""
    labels = series.labels
    if labels["slurm_job_id"]:
        return JobKey(Kind.SLURM, labels["cluster"], "", labels["slurm_job_id"])
    if labels["workload_pod"]:
        return _workload(labels)
    return JobKey(Kind.USER, labels["cluster"], "", labels["user"]) if labels["user"] else None


def _workload(labels: Mapping[str, str]) -> JobKey:
    return JobKey(Kind.POD, labels["cluster"], labels["workload_namespace"], workload_of(labels["workload_pod"]))


def _parts(seen: Iterable[_Sighting]) -> Iterator[list[_Sighting]]:
    """Split where a job had no GPU for long, or another user got its number."""
    part: list[_Sighting] = []
    users: set[str] = set()
    for at, together in groupby(sorted(seen, key=attrgetter("at")), attrgetter("at")):
        now = list(together)
        users_now = _names(now, "user", allocated=True)
        if part and (at - part[-1].at > LONGEST_GAP_SECONDS or (users and users_now and not users & users_now)):
            yield part
            part, users = [], set()
        part += now
        users |= users_now
    if part:
        yield part


def _run(key: JobKey, seen: Sequence[_Sighting], *, by_user: bool) -> Run:
    gpus = Counter[tuple[float, bool]]()
    for each in seen:
        gpus[each.at, each.is_allocation] += each.gpus
    return Run(
        key=key,
        users=_names(seen, "user", allocated=True) or _names(seen, "user", allocated=False),
        accounts=_names(seen, "account", allocated=True),
        pods=_names(seen, "workload_pod", allocated=True) | _names(seen, "workload_pod", allocated=False),
        start=seen[0].at,
        end=seen[-1].at,
        gpus=max(gpus.values()),
        by_user=by_user,
    )


def _names(seen: Iterable[_Sighting], label: str, *, allocated: bool) -> frozenset[str]:
    return frozenset({each.labels[label] for each in seen if each.is_allocation is allocated} - {""})


class SeveralJobs(Exception):
    """Several jobs match: `runs` has one of each, the latest first."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = tuple(sorted(runs, key=lambda run: (-run.end, run.key.cluster, run.key.namespace, run.key.name)))
        super().__init__(f"{len(self.runs)} jobs match")


def choose(
    wanted: Wanted, runs: Sequence[Run], at: float | None, asked_at: float, slack_seconds: float
) -> tuple[Run, tuple[Run, ...]]:
    """The run at the time `at`, or the last one before it; the latest if None. Then, other runs of the same job.

    `asked_at`: `at`, or the present; times are known to `slack_seconds`. Raises SeveralJobs if several match.
    """
    begun = [run for run in runs if at is None or run.start - slack_seconds <= at]
    found = _preferred(wanted, begun or runs)
    if at is not None or all(run.by_user for run in found):
        # Of the many jobs of a user, those that run.
        found = [run for run in found if run.ran_at(asked_at, slack_seconds)] or found
    latest: dict[tuple[JobKey, frozenset[str]], Run] = {}
    for run in sorted(found, key=lambda run: run.end):
        # A number of Slurm that another user has later is another job; a time selects one.
        users = run.users if at is None and run.key.kind is Kind.SLURM else frozenset[str]()
        latest[run.key, users] = run
    if len(latest) > 1:
        raise SeveralJobs(latest.values())
    (chosen,) = latest.values()
    return chosen, tuple(run for run in runs if run is not chosen and run.key == chosen.key)


def _preferred(wanted: Wanted, runs: Sequence[Run]) -> list[Run]:
    """The Slurm jobs of that number, else the pods of that name, else pods with a longer name, else a user's jobs."""
    named = [run for run in runs if not run.by_user]
    numbered = [run for run in named if run.key.kind is Kind.SLURM]
    whole = [run for run in named if run.key.kind is Kind.POD and run.key.name == wanted.name]
    return numbered or whole or named or list(runs)


SEARCHES_SECONDS: Final = (30 * 86_400.0, 400 * 86_400.0)
"""How far back a job is looked for: first this, then that. What the server does not remember costs it nothing."""
_POINTS: Final = 2000  # the most points of a range query; Prometheus rejects more than 11,000
_FINE_POINTS: Final = 400
_SHORTEST_STEP_SECONDS: Final = 5.0
_LATEST_SECONDS: Final = 60.0  # A job that was seen within so long still runs: some exporters are scraped once a minute
_OWNER: Final = "cluster, slurm_job_id, user, account, workload_namespace, workload_pod"
_MOST_NAMED: Final = 6
_WORDS: Final = {Kind.SLURM: "Slurm job", Kind.POD: "pod", Kind.USER: "user"}


@dataclass(frozen=True, slots=True)
class Found:
    run: Run  # with exact times; its end is at most the time of --at
    others: tuple[Run, ...]  # other times at which the same job had GPUs
    siblings: int  # how many other pods of its workload had GPUs at the same time
    asked_at: float  # Unix seconds of the query
    ongoing: bool  # whether it still had GPUs then


def owned(selection: Selection, selector: str, suffix: str = "") -> str:
    """The series of gpu_allocated and gpu_process_owner_info with these matchers; `suffix` may be an offset."""
    where = selection.with_matcher(selector)
    return f"{GPU_ALLOCATED.name}{where}{suffix} == 1 or {GPU_PROCESS_OWNER_INFO.name}{where}{suffix}"


def find(client: PrometheusClient, selection: Selection, wanted: Wanted, at: float | None) -> Found:
    """Find a job at a Unix time, or its latest run; raises SeveralJobs, or PrometheusUnavailable if there is none."""
    asked_at = client.now() if at is None else at
    for seconds in SEARCHES_SECONDS:
        step = math.ceil(seconds / _POINTS)
        allocated, processes = _sightings(client, selection, wanted, asked_at, step)
        runs = runs_of(wanted, allocated, processes)
        # A run at the very beginning may have begun before.
        if runs and min(run.start for run in runs) > asked_at - seconds + 2 * step:
            break
    if not runs:
        raise _unknown(client, selection, wanted, asked_at)
    chosen, others = choose(wanted, runs, at, asked_at, step)
    run = _refined(client, selection, chosen, asked_at, step)
    siblings = _siblings(wanted, chosen, (*allocated, *processes), step)
    return Found(run, others, siblings, asked_at, ongoing=run.end >= asked_at - _LATEST_SECONDS)


def _sightings(
    client: PrometheusClient, selection: Selection, wanted: Wanted, end: float, step: int
) -> tuple[list[Series], list[Series]]:
    """How many GPUs each owner that the name may mean had, over time, by allocation and by process."""
    start = end - step * _POINTS

    def ask(name: str, condition: str) -> list[Series]:
        seen = " or ".join(
            f"last_over_time({name}{selection.with_matcher(each)}[{step}s]){condition}"
            for each in matchers(wanted).values()
        )
        return client.over(
            f"count by ({_OWNER}) (group by (job, instance, gpu, uuid, {_OWNER}) ({seen}))", start, end, step
        )

    return ask(GPU_ALLOCATED.name, " == 1"), ask(GPU_PROCESS_OWNER_INFO.name, "")


def _refined(client: PrometheusClient, selection: Selection, run: Run, asked_at: float, coarse: float) -> Run:
    """A run with its exact times; `coarse` is the step to which they are known, in seconds."""
    # VictoriaMetrics moves the end of a range back to a multiple of its step.
    end = min(run.end + coarse, asked_at)
    step = max(_SHORTEST_STEP_SECONDS, math.ceil((end - run.start + coarse) / _FINE_POINTS))
    start = end - step * math.ceil((end - run.start + coarse) / step)
    cluster = selection.only(run.key.cluster)
    seen = client.over(f"count({owned(cluster, run.selector)})", start, end, step)
    # A job that was seen between two steps only leaves the coarse times.
    times = [at for each in seen for at, _ in each.samples] or [run.start, run.end]
    return replace(run, start=min(times), end=min(max(times), asked_at))


def _siblings(wanted: Wanted, run: Run, seen: Iterable[Series], slack_seconds: float) -> int:
    if run.key.kind is not Kind.POD or run.pods != {wanted.name}:
        return 0
    workload = run.key._replace(name=workload_of(wanted.name))
    at_the_time = (each for each in seen if any(run.ran_at(at, slack_seconds) for at, _ in each.samples))
    pods = {each.labels["workload_pod"] for each in at_the_time if _workload(each.labels) == workload}
    return len(pods - {wanted.name})


def _unknown(client: PrometheusClient, selection: Selection, wanted: Wanted, at: float) -> PrometheusUnavailable:
    days = SEARCHES_SECONDS[-1] / 86_400
    *most, last = (_WORDS[kind] for kind in wanted.kinds)
    what = f"{', '.join(most)} or {last}" if most else last
    missing = f"{client.url}: no {what} {wanted} had a GPU in the {days:.0f} days before {date_time(at)}"
    every = f"{GPU_ALLOCATED.name}{selection} == 1 or {GPU_PROCESS_OWNER_INFO.name}{selection}"
    if names := owner_names(client.at(f"group by ({_OWNER}) ({every})", at)):
        close = nearest(str(wanted), names)
        hint = f"; did you mean {close}?" if close else f"; there are {first_few(names, _MOST_NAMED)}"
        return PrometheusUnavailable(f"{missing}{hint}")
    if client.at(f"group ({GPU_EXPORTER_BUILD_INFO.name}{selection})", at):
        return PrometheusUnavailable(
            f"{missing}, and no GPU has a known owner at that time; set --slurm.jobs-directory or "
            "--kubernetes.pod-resources-socket of the exporters, see docs/jobs.md"
        )
    return PrometheusUnavailable(f"{missing}, and {nothing_found(client, selection, at)}")


def owner_names(found: Iterable[Series]) -> list[str]:
    """The names of owners as the command takes them: ``4711``, ``research/train``, ``ada``; users last."""
    keys = {key for each in found if (key := _owner(each)) is not None}
    jobs = {key.argument for key in keys if key.kind is not Kind.USER}
    return [*sorted(jobs), *sorted({key.name for key in keys if key.kind is Kind.USER} - jobs)]
