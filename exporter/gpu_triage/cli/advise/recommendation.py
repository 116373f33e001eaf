"""A training job on a measured host: how fast groups of GPUs would do its steps, what to do, and what to fix first."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from gpu_triage.cli.advise.paths import HOST_MEMORY, NVLINK, PEER, Path, Range, paths_between
from gpu_triage.documents import quoted
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.findings.finding import Finding
from gpu_triage.judge.findings.table import Area, Severity
from gpu_triage.judge.findings.verdicts import Words
from gpu_triage.judge.report.entries import life_cycle
from gpu_triage.judge.report.report import Report
from gpu_triage.options.values import TextType
from gpu_triage.read.gpu.device_memory import GPU_MEMORY_TOTAL_BYTES

BACKWARD_SHARE: Final = 2 / 3
"""Share of the compute time, the backward pass, behind which the exchange is hidden in the best case."""
BUCKET_BYTES: Final = 25 * 2**20
"""Gradients that are exchanged together. The last bucket is complete when the backward pass ends: it is not hidden."""
WORTHWHILE: Final = 0.7  # efficiency from which more GPUs are worth their cost: a convention, not a measurement

ASSUMPTIONS: Final[Mapping[str, Range | float]] = {
    "nvlink_share": NVLINK.share,
    "pcie_peer_share": PEER.share,
    "host_memory_share": HOST_MEMORY.share,
    "fixed_seconds_direct": PEER.fixed_seconds,
    "fixed_seconds_host_memory": HOST_MEMORY.fixed_seconds,
    "backward_share": BACKWARD_SHARE,
    "bucket_bytes": BUCKET_BYTES,
    "worthwhile_efficiency": WORTHWHILE,
}
"""docs/advise.md lists the same values with what they mean and their sources."""

_ALL_REDUCE: Final = 2
"""A ring all-reduce sends each byte twice, less the share that each GPU already has: reduce-scatter and all-gather
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)."""
_COUNT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)(?:[eE]\+?([0-9]{1,2})|([KMBTkmbt]))?")
_UNITS: Final = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_FEWEST_PARAMETERS, _MOST_PARAMETERS = 1e3, 1e15
_BITS_PER_BYTE: Final = 8


@dataclass(frozen=True, slots=True)
class Job:
    """A training job in data parallelism: each GPU has a copy of the model, and all exchange their gradients."""

    parameters: float  # that are trained
    gradient_bits: int = 32  # 32 with PyTorch's autocast, which keeps weights and gradients in FP32
    step_seconds: float | None = None  # of one GPU; None if not given
    grow_batch: bool = False  # each GPU has the batch of one; otherwise they share it
    gpus: int | None = None  # most GPUs to use; None for all of one model

    @property
    def gradient_bytes(self) -> float:
        return self.parameters * self.gradient_bits / _BITS_PER_BYTE


@dataclass(frozen=True, slots=True)
class Estimate:
    """The steps of a job on the GPUs of a path.

    A step takes compute + exchange that is not hidden + fixed cost. Efficiency is compute / step, and the group is
    number of GPUs x efficiency times as fast as one. Every part but the fixed cost grows with the model if the step
    time does, so a larger model with a longer step never gets fewer GPUs.
    """

    job: Job
    path: Path

    @property
    def gpus(self) -> int:
        return len(self.path.gpus)

    @property
    def moved_bytes(self) -> float:
        """Bytes that each GPU sends, and receives, per step."""
        return self.job.gradient_bytes * _ALL_REDUCE * (self.gpus - 1) / self.gpus

    @property
    def exchange_seconds(self) -> Range | None:
        """Time of the exchange; None if the bandwidth is unknown."""
        bandwidth = self.path.bandwidth
        return None if bandwidth is None else Range(*(self.moved_bytes / each for each in bandwidth))

    @property
    def compute_seconds(self) -> float | None:
        """Time that each GPU computes per step, if half of the batch takes half of the time; None if unknown."""
        step = self.job.step_seconds
        return None if step is None else step / self._split

    @property
    def speedup(self) -> Range | None:
        """How many times as many samples per second as one GPU; None if unknown."""
        compute, exchange = self.compute_seconds, self.exchange_seconds
        if compute is None or exchange is None:
            return None
        # The part of the exchange that the backward pass does not hide.
        least = max(exchange.best - compute * BACKWARD_SHARE, self._last_bucket(exchange.best))
        fixed, exposed = self.path.access.fixed_seconds, (exchange.worst, least)
        return Range(*(self.gpus * compute / (compute + x + f) for x, f in zip(exposed, fixed, strict=True)))

    @property
    def worthwhile_speedup(self) -> float:
        """Speedup from which this group is worth its cost."""
        return self.gpus * WORTHWHILE

    @property
    def pays(self) -> bool:
        """Whether it is worth its cost even in the worst case."""
        return self.speedup is not None and self.speedup.worst >= self.worthwhile_speedup

    @property
    def may_pay(self) -> bool:
        return self.speedup is not None and self.speedup.best >= self.worthwhile_speedup

    @property
    def worthwhile_seconds(self) -> Range | None:
        """Step time of one GPU from which this group is worth its cost; None if unknown."""
        exchange, fixed = self.exchange_seconds, self.path.access.fixed_seconds
        if exchange is None:
            return None
        per_cost = WORTHWHILE / (1 - WORTHWHILE)  # compute for each second of cost
        worst = per_cost * (exchange.worst + fixed.worst)
        # What remains of the exchange in the best case is the larger of two: so is the compute that it needs.
        hidden = 1 + per_cost * BACKWARD_SHARE
        best = per_cost * max((exchange.best + fixed.best) / hidden, self._last_bucket(exchange.best) + fixed.best)
        return Range(worst * self._split, best * self._split)

    def _last_bucket(self, exchange_seconds: float) -> float:
        return exchange_seconds * min(1.0, BUCKET_BYTES / self.job.gradient_bytes)

    @property
    def _split(self) -> int:
        return 1 if self.job.grow_batch else self.gpus


def _parse_count(text: str) -> float:
    count = 0.0
    if match := _COUNT.fullmatch(text):
        count = float(match[1]) * (10.0 ** int(match[2]) if match[2] else _UNITS.get((match[3] or "").upper(), 1.0))
        if 0 < count < _FEWEST_PARAMETERS:
            raise ValueError(f"{quoted(text)} has no unit; write {match[1]}M for millions or {match[1]}B for billions")
    if not 0 < count <= _MOST_PARAMETERS:
        raise ValueError(f"{quoted(text)} isn't a parameter count; write 350M, 3B or 7e9")
    return count


PARAMETERS: Final = TextType("COUNT", _parse_count)
"""A number of parameters such as ``350M``, ``3B`` or ``7e9``; a bare ``7`` probably lacks its unit."""


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
    critical = [each for each in reversed(report.findings) if each.severity is Severity.CRITICAL and not each.accepted]
    # Of several findings of a GPU, the first of the most confirmed ones gives the reason.
    sick = {finding.gpu: finding for finding in sorted(critical, key=lambda finding: finding.state)}
    # For a job on one GPU, prefer GPUs with the best verdict, then free ones.
    group = tuple(sorted(_usable(host, sick), key=lambda gpu: (verdicts[gpu.gpu].rank, _occupied(gpu))))
    count = min(len(group), job.gpus or len(group))
    between = paths_between(host, group)
    host_codes = dict.fromkeys(finding.check.code for finding in critical if finding.subject == "host")
    unfit = ", ".join(code for code in host_codes if code not in _ABOUT_GPUS)
    first = tuple(_first(report, between.nearest(group, count)))
    starved = tuple(each.measured for each in first if each.check.area is Area.HOST and each.check.topic in _FEED)
    sizes = (1 << power for power in range(1, count.bit_length()))
    estimates = () if unfit else tuple(Estimate(job, between.of(between.nearest(group, size))) for size in sizes)
    decision = decide(job, estimates, count, starved)
    if unfit:
        decision = Decision(Choice.NO_GPU, 0, f"this comes before any job: {unfit}")
    chosen = between.nearest(group, decision.gpus)
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
    """Return the largest group of fit GPUs of one model."""
    fit = [gpu for gpu in host.gpus if not _unfit(gpu, sick)]
    names = [gpu.name for gpu in fit]
    most = max(names, key=names.count, default="")
    return tuple(gpu for gpu in fit if gpu.name == most)


def _unfit(gpu: GpuEvidence, sick: Mapping[str | None, Finding]) -> str:
    """Return why a GPU gets no job; "" if it may get one."""
    if (finding := sick.get(gpu.gpu)) is not None:
        return f"critical finding {finding.check.code}: {finding.measured} ({life_cycle(finding)})"
    if not gpu.up:
        return "does not answer"
    return "split by MIG: give a job one of its instances, which reach no other GPU directly" if gpu.partitioned else ""


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
    for gpu in (each for each in host.gpus if each not in group):
        reasons.setdefault(_unfit(gpu, sick) or f"of another model, {gpu.name}", []).append(gpu.gpu)
    return reasons


def _notes(
    job: Job, host: HostEvidence, group: tuple[GpuEvidence, ...], chosen: tuple[GpuEvidence, ...]
) -> Iterator[str]:
    if job.gpus is not None and job.gpus > len(group):
        yield f"--gpus {job.gpus}: the answer is for the usable GPUs, {len(group)} of {len(host.gpus)}"
    if occupied := [gpu.gpu for gpu in chosen if _occupied(gpu)]:
        yield f"other work is on GPU {ranges(occupied)} now; the answer assumes it is gone"


def _occupied(gpu: GpuEvidence) -> bool:
    return (gpu.held_bytes or 0.0) > (gpu.last(GPU_MEMORY_TOTAL_BYTES) or 0.0) * _OCCUPIED
