"""The answer about a job on a measured host: what to do, the arithmetic behind it, and what to fix first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage.cli.advise.decision import Choice, Decision, decide
from gpu_triage.cli.advise.exchange import Exchange
from gpu_triage.cli.advise.job import Job, Workload
from gpu_triage.cli.advise.memory import Alternative, Memory, alternatives, group_sizes, memory_of
from gpu_triage.cli.advise.paths import Paths, paths_between, usable
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.findings.finding import Finding
from gpu_triage.judge.findings.table import Area, Severity
from gpu_triage.judge.findings.verdicts import Words
from gpu_triage.judge.report.entries import life_cycle
from gpu_triage.judge.report.report import Report
from gpu_triage.read.gpu.device_memory import GPU_MEMORY_TOTAL_BYTES, GPU_MEMORY_USED_BYTES

_OCCUPIED: Final = 0.1
"""Share of GPU memory in use above which another workload is assumed; the driver itself uses less."""

_ABOUT_GPUS: Final = frozenset({"gpu.missing"})
"""Critical findings about the host that do not affect the GPUs that are present."""

_LINKS: Final = frozenset({Area.PCIE, Area.PEERS})
_RELEVANT: Final = frozenset({Area.DRIVER, Area.HEALTH, Area.CLOCKS, Area.HOST})
_FEED: Final = frozenset({"storage", "network", "cpu", "memory"})
"""Topics of host resources that more GPUs would only make scarcer."""


class LeftOut(NamedTuple):
    """GPUs that the answer does not use, and why."""

    gpus: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The complete answer."""

    decision: Decision
    words: Words  # in which the report on the host speaks
    first: tuple[Finding, ...]  # findings to fix before the arithmetic holds, links first
    unfit: tuple[Finding, ...]  # those that make the whole host unfit for any job
    usable_gpus: int  # GPUs that may be used, after --gpus
    gpus: tuple[str, ...]  # indices of the GPUs to use
    other_gpus: tuple[str, ...]  # those left for other jobs or replicas
    replicas: int  # of a model that is served; 0 for training
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]  # how the request was interpreted
    memory: Memory | None  # None if no GPU reports its memory
    alternatives: tuple[Alternative, ...]  # options that need less memory, if one GPU is too small
    exchanges: tuple[Exchange, ...]  # by group size; none for inference and one GPU


def recommend(job: Job, host: HostEvidence, report: Report) -> Recommendation:
    """Return the answer for a job on a measured host."""
    verdicts = {gpu.gpu: gpu.verdict for gpu in report.gpus}
    # Leave out GPUs with any critical finding, even pending: a short measurement confirms few of them.
    unfit_gpus = {
        finding.gpu for finding in report.findings if finding.gpu is not None and finding.severity is Severity.CRITICAL
    }
    # For a job on one GPU, prefer GPUs with the best verdict, then free ones.
    group = tuple(sorted(usable(host, unfit_gpus), key=lambda gpu: (verdicts[gpu.gpu].rank, _occupied(gpu) > 0)))
    count = min(len(group), job.gpus or len(group))
    paths = paths_between(host, group)
    memory = memory_of(job, group, count)
    first = tuple(_first(report, paths.nearest(group, count)))
    starved = tuple(finding.measured for finding in first if _starves(finding))
    decision = decide(job, memory, _exchanges(job, paths, group, group_sizes(count)), count, starved)
    unfit = tuple(_unfit(report))
    if unfit:
        decision = Decision(Choice.NO_GPU, 0, "a critical finding about the host itself comes before any job")
    chosen = paths.nearest(group, decision.gpus)
    split = decision.choice is Choice.SPLIT
    sizes = tuple(size for size in group_sizes(count, job.heads if split else None) if size >= max(2, decision.gpus))
    copies = tuple(size for size in group_sizes(count) if size > 1)
    shown = () if decision.choice in (Choice.NO_GPU, Choice.TOO_LARGE) else sizes if split else copies
    small = memory is not None and not memory.fits
    return Recommendation(
        decision=decision,
        words=report.words,
        first=first,
        unfit=unfit,
        usable_gpus=count,
        gpus=tuple(gpu.gpu for gpu in chosen),
        other_gpus=_others(decision, starved, group, chosen),
        replicas=_replicas(job, decision, starved, count),
        left_out=tuple(_left_out(host, report, group, unfit_gpus)),
        notes=tuple(_notes(job, host, group, chosen)),
        memory=memory,
        alternatives=tuple(alternatives(job, memory)) if memory is not None and small and not unfit else (),
        exchanges=_exchanges(job, paths, group, shown, sharded=split),
    )


def _exchanges(
    job: Job, paths: Paths, group: tuple[GpuEvidence, ...], sizes: tuple[int, ...], *, sharded: bool = False
) -> tuple[Exchange, ...]:
    if job.workload is Workload.INFERENCE:
        return ()
    return tuple(Exchange(job, paths.of(paths.nearest(group, size)), sharded) for size in sizes if size > 1)


def _others(
    decision: Decision, starved: tuple[str, ...], group: tuple[GpuEvidence, ...], chosen: tuple[GpuEvidence, ...]
) -> tuple[str, ...]:
    """Return the GPUs that other jobs can use; none if the host cannot feed them."""
    if starved or decision.choice is not Choice.ONE:
        return ()
    return tuple(sorted((gpu.gpu for gpu in group if gpu not in chosen), key=int))


def _replicas(job: Job, decision: Decision, starved: tuple[str, ...], count: int) -> int:
    if job.workload is not Workload.INFERENCE or not decision.gpus:
        return 0
    return 1 if starved else count // decision.gpus


def _first(report: Report, compared: tuple[GpuEvidence, ...]) -> Iterator[Finding]:
    """Yield the sick and slow links of the host, then what else matters for the compared GPUs and the host."""
    subjects = {"host", *(f"GPU {gpu.gpu}" for gpu in compared)}
    yield from (finding for finding in report.findings if finding.check.area in _LINKS)
    for finding in report.findings:
        matters = finding.severity is not Severity.INFO or finding.check.topic in _FEED
        if finding.check.area in _RELEVANT and finding.subject in subjects and matters:
            yield finding


def _starves(finding: Finding) -> bool:
    """Whether the finding means that the host cannot feed its GPUs."""
    return finding.check.area is Area.HOST and finding.check.topic in _FEED


def _unfit(report: Report) -> Iterator[Finding]:
    for finding in report.findings:
        critical = finding.subject == "host" and finding.severity is Severity.CRITICAL
        if critical and finding.check.code not in _ABOUT_GPUS:
            yield finding


def _left_out(
    host: HostEvidence, report: Report, group: tuple[GpuEvidence, ...], unfit_gpus: set[str]
) -> Iterator[LeftOut]:
    """Yield every GPU of the host that is not in the group, by reason."""
    reasons: dict[str, list[str]] = {}
    names = {gpu.gpu for gpu in group}
    for gpu in host.gpus:
        if gpu.gpu in names:
            continue
        if gpu.gpu in unfit_gpus:
            critical = (f for f in report.findings if f.gpu == gpu.gpu and f.severity is Severity.CRITICAL)
            # Prefer a confirmed finding.
            worst = max(critical, key=lambda f: f.state)
            reason = f"critical finding {worst.check.code}: {worst.measured} ({life_cycle(worst)})"
        elif not gpu.up:
            reason = "does not answer"
        elif gpu.partitioned:
            reason = "split by MIG: give a job one of its instances, which reach no other GPU directly"
        else:
            reason = f"of another model, {gpu.name}"
        reasons.setdefault(reason, []).append(gpu.gpu)
    yield from (LeftOut(tuple(gpus), reason) for reason, gpus in reasons.items())


def _notes(
    job: Job, host: HostEvidence, group: tuple[GpuEvidence, ...], chosen: tuple[GpuEvidence, ...]
) -> Iterator[str]:
    if job.gpus is not None and job.gpus > len(group):
        there = len(host.gpus)
        of_them = "" if there == len(group) else f", {len(group)} of them usable"
        gpus = "1 GPU" if there == 1 else f"{there} GPUs"
        yield f"--gpus {job.gpus}: this host has {gpus}{of_them}; the answer is for {len(group)}"
    occupied = {gpu.gpu: share for gpu in chosen if (share := _occupied(gpu))}
    if occupied:
        names, most = ranges(occupied), f"{max(occupied.values()):.0%}"
        yield f"other work is on GPU {names} now, in up to {most} of a GPU's memory; the answer assumes it is gone"


def _occupied(gpu: GpuEvidence) -> float:
    """Return the share of memory in use by workloads, 0-1; 0 if only the driver uses it."""
    used, total = gpu.last(GPU_MEMORY_USED_BYTES) or 0.0, gpu.last(GPU_MEMORY_TOTAL_BYTES) or 0.0
    return used / total if used > total * _OCCUPIED else 0.0
