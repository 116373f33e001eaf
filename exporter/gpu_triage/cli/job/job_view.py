"""A job according to Prometheus: its GPUs with their time by bottleneck class, its findings and its pace.

Notes say what the reader has to know about the numbers: what is shared, unknown, or was not there all the time.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.fleet_view import GpuKey, HostKey, SeenFinding, finding_key, gpu_key, index_order
from gpu_triage.cli.job.job_facts import Facts, Loss, OddThread, Pace, Window, loss_of, odd_thread_of, pace_of
from gpu_triage.cli.job.job_runs import Found, workload_of
from gpu_triage.judge.evidence.owners import GpuOwner
from gpu_triage.judge.evidence.wording import first_few, length_of_time, ranges
from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.findings.table import Severity
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.serve.page.markup import date_time

GOOD: Final = frozenset({"compute", "idle"})
"""Classes in which no time is lost to a bottleneck, as in `gpu-triage report`."""
WAITS: Final = "communication"
NO_CAUSE: Final = GOOD | {WAITS, "unattributed"}


@dataclass(frozen=True, slots=True)
class JobGpu:
    host: HostKey
    gpu: str
    uuid: str
    first: float  # Unix seconds at which the job was first and last seen on it
    last: float  # likewise
    name: str  # model; "" if unknown
    seconds: Mapping[str, float]  # time in each bottleneck class; classes without time are missing
    clock_hertz: float | None  # mean SM clock under load, in hertz; like the next two, None if not known
    power_watts: float | None  # mean, in watts
    busy_ratio: float | None  # share of time with a kernel, 0-1
    neighbors: Mapping[GpuOwner, float]  # seconds that another job or pod had it as well
    is_part: bool  # whether the job had MIG devices of it

    @property
    def subject(self) -> str:
        """Display name: ``GPU 3 of gpu-07:9836``."""
        return self.host.part(self.gpu or self.uuid)

    @property
    def own_cause(self) -> float:
        """Seconds in classes with a cause of its own, which is not waiting for other GPUs."""
        return sum(seconds for name, seconds in self.seconds.items() if name not in NO_CAUSE)


@dataclass(frozen=True, slots=True)
class JobFinding(SeenFinding):
    first: float  # Unix seconds at which it was first and last seen
    last: float  # likewise
    value: float | None  # what was last measured; None if nothing is
    lasts: bool  # whether it was there at the end

    @property
    def topic(self) -> str:
        """The bottleneck class, or another topic, that it is about; "" if this version does not know it."""
        return "" if self.check is None else self.check.topic

    @property
    def subject(self) -> str:
        """Display name: ``GPU 3 of gpu-07:9836``, ``gpu-07:9836``."""
        return self.host.part(self.gpu or self.uuid)


def shares_of(gpus: Iterable[JobGpu]) -> Mapping[str, float]:
    """The classes of these GPUs, with their share of the time that is known; most first, empty without data."""
    seconds = _seconds_by_class(gpus)
    total = sum(seconds.values())
    return {name: seconds[name] / total for name in seconds} if total else {}


def _seconds_by_class(gpus: Iterable[JobGpu]) -> Mapping[str, float]:
    sums = Counter[str]()
    for gpu in gpus:
        sums.update(gpu.seconds)
    ordered = sorted(sums, key=lambda name: (-sums[name], BOTTLENECK_CLASSES.index(name)))
    return {name: sums[name] for name in ordered}


class GpuTime(NamedTuple):
    """GPU seconds of the job."""

    total: float  # from the first to the last time it was seen, over all GPUs
    by_class: Mapping[str, float]  # most first
    unknown: float  # without data: gaps of the exporter, of the scrapes, or of the owner


@dataclass(frozen=True, slots=True)
class Job:
    found: Found
    window: Window
    gpus: tuple[JobGpu, ...]  # by host and index
    findings: tuple[JobFinding, ...]  # the most urgent first, of these what the job loses most with
    pace: Pace | None
    loss: Loss | None
    odd_thread: OddThread | None
    simulated: bool  # whether data of one of its hosts is simulated
    start_known: bool  # whether its hosts were watched before it began; otherwise it may have begun earlier
    end_known: bool  # whether they were watched after it ended; otherwise it may have run on

    @property
    def hosts(self) -> Mapping[HostKey, tuple[JobGpu, ...]]:
        return {host: tuple(gpus) for host, gpus in groupby(self.gpus, key=attrgetter("host"))}

    @property
    def time(self) -> GpuTime:
        by_class = _seconds_by_class(self.gpus)
        total = sum(gpu.last - gpu.first + self.window.step_seconds for gpu in self.gpus)
        known = sum(by_class.values())
        return GpuTime(max(total, known), by_class, max(0.0, total - known))


def job_of(found: Found, window: Window, facts: Facts) -> Job:
    gpus = tuple(sorted(_gpus(window, facts), key=lambda gpu: (gpu.host, index_order(gpu.gpu), gpu.uuid)))
    loss = loss_of(facts)

    def order(finding: JobFinding) -> tuple[object, ...]:
        lost = 0.0 if loss is None else loss.while_waiting(finding.host, finding.uuid)
        return -finding.rank, finding.pending, -lost, *finding.order()

    return Job(
        found=found,
        window=window,
        gpus=gpus,
        findings=tuple(sorted(_findings(window, facts, gpus), key=order)),
        pace=pace_of(facts, found.run, window),
        loss=loss,
        odd_thread=odd_thread_of(facts),
        simulated=bool(facts["simulated"]),
        start_known=bool(facts["before"]),
        end_known=found.ongoing or bool(facts["after"]),
    )


def _gpus(window: Window, facts: Facts) -> Iterator[JobGpu]:
    first, last, clocks, power, busy = (
        {gpu_key(each): each.value for each in facts[name]} for name in ("first", "last", "clocks", "power", "busy")
    )
    names = {gpu_key(each): each.labels["name"] for each in facts["models"]}
    parts = {gpu_key(each) for each in facts["parts"]}
    seconds: defaultdict[GpuKey, dict[str, float]] = defaultdict(dict)
    for each in facts["classes"]:
        seconds[gpu_key(each)][each.labels["class"]] = each.value * window.step_seconds
    neighbors: defaultdict[GpuKey, dict[GpuOwner, float]] = defaultdict(dict)
    for each in facts["neighbors"]:
        labels = each.labels
        owner = GpuOwner(labels["workload_namespace"], labels["workload_pod"], labels["slurm_job_id"])
        neighbors[gpu_key(each)][owner] = each.value * window.step_seconds
    for each in facts["held"]:
        key = gpu_key(each)
        yield JobGpu(
            *key,
            first=first.get(key, window.start),
            last=last.get(key, window.end),
            name=names.get(key, ""),
            seconds=seconds[key],
            clock_hertz=clocks.get(key),
            power_watts=power.get(key),
            busy_ratio=busy.get(key),
            neighbors=neighbors[key],
            is_part=key in parts,
        )


def _findings(window: Window, facts: Facts, gpus: Iterable[JobGpu]) -> Iterator[JobFinding]:
    found, lost = ({finding_key(each): each.value for each in facts[name]} for name in ("found", "lost"))
    values = {(*gpu_key(each), each.labels["code"]): each.value for each in facts["values"]}
    left: defaultdict[HostKey, float] = defaultdict(float)
    for one in gpus:
        left[one.host] = max(left[one.host], one.last)
    left_gpu = {(one.host, one.gpu, one.uuid): one.last for one in gpus}
    end = max((each.value for each in facts["lost"]), default=window.end)
    for each in facts["worst"]:
        key = finding_key(each)
        host, gpu, uuid, severity, code, _ = key
        first, last = found.get(key, window.start), lost.get(key, window.end)
        ended = left_gpu.get((host, gpu, uuid), left[host])
        if first > ended + window.step_seconds and severity != Severity.CRITICAL.value:
            continue  # of what came after the job
        yield JobFinding(
            *key,
            State.CONFIRMED if each.value > State.PENDING else State.PENDING,
            accepted="",
            first=first,
            last=last,
            value=values.get((host, gpu, uuid, code)),
            lasts=last >= min(end, window.end) - 2 * window.step_seconds,
        )


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
    if parts := [gpu for gpu in job.gpus if gpu.is_part]:
        yield f"it had MIG devices of {names_of(parts)}: clock, power and class are those of the whole GPU"
    time = job.time
    if time.unknown > _UNKNOWN_SHARE * time.total:
        yield from _unknown(job)
    for run in job.found.others[:_MOST_NAMED]:
        yield f"it also had GPUs from {date_time(run.start)} to {date_time(run.end)}; --at looks at that time"


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
    named = [host.part(ranges(indices)) for host, indices in by_host.items()]
    return first_few(named, _MOST_NAMED) + (" hosts" if len(named) > _MOST_NAMED else "")
