"""When a job had GPUs, from the series that have its owner's labels; and the choice if several jobs match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.client import Series
from gpu_triage.cli.job.wanted import Kind, Wanted, matcher, matcher_of_any, workload_of

LONGEST_GAP_SECONDS: Final = 3600.0
"""A job that had no GPU for longer ran twice; a Prometheus that was down for less does not split a job."""


class JobKey(NamedTuple):
    """What identifies a job; "" for what does not apply."""

    kind: Kind
    cluster: str
    namespace: str
    name: str  # number of a Slurm job, name of a pod or of its workload, or user


@dataclass(frozen=True, slots=True)
class Run:
    """A period in which a job had GPUs.

    Attributes:
        users: from the allocation if there is one, else of its processes.
        accounts: of Slurm.
        pods: all that belong to it; empty for Slurm jobs and users.
        start, end: Unix seconds of the first and last time at which it had a GPU.
        gpus: the most that it had at one time.
        by_user: whether only its user matches.
    """

    key: JobKey
    users: frozenset[str]
    accounts: frozenset[str]
    pods: frozenset[str]
    start: float
    end: float
    gpus: int
    by_user: bool = False

    def __str__(self) -> str:
        """Display name: ``Slurm job 4711 of ada``, ``pod research/train-0``, ``user ada``."""
        name = self.key.name
        if self.key.kind is Kind.SLURM:
            return f"Slurm job {name}" + (f" of {', '.join(sorted(self.users))}" if self.users else "")
        if self.key.kind is Kind.USER:
            return f"user {name}"
        return f"{'pod' if len(self.pods) == 1 else 'pods'} {self.key.namespace}/{name}"

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


@dataclass(slots=True)
class _Seen:
    """What was seen of a job at one time; allocations and processes name the same GPUs."""

    allocated: int = 0
    used: int = 0
    users: frozenset[str] = frozenset()
    process_users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()


def runs_of(wanted: Wanted, allocated: Iterable[Series], processes: Iterable[Series]) -> tuple[Run, ...]:
    """The periods of all jobs in these answers of Prometheus, by job and time.

    Another user in the same place is another job: numbers of Slurm jobs begin again after a reinstallation.
    """
    allocated, processes = list(allocated), list(processes)
    exact = any(each.labels["workload_pod"] == wanted.name for each in (*allocated, *processes))
    by_key: defaultdict[JobKey, defaultdict[float, _Seen]] = defaultdict(lambda: defaultdict(_Seen))
    named: set[JobKey] = set()
    for is_allocation, found in ((True, allocated), (False, processes)):
        for series in found:
            key = _named(wanted, series, exact=exact)
            if key is not None:
                named.add(key)
            key = key or _of_user(wanted, series)
            if key is not None:
                for at, count in series.samples:
                    _note(by_key[key][at], series, int(count), is_allocation=is_allocation)
    runs = (run for key, times in by_key.items() for run in _split(key, times))
    return tuple(replace(run, by_user=run.key not in named) for run in runs)


def _named(wanted: Wanted, series: Series, *, exact: bool) -> JobKey | None:
    """The job of a series if it is a Slurm job or a pod of that name.

    A pod that is named in full (`exact`) is itself; otherwise the pods of a workload belong together.
    """
    labels = series.labels
    if Kind.SLURM in wanted.kinds and labels["slurm_job_id"] == wanted.name:
        return JobKey(Kind.SLURM, labels["cluster"], "", wanted.name)
    pod, namespace = labels["workload_pod"], labels["workload_namespace"]
    if Kind.POD not in wanted.kinds or wanted.namespace not in ("", namespace):
        return None
    if exact:
        return JobKey(Kind.POD, labels["cluster"], namespace, pod) if pod == wanted.name else None
    of_it = pod.startswith(f"{wanted.name}-")
    return JobKey(Kind.POD, labels["cluster"], namespace, workload_of(pod)) if of_it else None


def _of_user(wanted: Wanted, series: Series) -> JobKey | None:
    """The job of a series if it is of a user of that name."""
    labels = series.labels
    if Kind.USER not in wanted.kinds or labels["user"] != wanted.name:
        return None
    if labels["slurm_job_id"]:
        return JobKey(Kind.SLURM, labels["cluster"], "", labels["slurm_job_id"])
    if labels["workload_pod"]:
        return JobKey(Kind.POD, labels["cluster"], labels["workload_namespace"], workload_of(labels["workload_pod"]))
    return JobKey(Kind.USER, labels["cluster"], "", wanted.name)


def _note(seen: _Seen, series: Series, count: int, *, is_allocation: bool) -> None:
    labels = series.labels
    user = frozenset({labels["user"]} - {""})
    if is_allocation:
        seen.allocated += count
        seen.users |= user
        seen.accounts |= frozenset({labels["account"]} - {""})
    else:
        seen.used += count
        seen.process_users |= user
    seen.pods |= frozenset({labels["workload_pod"]} - {""})


def _split(key: JobKey, times: defaultdict[float, _Seen]) -> Iterator[Run]:
    current: list[tuple[float, _Seen]] = []
    for at in sorted(times):
        seen = times[at]
        if current:
            users = frozenset[str]().union(*(each.users for _, each in current))
            other = bool(users and seen.users and not users & seen.users)
            if other or at - current[-1][0] > LONGEST_GAP_SECONDS:
                yield _run(key, current)
                current = []
        current.append((at, seen))
    if current:
        yield _run(key, current)


def _run(key: JobKey, seen: Sequence[tuple[float, _Seen]]) -> Run:
    def union(name: str) -> frozenset[str]:
        return frozenset[str]().union(*(getattr(each, name) for _, each in seen))

    return Run(
        key=key,
        users=union("users") or union("process_users"),
        accounts=union("accounts"),
        pods=union("pods"),
        start=seen[0][0],
        end=seen[-1][0],
        gpus=max(max(each.allocated, each.used) for _, each in seen),
    )


class Choice(NamedTuple):
    """The run to look at, and other runs of the same job."""

    run: Run
    others: tuple[Run, ...]


class SeveralJobs(Exception):
    """Several jobs match.

    Attributes:
        runs: one of each, the latest first.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = tuple(sorted(runs, key=lambda run: (-run.end, run.key.cluster, run.key.namespace, run.key.name)))
        super().__init__(f"{len(self.runs)} jobs match")


def choose(wanted: Wanted, runs: Sequence[Run], at: float | None, now: float, slack_seconds: float) -> Choice:
    """The run at the time `at`, or the last one before it; the latest if None.

    Args:
        runs: at least one.
        now: time of the query, in Unix seconds.
        slack_seconds: step of the times of runs.

    Raises:
        SeveralJobs: several jobs match, such as pods of one name in two namespaces.
    """
    begun = [run for run in runs if at is None or run.start - slack_seconds <= at]
    found = _preferred(wanted, begun or runs)
    if at is not None or all(run.by_user for run in found):
        # Of the many jobs of a user, those that run.
        found = [run for run in found if run.ran_at(now if at is None else at, slack_seconds)] or found
    latest: dict[tuple[JobKey, frozenset[str]], Run] = {}
    for run in sorted(found, key=lambda run: run.end):
        # A number of Slurm that another user has later is another job; a time selects one.
        users = run.users if at is None and run.key.kind is Kind.SLURM else frozenset[str]()
        latest[run.key, users] = run
    if len(latest) > 1:
        raise SeveralJobs(latest.values())
    (chosen,) = latest.values()
    return Choice(chosen, tuple(run for run in runs if run is not chosen and run.key == chosen.key))


def _preferred(wanted: Wanted, runs: Sequence[Run]) -> list[Run]:
    """The Slurm jobs of that number, else the pods of that name, else pods with a longer name, else a user's jobs."""
    named = [run for run in runs if not run.by_user]
    numbered = [run for run in named if run.key.kind is Kind.SLURM]
    whole = [run for run in named if run.key.kind is Kind.POD and run.key.name == wanted.name]
    return numbered or whole or named or list(runs)
