"""What the reader has to know about the numbers: what is shared, unknown, or was not there all the time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from gpu_triage.cli.fleet.render import moment
from gpu_triage.cli.fleet.view import HostKey
from gpu_triage.cli.job.view import Job, JobGpu
from gpu_triage.cli.job.wanted import workload_of
from gpu_triage.judge.evidence.wording import length_of_time, ranges

_EDGE_STEPS: Final = 3
"""Scrapes of different hosts, and prologs of a job's nodes, differ by seconds: so much counts as the same time."""
_LEAST_EDGE_SECONDS: Final = 120.0
_MOST_NAMED: Final = 4
_UNKNOWN_SHARE: Final = 0.02


def notes_on(job: Job) -> Iterator[str]:
    """One sentence each, without a period."""
    if not job.start_known:
        yield "Prometheus has nothing of these hosts from before: the job may have begun earlier"
    if not job.end_known:
        yield "Prometheus has nothing of these hosts from after that: the job may have run on"
    if job.found.siblings:
        key = job.found.run.key
        workload = f"{key.namespace}/{workload_of(key.name)}"
        yield f"{job.found.siblings} other pods of {workload} had GPUs at the same time; compare them all by that name"
    yield from _edges(job)
    yield from _shared(job)
    parts = [gpu for gpu in job.gpus if gpu.is_part]
    if parts:
        yield f"it had MIG devices of {names_of(parts)}: clock, power and class are those of the whole GPU"
    time = job.time
    if time.unknown > _UNKNOWN_SHARE * time.total:
        yield from _unknown(job)
    for run in job.found.others[:_MOST_NAMED]:
        yield f"it also had GPUs from {moment(run.start)} to {moment(run.end)}; --at looks at that time"


def _edges(job: Job) -> Iterator[str]:
    slack = max(_LEAST_EDGE_SECONDS, _EDGE_STEPS * job.window.step_seconds)
    late = [gpu for gpu in job.gpus if gpu.first > job.window.start + slack]
    early = [gpu for gpu in job.gpus if gpu.last < job.window.end - slack]
    if late:
        after = length_of_time(min(gpu.first for gpu in late) - job.window.start)
        yield f"{names_of(late)} joined later, the first {after} after the start"
    if early:
        before = length_of_time(job.window.end - min(gpu.last for gpu in early))
        yield f"{names_of(early)} left or was no longer seen before the end, the first {before} before it"


def _shared(job: Job) -> Iterator[str]:
    by_owner: defaultdict[str, list[tuple[JobGpu, float]]] = defaultdict(list)
    for gpu in job.gpus:
        for owner, seconds in gpu.neighbors.items():
            by_owner[owner.text].append((gpu, seconds))
    for name, shared in sorted(by_owner.items())[:_MOST_NAMED]:
        longest = length_of_time(max(seconds for _, seconds in shared))
        yield f"{names_of(gpu for gpu, _ in shared)} was shared with {name} for {longest}: readings are of both"
    if len(by_owner) > _MOST_NAMED:
        yield f"it shared GPUs with {len(by_owner) - _MOST_NAMED} more"


def _unknown(job: Job) -> Iterator[str]:
    """The hosts with gaps, and how long the longest of a GPU are in all."""
    gaps: defaultdict[HostKey, float] = defaultdict(float)
    for gpu in job.gpus:
        held = gpu.last - gpu.first + job.window.step_seconds
        gaps[gpu.host] = max(gaps[gpu.host], held - sum(gpu.seconds.values()))
    worst = sorted((host for host in gaps if gaps[host] > 2 * job.window.step_seconds), key=lambda host: -gaps[host])
    for host in worst[:_MOST_NAMED]:
        yield f"nothing is known about GPUs of {host} for {length_of_time(gaps[host])}: no scrape, or no exporter"


def names_of(gpus: Iterable[JobGpu]) -> str:
    """GPUs for display, by host: ``GPU 0-3 of gpu-07:9836``."""
    return places_in_words((gpu.host, gpu.gpu or gpu.uuid) for gpu in gpus)


def places_in_words(places: Iterable[tuple[HostKey, str]]) -> str:
    """GPUs, or hosts if the GPU is "", for display: ``GPU 0-3 of gpu-07:9836``; at most a few hosts."""
    by_host: defaultdict[HostKey, list[str]] = defaultdict(list)
    for host, gpu in places:
        by_host[host] += [gpu] if gpu else []
    named = [f"GPU {ranges(indices)} of {host}" if indices else str(host) for host, indices in by_host.items()]
    more = len(named) - _MOST_NAMED
    return ", ".join(named[:_MOST_NAMED]) + (f" and {more} more hosts" if more > 0 else "")
