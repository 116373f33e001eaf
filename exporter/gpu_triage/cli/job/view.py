"""A job according to Prometheus: its GPUs with their time by bottleneck class, its findings and its pace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.client import Series
from gpu_triage.cli.fleet.view import GpuKey, HostKey, gpu_key, key_of
from gpu_triage.cli.job.facts import Facts, Window, pace_window
from gpu_triage.cli.job.find import Found
from gpu_triage.cli.job.pace import Pace, pace_of
from gpu_triage.judge.evidence.owners import GpuOwner
from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.findings.table import BY_CODE, Check, Severity
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES

GOOD: Final = frozenset({"compute", "idle"})
"""Classes in which no time is lost to a bottleneck, as in `gpu-triage report`."""
WAITS: Final = "communication"
_NO_CAUSE: Final = GOOD | {WAITS, "unattributed"}


@dataclass(frozen=True, slots=True)
class JobGpu:
    """One GPU of the job, while the job had it.

    Attributes:
        first, last: Unix seconds at which the job was first and last seen on it.
        name: model; "" if unknown.
        seconds: time in each bottleneck class; classes without time are missing.
        clock: mean SM clock under load, in hertz; like the next two, None if not known.
        power: mean, in watts.
        busy: share of time with a kernel, 0-1.
        neighbors: seconds that another job or pod had it as well.
        is_part: whether the job had MIG devices of it.
    """

    host: HostKey
    gpu: str
    uuid: str
    first: float
    last: float
    name: str
    seconds: Mapping[str, float]
    clock: float | None
    power: float | None
    busy: float | None
    neighbors: Mapping[GpuOwner, float]
    is_part: bool

    @property
    def subject(self) -> str:
        """Display name: ``GPU 3 of gpu-07:9836``."""
        return f"GPU {self.gpu or self.uuid} of {self.host}"

    @property
    def own_cause(self) -> float:
        """Seconds in classes with a cause of its own, which is not waiting for other GPUs."""
        return sum(seconds for name, seconds in self.seconds.items() if name not in _NO_CAUSE)


@dataclass(frozen=True, slots=True)
class JobFinding:
    """One finding about a GPU or a host of the job, while it ran.

    Attributes:
        gpu, uuid: "" for the host.
        state: the most advanced that was seen.
        first, last: Unix seconds at which it was first and last seen.
        value: what was last measured; None if nothing is.
        lasts: whether it was there at the end.
    """

    host: HostKey
    gpu: str
    uuid: str
    severity: str
    code: str
    action: str
    state: State
    first: float
    last: float
    value: float | None
    lasts: bool

    @property
    def check(self) -> Check | None:
        """Its kind; None for a code that this program does not know."""
        return BY_CODE.get(self.code)

    @property
    def urgency(self) -> str:
        """Severity: a critical finding is a warning unless it was confirmed."""
        critical_soon = self.state is State.PENDING and self.severity == Severity.CRITICAL.value
        return Severity.WARNING.value if critical_soon else self.severity

    @property
    def rank(self) -> int:
        """Rank of its urgency."""
        return _RANKS.get(self.urgency, 0)

    @property
    def subject(self) -> str:
        """Display name: ``GPU 3 of gpu-07:9836``, ``gpu-07:9836``."""
        return f"GPU {self.gpu or self.uuid} of {self.host}" if self.gpu or self.uuid else str(self.host)


_RANKS: Final[Mapping[str, int]] = {severity.value: severity.rank for severity in Severity}


class GpuTime(NamedTuple):
    """GPU seconds of the job."""

    total: float  # from the first to the last time it was seen, over all GPUs
    by_class: Mapping[str, float]  # most first
    unknown: float  # without data: gaps of the exporter, of the scrapes, or of the owner

    @property
    def lost(self) -> float:
        """Seconds in classes other than compute and idle."""
        return sum(seconds for name, seconds in self.by_class.items() if name not in GOOD)


@dataclass(frozen=True, slots=True)
class Job:
    """All that is known of the job in a window of time.

    Attributes:
        gpus: by host and index.
        findings: the most urgent first.
        simulated: whether data of one of its hosts is simulated.
        start_known: whether its hosts were watched before it began; otherwise it may have begun earlier.
        end_known: whether they were watched after it ended; otherwise it may have run on.
    """

    found: Found
    window: Window
    gpus: tuple[JobGpu, ...]
    findings: tuple[JobFinding, ...]
    pace: Pace | None
    simulated: bool
    start_known: bool
    end_known: bool

    @property
    def hosts(self) -> tuple[HostKey, ...]:
        """Its hosts, sorted."""
        return tuple(sorted({each.host for each in self.gpus}))

    @property
    def time(self) -> GpuTime:
        """Its GPU seconds by class."""
        sums: defaultdict[str, float] = defaultdict(float)
        for gpu in self.gpus:
            for name, seconds in gpu.seconds.items():
                sums[name] += seconds
        total = sum(gpu.last - gpu.first + self.window.step_seconds for gpu in self.gpus)
        known = sum(sums.values())
        ordered = sorted(sums, key=lambda name: (-sums[name], BOTTLENECK_CLASSES.index(name)))
        return GpuTime(max(total, known), {name: sums[name] for name in ordered}, max(0.0, total - known))


def job_of(found: Found, window: Window, facts: Facts) -> Job:
    """Interpret the answers of all queries."""
    gpus = tuple(sorted(_gpus(window, facts), key=lambda gpu: (gpu.host, _number(gpu.gpu), gpu.uuid)))
    return Job(
        found=found,
        window=window,
        gpus=gpus,
        findings=tuple(sorted(_findings(window, facts, gpus), key=_order)),
        pace=pace_of(facts, found.run, window, pace_window(window)),
        simulated=bool(facts.simulated),
        start_known=bool(facts.before),
        end_known=found.ongoing or bool(facts.after),
    )


def _gpus(window: Window, facts: Facts) -> Iterator[JobGpu]:
    first, last = _values(facts.first), _values(facts.last)
    clocks, power, busy = _values(facts.clocks), _values(facts.power), _values(facts.busy)
    names = {gpu_key(each): each.labels["name"] for each in facts.models}
    parts = {gpu_key(each) for each in facts.parts}
    seconds = _by_class(facts.classes, window.step_seconds)
    neighbors = _neighbors(facts.neighbors, window.step_seconds)
    for each in facts.held:
        key = gpu_key(each)
        host, gpu, uuid = key
        yield JobGpu(
            host=host,
            gpu=gpu,
            uuid=uuid,
            first=first.get(key, window.start),
            last=last.get(key, window.end),
            name=names.get(key, ""),
            seconds=seconds.get(key, {}),
            clock=clocks.get(key),
            power=power.get(key),
            busy=busy.get(key),
            neighbors=neighbors.get(key, {}),
            is_part=key in parts,
        )


def _values(found: Iterable[Series]) -> dict[GpuKey, float]:
    return {gpu_key(each): each.value for each in found}


def _by_class(found: Iterable[Series], step_seconds: int) -> dict[GpuKey, dict[str, float]]:
    by_gpu: defaultdict[GpuKey, dict[str, float]] = defaultdict(dict)
    for each in found:
        by_gpu[gpu_key(each)][each.labels["class"]] = each.value * step_seconds
    return by_gpu


def _neighbors(found: Iterable[Series], step_seconds: int) -> dict[GpuKey, dict[GpuOwner, float]]:
    by_gpu: defaultdict[GpuKey, dict[GpuOwner, float]] = defaultdict(dict)
    for each in found:
        labels = each.labels
        owner = GpuOwner(labels["workload_namespace"], labels["workload_pod"], labels["slurm_job_id"])
        by_gpu[gpu_key(each)][owner] = each.value * step_seconds
    return by_gpu


def _findings(window: Window, facts: Facts, gpus: Iterable[JobGpu]) -> Iterator[JobFinding]:
    found = {_finding_key(each): each.value for each in facts.found}
    lost = {_finding_key(each): each.value for each in facts.lost}
    values = {
        (key_of(each), each.labels["gpu"], each.labels["uuid"], each.labels["code"]): each for each in facts.values
    }
    left: defaultdict[HostKey, float] = defaultdict(float)
    for one in gpus:
        left[one.host] = max(left[one.host], one.last)
    left_gpu = {(one.host, one.gpu, one.uuid): one.last for one in gpus}
    end = max((each.value for each in facts.lost), default=window.end)
    for each in facts.worst:
        key = _finding_key(each)
        host, gpu, uuid, severity, code, action = key
        value = values.get((host, gpu, uuid, code))
        first, last = found.get(key, window.start), lost.get(key, window.end)
        ended = left_gpu.get((host, gpu, uuid), left[host])
        if first > ended + window.step_seconds and severity != Severity.CRITICAL.value:
            continue  # of what came after the job
        yield JobFinding(
            host=host,
            gpu=gpu,
            uuid=uuid,
            severity=severity,
            code=code,
            action=action,
            state=State(round(each.value)) if each.value in (1, 2) else State.PENDING,
            first=first,
            last=last,
            value=None if value is None else value.value,
            lasts=last >= min(end, window.end) - 2 * window.step_seconds,
        )


def _order(finding: JobFinding) -> tuple[object, ...]:
    return (-finding.rank, finding.state is State.PENDING, finding.code, finding.host, _number(finding.gpu))


_FindingKey = tuple[HostKey, str, str, str, str, str]


def _finding_key(series: Series) -> _FindingKey:
    labels = series.labels
    gpu = labels["gpu"], labels["uuid"]
    return key_of(series), *gpu, labels["severity"], labels["code"], labels["action"]


def _number(text: str) -> tuple[int, str]:
    return (int(text) if text.isdecimal() and len(text) < 6 else -1, text)  # noqa: PLR2004 - no index is longer
