"""The answer about a job on a measured host: what to do, the estimate behind it, and what to fix first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from gpu_triage.cli.advise.estimate import Estimate, Job
from gpu_triage.cli.advise.paths import paths_between
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


class Choice(Enum):
    ONE = "one"
    SEVERAL = "several"
    TRY = "try"  # the answer is within the uncertainty
    DEPENDS = "depends"  # on the step time, which is not known
    NO_GPU = "no_gpu"


class Decision(NamedTuple):
    """What to do, how many GPUs to use until more is measured, and why."""

    choice: Choice
    gpus: int
    because: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    job: Job
    decision: Decision
    words: Words  # in which the report on the host speaks
    first: tuple[Finding, ...]  # findings to fix before the estimate holds, links first
    gpus: tuple[str, ...]  # indices of the GPUs to use
    other_gpus: tuple[str, ...]  # those left for other jobs
    left_out: Mapping[str, list[str]]  # GPUs that the answer does not use, by why
    notes: tuple[str, ...]  # how the request was interpreted
    estimates: tuple[Estimate, ...]  # by group size from 2; none for one GPU

    @property
    def trial(self) -> Estimate | None:
        """The group to try against the one to use, as the estimate does not settle it; None if it settles all."""
        if self.decision.choice in (Choice.ONE, Choice.NO_GPU):
            return None
        may_pay = [each for each in self.estimates if each.gpus > self.decision.gpus and each.may_pay]
        untried = () if self.decision.choice is Choice.SEVERAL else self.estimates[:1]
        return next(iter((*may_pay[-1:], *untried)), None)


def recommend(job: Job, host: HostEvidence, report: Report) -> Recommendation:
    verdicts = {gpu.gpu: gpu.verdict for gpu in report.gpus}
    # Leave out GPUs with any critical finding, even pending: a short measurement confirms few of them.
    critical = [finding for finding in reversed(report.findings) if finding.severity is Severity.CRITICAL]
    # Of several findings of a GPU, the first of the most confirmed ones gives the reason.
    sick = {finding.gpu: finding for finding in sorted(critical, key=lambda finding: finding.state)}
    # For a job on one GPU, prefer GPUs with the best verdict, then free ones.
    group = tuple(sorted(_usable(host, sick), key=lambda gpu: (verdicts[gpu.gpu].rank, _occupied(gpu))))
    count = min(len(group), job.gpus or len(group))
    paths = paths_between(host, group)
    host_codes = dict.fromkeys(finding.check.code for finding in critical if finding.subject == "host")
    unfit = ", ".join(code for code in host_codes if code not in _ABOUT_GPUS)
    first = tuple(_first(report, paths.nearest(group, count)))
    starved = tuple(each.measured for each in first if each.check.area is Area.HOST and each.check.topic in _FEED)
    sizes = (1 << power for power in range(1, count.bit_length()))
    estimates = () if unfit else tuple(Estimate(job, paths.of(paths.nearest(group, size))) for size in sizes)
    decision = decide(job, estimates, count, starved)
    if unfit:
        decision = Decision(Choice.NO_GPU, 0, f"this comes before any job: {unfit}")
    chosen = paths.nearest(group, decision.gpus)
    free = decision.choice is Choice.ONE and not starved
    return Recommendation(
        job=job,
        decision=decision,
        words=report.words,
        first=first,
        gpus=tuple(gpu.gpu for gpu in chosen),
        other_gpus=tuple(sorted((gpu.gpu for gpu in group if gpu not in chosen), key=int)) if free else (),
        left_out=_left_out(host, group, sick),
        notes=tuple(_notes(job, host, group, chosen)),
        estimates=estimates,
    )


def decide(job: Job, estimates: tuple[Estimate, ...], count: int, starved: tuple[str, ...] = ()) -> Decision:
    """Between one and `count` usable GPUs; `estimates` by size from 2, `starved`: why the host cannot feed more."""
    if not count:
        return Decision(Choice.NO_GPU, 0, "no GPU answers, is not split by MIG, and has no critical finding")
    if count == 1:
        return Decision(Choice.ONE, 1, "one GPU was asked for" if job.gpus == 1 else "only one GPU is usable")
    if starved:
        return Decision(Choice.ONE, 1, f"the host cannot feed more: {'; '.join(starved)}")
    pair = estimates[0]
    if pair.exchange_seconds is None:
        return Decision(Choice.TRY, 1, "the speed of the links is not reported, so nothing can be estimated")
    if pair.speedup is None:
        return Decision(Choice.DEPENDS, 1, "the time of a step on one GPU decides: give it with --step-time")
    sure = [each for each in estimates if each.pays]
    possible = [each for each in estimates if each.may_pay]
    best = (sure or possible or [pair])[-1]
    because = (
        f"{best.gpus} GPUs are estimated at {best.speedup} times as fast as one, and are worth their cost from "
        f"{best.worthwhile_speedup:.2f} on"
    )
    choice = Choice.SEVERAL if sure else Choice.TRY if possible else Choice.ONE
    return Decision(choice, best.gpus if sure else 1, because)


def _usable(host: HostEvidence, sick: Mapping[str | None, Finding]) -> tuple[GpuEvidence, ...]:
    """Return the largest group of GPUs of one model that answer, are not split by MIG and not sick."""
    fit = [gpu for gpu in host.answering if not gpu.partitioned and gpu.gpu not in sick]
    names = [gpu.name for gpu in fit]
    most = max(names, key=names.count, default="")
    return tuple(gpu for gpu in fit if gpu.name == most)


def _first(report: Report, compared: tuple[GpuEvidence, ...]) -> Iterator[Finding]:
    """Yield what to fix: sick and slow links of the host, then what else matters for the compared GPUs and the host."""
    subjects = {"host", *(f"GPU {gpu.gpu}" for gpu in compared)}
    findings = [each for each in report.findings if each.severity is not Severity.INFO]
    yield from (each for each in findings if each.check.area in _LINKS)
    yield from (each for each in findings if each.check.area in _RELEVANT and each.subject in subjects)


def _left_out(
    host: HostEvidence, group: tuple[GpuEvidence, ...], sick: Mapping[str | None, Finding]
) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    names = {gpu.gpu for gpu in group}
    for gpu in (each for each in host.gpus if each.gpu not in names):
        if (finding := sick.get(gpu.gpu)) is not None:
            reason = f"critical finding {finding.check.code}: {finding.measured} ({life_cycle(finding)})"
        elif not gpu.up:
            reason = "does not answer"
        elif gpu.partitioned:
            reason = "split by MIG: give a job one of its instances, which reach no other GPU directly"
        else:
            reason = f"of another model, {gpu.name}"
        reasons.setdefault(reason, []).append(gpu.gpu)
    return reasons


def _notes(
    job: Job, host: HostEvidence, group: tuple[GpuEvidence, ...], chosen: tuple[GpuEvidence, ...]
) -> Iterator[str]:
    if job.gpus is not None and job.gpus > len(group):
        yield f"--gpus {job.gpus}: the answer is for the usable GPUs, {len(group)} of {len(host.gpus)}"
    if occupied := [gpu.gpu for gpu in chosen if _occupied(gpu)]:
        yield f"other work is on GPU {ranges(occupied)} now; the answer assumes it is gone"


def _occupied(gpu: GpuEvidence) -> bool:
    used, total = gpu.last(GPU_MEMORY_USED_BYTES) or 0.0, gpu.last(GPU_MEMORY_TOTAL_BYTES) or 0.0
    return used > total * _OCCUPIED
