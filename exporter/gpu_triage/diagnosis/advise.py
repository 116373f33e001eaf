"""One GPU or several for a job on this host: a recommendation with its reasons, and where the evidence ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.calm import ranges
from gpu_triage.diagnosis.codes import Area, Severity
from gpu_triage.diagnosis.findings import Finding
from gpu_triage.diagnosis.placement import Access, Placement, nearest, siblings
from gpu_triage.diagnosis.report import Report
from gpu_triage.diagnosis.scaling_evidence import (
    LARGEST_MEASURED,
    MEASURED_GPUS,
    SOURCE,
    WORTHWHILE_BATCH,
    WORTHWHILE_EFFICIENCY,
    Band,
    band_of,
)
from gpu_triage.diagnosis.verdicts import Verdict
from gpu_triage.diagnosis.view import GpuView, HostView

TRAINING_BYTES_PER_PARAMETER: Final = 16
"""Weights, gradients and two moments of Adam in FP32; activations come on top."""

INFERENCE_BYTES_PER_PARAMETER: Final = 2
"""Weights in FP16 or BF16; activations and caches come on top."""

GRADIENT_BYTES_PER_PARAMETER: Final = 4

_FEED: Final = frozenset({"storage", "network", "cpu", "memory"})
"""Topics of resources that more GPUs would only make scarcer."""

_RELEVANT: Final = frozenset({Area.DRIVER, Area.HEALTH, Area.CLOCKS, Area.PCIE, Area.PEERS, Area.HOST})


class Workload(Enum):
    """What the job does."""

    TRAINING = "training"
    INFERENCE = "inference"


class Choice(Enum):
    """What to do."""

    ONE = "one"
    SEVERAL = "several"
    MEASURE = "measure"
    SHARD = "shard"


@dataclass(frozen=True, slots=True)
class Job:
    """What is to run.

    Attributes:
        parameters: of the model.
        batch_size: samples of a step, of all GPUs together.
        gpus: how many it would like; None for all that are alike.
        workload: what it does.
    """

    parameters: float
    batch_size: int
    gpus: int | None
    workload: Workload


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer.

    Attributes:
        choice: what to do.
        headline: the same, as a sentence.
        considered: how many GPUs were compared with one.
        gpus: indices of those to use.
        reasons: why, most important first.
        efficiency: lowest and highest scaling efficiency to expect of several, 0-1; None where nobody measured.
        source: where that comes from; "" without it.
        fix_first: findings to mend before any comparison means something.
        evidence_ends: what is not known.
    """

    choice: Choice
    headline: str
    considered: int
    gpus: tuple[str, ...]
    reasons: tuple[str, ...]
    efficiency: tuple[float, float] | None
    source: str
    fix_first: tuple[Finding, ...]
    evidence_ends: tuple[str, ...]


def recommend(job: Job, host: HostView, report: Report) -> Recommendation:
    """The recommendation for a job on a host that was looked at."""
    group = siblings(host)
    count = len(group) if job.gpus is None else job.gpus
    ailing = {verdict.gpu for verdict in report.gpus if verdict.verdict is Verdict.DRAIN}
    placement = nearest(host, count, ailing)
    used = placement or nearest(host, 1, ailing)
    indices = {gpu.gpu for gpu in used.gpus} if used is not None else set[str]()
    fix_first = tuple(f for f in report.findings if _matters(f, indices))
    choice, reasons = _decide(job, host, placement, count, fix_first)
    several = choice is Choice.SEVERAL or choice is Choice.SHARD or choice is Choice.MEASURE
    gpus = tuple(gpu.gpu for gpu in placement.gpus) if several and placement is not None else _best(report, group)
    measured = _efficiency(job, placement)
    return Recommendation(
        choice=choice,
        headline=_headline(choice, job, gpus, count, len(group)),
        considered=count,
        gpus=gpus,
        reasons=tuple(reasons),
        efficiency=measured,
        source="" if measured is None else SOURCE,
        fix_first=fix_first,
        evidence_ends=tuple(_unknown(job, placement, count)),
    )


def _matters(finding: Finding, gpus: set[str]) -> bool:
    concerned = finding.gpu in gpus or finding.of_host
    serious = finding.check.severity is not Severity.INFO or finding.check.topic in _FEED
    return concerned and serious and finding.check.area in _RELEVANT


def _best(report: Report, group: tuple[GpuView, ...]) -> tuple[str, ...]:
    """The first GPU with the least against it."""
    names = {gpu.gpu for gpu in group}
    ranked = sorted((v for v in report.gpus if v.gpu in names), key=lambda verdict: verdict.verdict.rank)
    return tuple(verdict.gpu for verdict in ranked[:1])


def _decide(
    job: Job, host: HostView, placement: Placement | None, count: int, fix_first: tuple[Finding, ...]
) -> tuple[Choice, list[str]]:
    memory = _memory_reason(job, host)
    if placement is None or placement.worst is None:
        there = len(siblings(host))
        reason = f"{count} GPUs were asked for; of one model, whole and answering, there are {there}"
        alone = "there is only one GPU to compare" if count <= 1 else reason
        return (Choice.SHARD if memory else Choice.ONE), [*memory, alone]
    if memory:
        return Choice.SHARD, [*memory, _path_reason(placement)]
    if job.workload is Workload.INFERENCE:
        return Choice.ONE, _inference_reasons(placement)
    starved = [f for f in fix_first if f.check.area is Area.HOST and f.check.topic in _FEED]
    if starved:
        measured = "; ".join(f.measured for f in starved)
        return Choice.ONE, [f"the host cannot feed more: {measured}", *_training_reasons(job, placement)]
    return _train(job, placement), _training_reasons(job, placement)


def _train(job: Job, placement: Placement) -> Choice:
    band = band_of(job.parameters).band
    direct = placement.worst is not None and placement.worst.access is not Access.HOST_MEMORY
    if band in (Band.NEVER, Band.SINGLE):
        return Choice.ONE
    if band is Band.OPEN:
        return Choice.MEASURE if direct else Choice.ONE
    if job.batch_size < WORTHWHILE_BATCH or (band is Band.CONSIDER and not direct):
        return Choice.MEASURE
    return Choice.SEVERAL


def _memory_reason(job: Job, host: HostView) -> list[str]:
    """Why the model does not fit on one GPU; nothing if it may."""
    totals = [total for gpu in siblings(host) if (total := gpu.last(catalogue.MEMORY_TOTAL)) is not None]
    each = TRAINING_BYTES_PER_PARAMETER if job.workload is Workload.TRAINING else INFERENCE_BYTES_PER_PARAMETER
    needed = job.parameters * each
    if not totals or needed <= min(totals):
        return []
    least, most = f"{needed / 1024**3:.0f} GiB", f"{min(totals) / 1024**3:.0f} GiB"
    return [
        f"the model needs at least {least} ({each} bytes a parameter, activations not counted), one GPU has {most}",
        "memory of several GPUs adds up only where the model is split over them",
    ]


def _path_reason(placement: Placement) -> str:
    indices = ranges(gpu.gpu for gpu in placement.gpus)
    return f"GPU {indices} exchange data {placement.worst}"


def _inference_reasons(placement: Placement) -> list[str]:
    return [
        "the model fits on one GPU: a replica on each serves more requests without any exchange between them",
        "split over GPUs, every request would wait for their exchange, and for the slowest of them: tails get longer",
        _path_reason(placement),
    ]


def _training_reasons(job: Job, placement: Placement) -> list[str]:
    size = band_of(job.parameters)
    gradients = job.parameters * GRADIENT_BYTES_PER_PARAMETER / 1e6
    reasons = [
        f"models of {_count(job.parameters)} parameters: {size.band.value}",
        f"{_path_reason(placement)}; each step exchanges the gradients, {gradients:.0f} MB in FP32",
    ]
    if job.batch_size < WORTHWHILE_BATCH:
        share = job.batch_size / len(placement.gpus)
        reasons.append(
            f"a batch of {job.batch_size} leaves {share:.0f} a GPU; below {WORTHWHILE_BATCH} little is gained"
        )
    if size.efficiency is not None:
        reasons.append(f"a second GPU is held to pay from an efficiency of {WORTHWHILE_EFFICIENCY:.0%} on")
    return reasons


def _efficiency(job: Job, placement: Placement | None) -> tuple[float, float] | None:
    """What was measured on such a path; nothing was with other numbers of GPUs or for inference."""
    if placement is None or placement.worst is None or job.workload is Workload.INFERENCE:
        return None
    alike = len(placement.gpus) == MEASURED_GPUS and placement.worst.access is Access.HOST_MEMORY
    return band_of(job.parameters).efficiency if alike else None


def _unknown(job: Job, placement: Placement | None, count: int) -> Iterator[str]:
    if job.workload is Workload.INFERENCE:
        yield "nothing here was measured for inference: compare p50, p95 and p99 of both ways under your own traffic"
        return
    if job.parameters > LARGEST_MEASURED:
        yield f"nothing was measured beyond {_count(LARGEST_MEASURED)} parameters: for larger models it is extrapolated"
    if count > MEASURED_GPUS:
        yield f"nothing was measured with more than {MEASURED_GPUS} GPUs"
    if placement is not None and placement.worst is not None and placement.worst.access is not Access.HOST_MEMORY:
        yield (
            "the measurements had neither peer access nor NVLink: exchange is cheaper here, so several GPUs may pay "
            "earlier; how much earlier nobody measured"
        )
    yield (
        "only data-parallel training of small dense, recurrent and transformer models was measured: before you decide, "
        "measure the step time of one GPU and of several with the same data and versions"
    )


def _headline(choice: Choice, job: Job, gpus: tuple[str, ...], count: int, there: int) -> str:
    where = f"GPU {ranges(gpus)}" if gpus else "no GPU"
    if choice is Choice.SEVERAL:
        return f"use {len(gpus)} GPUs: {where}"
    if choice is Choice.MEASURE:
        return f"measure one GPU against {count} ({where}) before you decide"
    if choice is Choice.SHARD:
        return "one GPU is too small: take a larger one, or split the model over several" + (
            f" ({where})" if len(gpus) > 1 else ""
        )
    others = "a replica on each GPU" if job.workload is Workload.INFERENCE else "other jobs on the other GPUs"
    return f"use one GPU, {where}" + (f", and run {others}" if there > 1 else "")


def _count(parameters: float) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if parameters >= size:
            return f"{parameters / size:.3g} {unit}"
    return f"{parameters:.0f}"
