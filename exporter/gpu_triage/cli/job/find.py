"""Finds a job in Prometheus, and the time in which it had GPUs. The number of queries does not depend on its size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.client import PrometheusClient, Series
from gpu_triage.cli.fleet.query import Selection
from gpu_triage.cli.fleet.render import moment
from gpu_triage.cli.job.runs import Run, choose, runs_of
from gpu_triage.cli.job.wanted import Kind, Wanted, matchers, workload_of
from gpu_triage.documents import nearest
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.read.exporter.health import GPU_EXPORTER_BUILD_INFO
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_OWNER_INFO

SEARCHES_SECONDS: Final = (30 * 86_400.0, 400 * 86_400.0)
"""How far back a job is looked for: first this, then that. What the server does not remember costs it nothing."""
_POINTS: Final = 2000
"""The most points of a range query; Prometheus rejects more than 11,000."""
_FINE_POINTS: Final = 400
_SHORTEST_STEP_SECONDS: Final = 5.0
_LATEST_SECONDS: Final = 60.0
"""A job that was seen within so long still runs: some exporters are scraped once a minute."""
_OWNER: Final = "cluster, slurm_job_id, user, account, workload_namespace, workload_pod"
_MOST_NAMED: Final = 6
_WORDS: Final = {Kind.SLURM: "Slurm job", Kind.POD: "pod", Kind.USER: "user"}


@dataclass(frozen=True, slots=True)
class Found:
    """A job in Prometheus.

    Attributes:
        run: with exact times; its end is at most the time of --at.
        others: other times at which the same job had GPUs.
        siblings: how many other pods of its workload had GPUs at the same time.
        asked_at: Unix seconds of the query.
        ongoing: whether it still had GPUs then.
    """

    run: Run
    others: tuple[Run, ...]
    siblings: int
    asked_at: float
    ongoing: bool


class _Sightings(NamedTuple):
    allocated: list[Series]
    processes: list[Series]
    step_seconds: float


def owned(selection: Selection, selector: str, suffix: str = "") -> str:
    """The series of gpu_allocated and gpu_process_owner_info with these matchers; `suffix` may be an offset."""
    where = selection.with_matcher(selector)
    return f"{GPU_ALLOCATED.name}{where}{suffix} == 1 or {GPU_PROCESS_OWNER_INFO.name}{where}{suffix}"


def find(client: PrometheusClient, selection: Selection, wanted: Wanted, at: float | None) -> Found:
    """Find a job at a Unix time, or its latest run.

    Raises:
        SeveralJobs: several jobs match.
        PrometheusUnavailable: the server does not answer, or has no such job.
    """
    asked_at = client.now() if at is None else at
    for seconds in SEARCHES_SECONDS:
        seen = _sightings(client, selection, wanted, asked_at, seconds)
        runs = runs_of(wanted, seen.allocated, seen.processes)
        # A run at the very beginning may have begun before.
        if runs and min(run.start for run in runs) > asked_at - seconds + 2 * seen.step_seconds:
            break
    if not runs:
        raise _unknown(client, selection, wanted, asked_at)
    choice = choose(wanted, runs, at, asked_at, seen.step_seconds)
    run = _refined(client, selection, choice.run, asked_at, seen.step_seconds)
    ongoing = run.end >= asked_at - _LATEST_SECONDS
    return Found(run, choice.others, _siblings(wanted, choice.run, seen), asked_at, ongoing)


def _sightings(
    client: PrometheusClient, selection: Selection, wanted: Wanted, end: float, seconds: float
) -> _Sightings:
    """How many GPUs each owner that the name may mean had, over time, by allocation and by process."""
    step = math.ceil(seconds / _POINTS)
    start = end - step * _POINTS

    def ask(name: str, condition: str) -> list[Series]:
        seen = " or ".join(
            f"last_over_time({name}{selection.with_matcher(each)}[{step}s]){condition}"
            for each in matchers(wanted).values()
        )
        return client.over(
            f"count by ({_OWNER}) (group by (job, instance, gpu, uuid, {_OWNER}) ({seen}))", start, end, step
        )

    return _Sightings(ask(GPU_ALLOCATED.name, " == 1"), ask(GPU_PROCESS_OWNER_INFO.name, ""), step)


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


def _siblings(wanted: Wanted, run: Run, seen: _Sightings) -> int:
    if run.key.kind is not Kind.POD or run.pods != {wanted.name}:
        return 0
    workload = workload_of(wanted.name)
    place = (run.key.cluster, run.key.namespace)
    return len(
        {
            each.labels["workload_pod"]
            for each in (*seen.allocated, *seen.processes)
            if (each.labels["cluster"], each.labels["workload_namespace"]) == place
            and workload_of(each.labels["workload_pod"]) == workload
            and any(run.ran_at(at, seen.step_seconds) for at, _ in each.samples)
        }
        - {wanted.name}
    )


def _unknown(client: PrometheusClient, selection: Selection, wanted: Wanted, at: float) -> PrometheusUnavailable:
    """Why there is no such job, and which there are."""
    days = SEARCHES_SECONDS[-1] / 86_400
    *most, last = (_WORDS[kind] for kind in wanted.kinds)
    what = f"{', '.join(most)} or {last}" if most else last
    missing = f"{client.url}: no {what} {wanted} had a GPU in the {days:.0f} days before {moment(at)}"
    every = f"{GPU_ALLOCATED.name}{selection} == 1 or {GPU_PROCESS_OWNER_INFO.name}{selection}"
    names = owner_names(client.at(f"group by ({_OWNER}) ({every})", at))
    if names:
        close = nearest(str(wanted), names)
        hint = f"; did you mean {close}?" if close else f"; there are {_some(names)}"
        return PrometheusUnavailable(f"{missing}{hint}")
    if client.at(f"group ({GPU_EXPORTER_BUILD_INFO.name}{selection})", at):
        return PrometheusUnavailable(
            f"{missing}, and no GPU has a known owner at that time; set --slurm.jobs-directory or "
            "--kubernetes.pod-resources-socket of the exporters, see docs/jobs.md"
        )
    which = f"no exporter of gpu-triage matches {selection}" if str(selection) else "no exporter of gpu-triage"
    return PrometheusUnavailable(f"{missing}, and there is {which} at that time; ask for gpu_exporter_build_info there")


def owner_names(found: Iterable[Series]) -> list[str]:
    """The names of owners as the command takes them: ``4711``, ``research/train``, ``ada``; users last."""
    jobs: set[str] = set()
    users: set[str] = set()
    for each in found:
        labels = each.labels
        if labels["slurm_job_id"]:
            jobs.add(labels["slurm_job_id"])
        elif labels["workload_pod"]:
            jobs.add(f"{labels['workload_namespace']}/{workload_of(labels['workload_pod'])}")
        elif labels["user"]:
            users.add(labels["user"])
    return [*sorted(jobs), *sorted(users - jobs)]


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
