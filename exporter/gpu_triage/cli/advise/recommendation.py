"""One GPU or several for a job on this host: the recommendation with its rule, reasons and limits.

Efficiency is the speedup divided by the number of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage.cli.advise import rules
from gpu_triage.cli.advise.decision import FEED, Decision, decide, starves
from gpu_triage.cli.advise.job import Job, JobKind
from gpu_triage.cli.advise.memory import Alternative, Memory, SpareCapacity, alternatives, gib, memory_of
from gpu_triage.cli.advise.placement import Access, Path, Placement, nearest, usable
from gpu_triage.cli.advise.rules import Choice, Rule
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.ranges import ranges
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.table import Area, Severity
from gpu_triage.judge.report.life_cycle import life_cycle_of
from gpu_triage.judge.report.report import Report
from gpu_triage.read.gpu.memory import GPU_MEMORY_TOTAL_BYTES, GPU_MEMORY_USED_BYTES
from gpu_triage.read.host.memory import GPU_HOST_MEMORY_TOTAL_BYTES

_RELEVANT: Final = frozenset({Area.DRIVER, Area.HEALTH, Area.CLOCKS, Area.PCIE, Area.PEERS, Area.HOST})

_OCCUPIED: Final = 0.1
"""Share of GPU memory in use above which another workload is assumed; the driver itself uses less."""


_ABOUT_GPUS: Final = frozenset({"gpu.missing"})
"""Critical host findings that do not affect the GPUs that are present."""


class LeftOut(NamedTuple):
    """GPUs excluded from the recommendation, and why."""

    gpus: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The complete recommendation."""

    choice: Choice
    rule: Rule  # the deciding rule
    headline: str  # the choice as a sentence
    considered: int  # number of GPUs compared with one
    gpus: tuple[str, ...]  # indices of the GPUs to use
    other_gpus: tuple[str, ...]  # GPUs left for other jobs or further replicas
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]  # how the request was interpreted
    reasons: tuple[str, ...]  # most important first
    memory: Memory | None  # None if no GPU reports its memory
    alternatives: tuple[Alternative, ...]  # for a model that does not fit on one GPU
    # Lowest and highest expected scaling efficiency of several GPUs, 0-1; None if not measured.
    efficiency: tuple[float, float] | None
    fix_first: tuple[Finding, ...]  # findings to fix before any comparison is meaningful
    evidence_ends: tuple[str, ...]  # limits of the evidence


def recommend(job: Job, host: HostEvidence, report: Report) -> Recommendation:
    """Return the recommendation for a job on a measured host."""
    verdicts = {gpu.gpu: gpu.verdict for gpu in report.gpus}
    # Exclude GPUs with any critical finding, even pending: a short measurement confirms few of them.
    unfit_gpus = {
        finding.gpu for finding in report.findings if finding.gpu is not None and finding.severity is Severity.CRITICAL
    }
    # For a single-GPU job, prefer GPUs with the best verdict, then free ones.
    group = tuple(sorted(usable(host, unfit_gpus), key=lambda gpu: (verdicts[gpu.gpu].rank, _occupied_bytes(gpu) > 0)))
    count = min(len(group), job.gpus or len(group))
    unfit = _unfit(report)
    compared = nearest(host, group, count) if group and not unfit else None
    memory = memory_of(job, group)
    fix_first = _fix_first(report, compared)
    decision = decide(job, compared, memory, fix_first)
    if unfit:
        decision = Decision(Choice.NO_GPU, rules.HOST_UNFIT, 0, ())
    chosen = nearest(host, group, decision.gpus).gpus if decision.gpus else ()
    gpus = tuple(gpu.gpu for gpu in chosen)
    starved = any(map(starves, fix_first))
    others = () if starved or decision.choice is not Choice.ONE else tuple(g.gpu for g in group if g.gpu not in gpus)
    path = None if compared is None else compared.worst
    alike = job.kind is JobKind.TRAINING and path is not None and path.access is Access.HOST_MEMORY
    by_size = decision.rule == job.band.rule or decision.rule in (rules.HOST_STARVED, rules.BATCH_PER_GPU)
    too_big = decision.choice in (Choice.SHARD, Choice.TOO_LARGE)
    repaired = sum(gpu.gpu in unfit_gpus and gpu.name == group[0].name for gpu in host.answering) if group else 0
    spare = SpareCapacity(host.last(GPU_HOST_MEMORY_TOTAL_BYTES), repaired)
    return Recommendation(
        choice=decision.choice,
        rule=decision.rule,
        headline=_headline(job, decision, gpus, others, memory) if not unfit else _fix_host(unfit),
        considered=count,
        gpus=gpus,
        other_gpus=others,
        left_out=tuple(_left_out(host, report, group, unfit_gpus)),
        notes=tuple(_notes(job, host, group, chosen)),
        reasons=decision.reasons,
        memory=memory,
        alternatives=tuple(alternatives(job, memory, spare)) if too_big and memory is not None else (),
        efficiency=job.band.efficiency if alike and by_size and count == rules.MEASURED_GPUS else None,
        fix_first=fix_first,
        evidence_ends=tuple(_unknown(job, decision, path, count)),
    )


def _fix_first(report: Report, compared: Placement | None) -> tuple[Finding, ...]:
    subjects = {"host", *(f"GPU {gpu.gpu}" for gpu in (compared.gpus if compared is not None else ()))}
    return tuple(
        finding
        for finding in report.findings
        if finding.subject in subjects
        and finding.check.area in _RELEVANT
        and (finding.severity is not Severity.INFO or finding.check.topic in FEED)
    )


def _unfit(report: Report) -> tuple[Finding, ...]:
    """Return the findings that make the whole host unfit for any job."""
    return tuple(
        finding
        for finding in report.findings
        if finding.subject == "host" and finding.severity is Severity.CRITICAL and finding.check.code not in _ABOUT_GPUS
    )


def _fix_host(unfit: tuple[Finding, ...]) -> str:
    return f"run nothing on this host until this is fixed: {', '.join(f.check.code for f in unfit)}"


def _left_out(
    host: HostEvidence, report: Report, group: tuple[GpuEvidence, ...], unfit_gpus: set[str]
) -> Iterator[LeftOut]:
    """Yield every GPU of the host that is not in the group, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    names = {gpu.gpu for gpu in group}
    for gpu in host.gpus:
        if gpu.gpu in names:
            continue
        if gpu.gpu in unfit_gpus:
            critical = (f for f in report.findings if f.gpu == gpu.gpu and f.severity is Severity.CRITICAL)
            # Prefer a confirmed finding: it is the reason to drain the GPU.
            worst = max(critical, key=lambda f: f.state)
            found = f"{worst.check.code}, {worst.measured}"
            drain = worst.state is State.CONFIRMED
            reason = f"to be drained: {found}" if drain else f"has a critical finding: {found} ({life_cycle_of(worst)})"
        elif not gpu.up:
            reason = "does not answer"
        elif gpu.partitioned:
            reason = "partitioned by MIG"
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
        yield f"{job.gpus} GPUs were asked for; this host has {gpus}{of_them}: the answer is for {len(group)}"
    occupied = {gpu.gpu: used for gpu in chosen if (used := _occupied_bytes(gpu))}
    if occupied:
        most = gib(max(occupied.values()))
        names = ranges(occupied)
        yield f"other work is on GPU {names} now, with up to {most} of a GPU's memory; the answer assumes it is gone"


def _occupied_bytes(gpu: GpuEvidence) -> float:
    """Return the memory used by workloads on the GPU; 0 if only the driver uses it."""
    used, total = gpu.last(GPU_MEMORY_USED_BYTES) or 0.0, gpu.last(GPU_MEMORY_TOTAL_BYTES) or 0.0
    return used if used > total * _OCCUPIED else 0.0


def _unknown(job: Job, decision: Decision, path: Path | None, count: int) -> Iterator[str]:
    if decision.choice in (Choice.SHARD, Choice.TOO_LARGE):
        yield (
            "memory is estimated from the number of parameters alone: measure the peak of a short run, "
            "with torch.cuda.max_memory_allocated() or gpu_memory_used_bytes, before you buy or reserve"
        )
        yield "nothing was measured about how fast a model is that is split over GPUs"
    elif job.kind is JobKind.INFERENCE:
        yield "nothing here was measured for inference: compare p50, p95 and p99 of both ways under your own traffic"
    elif decision.choice is not Choice.NO_GPU:
        yield from _beyond_the_study(job, path, count)


def _beyond_the_study(job: Job, path: Path | None, count: int) -> Iterator[str]:
    if job.parameters > rules.LARGEST_MEASURED:
        largest = count_words(rules.LARGEST_MEASURED)
        yield f"nothing was measured beyond {largest} parameters: for larger models it is extrapolated"
    if count > rules.MEASURED_GPUS:
        yield f"nothing was measured with more than {rules.MEASURED_GPUS} GPUs"
    if path is not None and path.access is not Access.HOST_MEMORY:
        yield (
            "the measurements had neither peer access nor NVLink: exchange is cheaper here, so several GPUs may pay "
            "off earlier; how much earlier was not measured"
        )
    yield (
        "only data-parallel training of small dense, recurrent and transformer models was measured: before you decide, "
        "measure the step time of one GPU and of several with the same data and versions"
    )


def _headline(
    job: Job, decision: Decision, gpus: tuple[str, ...], others: tuple[str, ...], memory: Memory | None
) -> str:
    where = f"GPU {ranges(gpus)}" if gpus else ""
    more = ""
    if others and job.kind is JobKind.INFERENCE:
        more = f" for a replica; GPU {ranges(others)} can hold more replicas"
    elif others:
        more = f", and leave GPU {ranges(others)} to other jobs"
    missing = ""
    if memory is not None:
        gpus_words = "its one usable GPU" if memory.gpus == 1 else f"its {memory.gpus} usable GPUs"
        missing = f"{gib(memory.missing_bytes)} more than {gpus_words} can hold"
    return {
        Choice.NO_GPU: "run nothing on this host: it has no usable GPU",
        Choice.TOO_LARGE: f"the model does not fit on this host: it needs {missing}",
        Choice.SHARD: f"one GPU is too small: split the model over {len(gpus)} GPUs, {where}",
        Choice.MEASURE: f"measure one GPU against {len(gpus)} ({where}) before you decide",
        Choice.SEVERAL: f"use {len(gpus)} GPUs: {where}",
        Choice.ONE: f"use one GPU, {where}{more}",
    }[decision.choice]


def count_words(parameters: float) -> str:
    """Format a number of parameters: ``6.9 M``."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if parameters >= size:
            return f"{parameters / size:.3g} {unit}"
    return f"{parameters:.0f}"
