"""One GPU or several for a job on this host: a recommendation with its reasons, and where the evidence ends.

The evidence is a published study of one GPU against two in data-parallel training: 120 hours on two GeForce RTX 4070 Ti
SUPER (PCIe 4.0 x16, host bridge, no peer access, TensorFlow 2.19, NCCL 2.18), fully connected networks of 258 K and
6.9 M parameters at batch sizes of 8 to 128, and recurrent and transformer models of 0.2 M to 3 M. Its times by phase do
not add up to its times by step, so only its throughputs are used here. Efficiency is the speedup divided by the number
of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from gpu_triage.diagnosis.advise.placement import Access, Path, Placement, nearest, siblings
from gpu_triage.diagnosis.evidence.gpu import GpuEvidence
from gpu_triage.diagnosis.evidence.host import HostEvidence
from gpu_triage.diagnosis.findings.finding import Finding
from gpu_triage.diagnosis.findings.table import Area, Severity
from gpu_triage.diagnosis.findings.verdicts import Verdict
from gpu_triage.diagnosis.report.report import Report
from gpu_triage.diagnosis.report.summaries import ranges
from gpu_triage.gpu.memory import GPU_MEMORY_TOTAL_BYTES

_SOURCE: Final = "measured on two RTX 4070 Ti SUPER, PCIe 4.0 x16, no peer access, data-parallel training"
_MEASURED_GPUS: Final = 2
_LARGEST_MEASURED: Final = 6_900_000
"""Parameters of the largest model measured; what is said of larger ones is its author's extrapolation."""

_WORTHWHILE_BATCH: Final = 64  # batch size from which several GPUs may pay
_WORTHWHILE_EFFICIENCY: Final = 0.7  # efficiency below which a second GPU was judged not to be worth its price
_FEED: Final = frozenset({"storage", "network", "cpu", "memory"})
"""Topics of resources that more GPUs would only make scarcer."""

_RELEVANT: Final = frozenset({Area.DRIVER, Area.HEALTH, Area.CLOCKS, Area.PCIE, Area.PEERS, Area.HOST})


_INFERENCE_REASONS: Final = (
    "the model fits on one GPU: a replica on each serves more requests without any exchange between them",
    "split over GPUs, every request would wait for their exchange, and for the slowest of them: tails get longer",
)


class Choice(Enum):
    """What to do."""

    ONE = "one"
    SEVERAL = "several"
    MEASURE = "measure"
    SHARD = "shard"


class SizeBand(NamedTuple):
    """What the study says of models of fewer than so many parameters."""

    below: float
    words: str
    through_host_memory: Choice
    direct: Choice  # the choice on such paths, for a batch that is large enough
    efficiency: tuple[float, float] | None
    """Lowest and highest scaling efficiency of two GPUs measured; None where nothing was."""


BANDS: Final = (
    # 258 K parameters: speedups of 0.73 to 0.86; recurrent models of 0.2 to 0.5 M lost 20 to 28 %.
    SizeBand(1e6, "several GPUs never pay", Choice.ONE, Choice.ONE, (0.36, 0.43)),
    # Transformers of 1.5 to 3 M lost 15 to 20 %; a loss of 15 to 25 % is given as typical.
    SizeBand(5e6, "one GPU is faster as a rule", Choice.ONE, Choice.ONE, (0.37, 0.43)),
    # 6.9 M parameters: speedups of 0.78 to 0.90.
    SizeBand(10e6, "near break-even", Choice.ONE, Choice.MEASURE, (0.39, 0.45)),
    SizeBand(50e6, "several GPUs may pay", Choice.MEASURE, Choice.SEVERAL, None),
    SizeBand(float("inf"), "several GPUs should pay", Choice.SEVERAL, Choice.SEVERAL, None),
)


class JobKind(Enum):
    """What the job does."""

    TRAINING = "training"
    INFERENCE = "inference"

    @property
    def bytes_per_parameter(self) -> int:
        """Of training: weights, gradients and two moments of Adam in FP32; of inference: weights in FP16 or BF16.

        Activations and caches come on top.
        """
        return 16 if self is JobKind.TRAINING else 2


class Job(NamedTuple):
    """What is to run: `batch_size` is of all GPUs together, `gpus` how many it would like; None for all alike."""

    parameters: float
    batch_size: int
    gpus: int | None
    kind: JobKind

    @property
    def band(self) -> SizeBand:
        """What is said of models of this size."""
        return next(each for each in BANDS if self.parameters < each.below)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer."""

    choice: Choice
    headline: str  # the choice as a sentence
    considered: int  # how many GPUs were compared with one
    gpus: tuple[str, ...]  # indices of those to use
    reasons: tuple[str, ...]  # most important first
    # Lowest and highest scaling efficiency to expect of several, 0-1; None where nobody measured.
    efficiency: tuple[float, float] | None
    source: str  # where that comes from; "" without it
    fix_first: tuple[Finding, ...]  # findings to mend before any comparison means something
    evidence_ends: tuple[str, ...]  # what is not known


def recommend(job: Job, host: HostEvidence, report: Report) -> Recommendation:
    """The recommendation for a job on a host that was looked at."""
    group = siblings(host)
    count = len(group) if job.gpus is None else job.gpus
    ailing = {gpu.gpu for gpu in report.gpus if gpu.verdict is Verdict.DRAIN}
    placement = nearest(host, count, ailing)
    path = None if placement is None else placement.worst
    used = placement or nearest(host, 1, ailing)
    subjects = {"host", *(f"GPU {gpu.gpu}" for gpu in (used.gpus if used is not None else ()))}
    fix_first = tuple(
        finding
        for finding in report.findings
        if finding.subject in subjects
        and finding.check.area in _RELEVANT
        and (finding.check.severity is not Severity.INFO or finding.check.topic in _FEED)
    )
    choice, reasons = _decide(job, group, placement, count, fix_first)
    if choice is not Choice.ONE and placement is not None:
        gpus = tuple(gpu.gpu for gpu in placement.gpus)
    else:
        # The first GPU with the least against it.
        names = {gpu.gpu for gpu in group}
        gpus = tuple(g.gpu for g in sorted(report.gpus, key=lambda each: each.verdict.rank) if g.gpu in names)[:1]
    alike = job.kind is JobKind.TRAINING and path is not None and path.access is Access.HOST_MEMORY
    measured = job.band.efficiency if alike and count == _MEASURED_GPUS else None
    return Recommendation(
        choice=choice,
        headline=_headline(choice, job, gpus, count, len(group)),
        considered=count,
        gpus=gpus,
        reasons=tuple(reasons),
        efficiency=measured,
        source="" if measured is None else _SOURCE,
        fix_first=fix_first,
        evidence_ends=tuple(_unknown(job, path, count)),
    )


def _decide(
    job: Job,
    group: tuple[GpuEvidence, ...],
    placement: Placement | None,
    count: int,
    fix_first: tuple[Finding, ...],
) -> tuple[Choice, list[str]]:
    memory = _memory_reason(job, group)
    if placement is None or placement.worst is None:
        wanted = f"{count} GPUs were asked for; of one model, whole and answering, there are {len(group)}"
        alone = "there is only one GPU to compare" if count <= 1 else wanted
        return (Choice.SHARD if memory else Choice.ONE), [*memory, alone]
    exchange = f"GPU {ranges(gpu.gpu for gpu in placement.gpus)} exchange data {placement.worst}"
    if memory:
        return Choice.SHARD, [*memory, exchange]
    if job.kind is JobKind.INFERENCE:
        return Choice.ONE, [*_INFERENCE_REASONS, exchange]
    reasons = list(_training_reasons(job, count, exchange))
    starved = [f.measured for f in fix_first if f.check.area is Area.HOST and f.check.topic in _FEED]
    if starved:
        return Choice.ONE, [f"the host cannot feed more: {'; '.join(starved)}", *reasons]
    choice = job.band.through_host_memory if placement.worst.access is Access.HOST_MEMORY else job.band.direct
    small = choice is Choice.SEVERAL and job.batch_size < _WORTHWHILE_BATCH
    return Choice.MEASURE if small else choice, reasons


def _memory_reason(job: Job, group: tuple[GpuEvidence, ...]) -> list[str]:
    """Why the model does not fit on one GPU; nothing if it may."""
    totals = [total for gpu in group if (total := gpu.last(GPU_MEMORY_TOTAL_BYTES)) is not None]
    each = job.kind.bytes_per_parameter
    needed = job.parameters * each
    if not totals or needed <= min(totals):
        return []
    least, most = f"{needed / 1024**3:.0f} GiB", f"{min(totals) / 1024**3:.0f} GiB"
    return [
        f"the model needs at least {least} ({each} bytes a parameter, activations not counted), one GPU has {most}",
        "memory of several GPUs adds up only where the model is split over them",
    ]


def _training_reasons(job: Job, gpus: int, exchange: str) -> Iterator[str]:
    band = job.band
    yield f"models of {_count(job.parameters)} parameters: {band.words}"
    yield f"{exchange}; each step exchanges the gradients, {job.parameters * 4 / 1e6:.0f} MB in FP32"
    if job.batch_size < _WORTHWHILE_BATCH:
        share = job.batch_size / gpus
        yield f"a batch of {job.batch_size} leaves {share:.0f} a GPU; below {_WORTHWHILE_BATCH} little is gained"
    if band.efficiency is not None:
        yield f"a second GPU is held to pay from an efficiency of {_WORTHWHILE_EFFICIENCY:.0%} on"


def _unknown(job: Job, path: Path | None, count: int) -> Iterator[str]:
    if job.kind is JobKind.INFERENCE:
        yield "nothing here was measured for inference: compare p50, p95 and p99 of both ways under your own traffic"
        return
    if job.parameters > _LARGEST_MEASURED:
        largest = _count(_LARGEST_MEASURED)
        yield f"nothing was measured beyond {largest} parameters: for larger models it is extrapolated"
    if count > _MEASURED_GPUS:
        yield f"nothing was measured with more than {_MEASURED_GPUS} GPUs"
    if path is not None and path.access is not Access.HOST_MEMORY:
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
    match choice:
        case Choice.SEVERAL:
            return f"use {len(gpus)} GPUs: {where}"
        case Choice.MEASURE:
            return f"measure one GPU against {count} ({where}) before you decide"
        case Choice.SHARD:
            several = f" ({where})" if len(gpus) > 1 else ""
            return f"one GPU is too small: take a larger one, or split the model over several{several}"
        case Choice.ONE:
            others = "a replica on each GPU" if job.kind is JobKind.INFERENCE else "other jobs on the other GPUs"
            return f"use one GPU, {where}" + (f", and run {others}" if there > 1 else "")


def _count(parameters: float) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if parameters >= size:
            return f"{parameters / size:.3g} {unit}"
    return f"{parameters:.0f}"
