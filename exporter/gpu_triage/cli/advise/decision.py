"""The rule that decides about a job, and its consequences."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpu_triage.cli.advise import rules
from gpu_triage.cli.advise.job import Job, JobKind
from gpu_triage.cli.advise.memory import Memory
from gpu_triage.cli.advise.placement import Access, Path, Placement
from gpu_triage.cli.advise.rules import Choice, Rule
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.ranges import ranges
from gpu_triage.judge.findings.finding import Finding
from gpu_triage.judge.findings.table import Area

FEED: Final = frozenset({"storage", "network", "cpu", "memory"})
"""Topics of host resources that more GPUs would only make scarcer."""


class Decision(NamedTuple):
    """What to do, and the rule behind it."""

    choice: Choice
    rule: Rule
    gpus: int  # how many to use, or to compare with one
    reasons: tuple[str, ...]


def decide(job: Job, compared: Placement | None, memory: Memory | None, fix_first: tuple[Finding, ...]) -> Decision:
    """Apply the first matching rule, in the order of `rules.RULES`; `compared` is None if there is no GPU."""
    if compared is None:
        return Decision(Choice.NO_GPU, rules.NO_USABLE_GPU, 0, ())
    count = len(compared.gpus)
    exchange = () if compared.worst is None else (_exchange(compared.gpus, compared.worst),)
    starved = tuple(f.measured for f in fix_first if starves(f))
    held_back = (f"the host cannot feed more: {'; '.join(starved)}",) if starved else ()
    if memory is not None and memory.needed_bytes > memory.usable_bytes:
        return _too_large_for_one(job, memory, count, (*held_back, *exchange))
    if compared.worst is None:
        alone = "one GPU was asked for" if job.gpus == 1 else "there is only one usable GPU"
        return Decision(Choice.ONE, rules.ONE_USABLE_GPU, 1, (*held_back, alone))
    if starved:
        return Decision(Choice.ONE, rules.HOST_STARVED, 1, (*held_back, *exchange))
    if job.kind is JobKind.INFERENCE:
        tail = "split over GPUs, every request waits for their exchange, and for the slowest of them: tails get longer"
        return Decision(Choice.ONE, rules.INFERENCE_FITS, 1, (tail, *exchange))
    return _by_size(job, count, compared.worst, exchange)


def _too_large_for_one(job: Job, memory: Memory, count: int, reasons: tuple[str, ...]) -> Decision:
    fewest = memory.gpus_needed
    if memory.missing_bytes:
        return Decision(Choice.TOO_LARGE, rules.EXCEEDS_HOST, 0, reasons)
    if job.kind is JobKind.INFERENCE and job.gpus is None:
        # Tensor parallelism divides the attention heads evenly, which always works for powers of two.
        even = 1 << (fewest - 1).bit_length()
        use = even if even <= memory.gpus else fewest
    else:
        use = max(fewest, min(count, job.batch_size) if job.kind is JobKind.TRAINING else count)
    lines = [f"at least {fewest} GPUs are needed to hold it", *reasons]
    replicas = memory.gpus // use
    if job.kind is JobKind.INFERENCE and replicas > 1:
        lines.append(f"the usable GPUs hold {replicas} replicas of {use} GPUs")
    if job.kind is JobKind.TRAINING and job.batch_size < use:
        lines.insert(
            1,
            f"a batch of {job.batch_size} has less than one sample per GPU: use tensor or pipeline parallelism, ZeRO "
            "and FSDP give each GPU samples of its own",
        )
    return Decision(Choice.SHARD, rules.EXCEEDS_GPU, use, tuple(lines))


def _by_size(job: Job, count: int, path: Path, exchange: tuple[str, ...]) -> Decision:
    band = job.band
    choice = band.through_host_memory if path.access is Access.HOST_MEMORY else band.direct
    share = job.batch_size / count
    reasons = (
        f"each step exchanges the gradients, {job.parameters * 4 / 1e6:,.0f} MB in FP32",
        *exchange,
        f"a batch of {job.batch_size} over {count} GPUs is {share:.3g} per GPU",
    )
    if choice is Choice.ONE or share >= rules.SAMPLES_PER_GPU:
        return Decision(choice, band.rule, 1 if choice is Choice.ONE else count, reasons)
    if job.batch_size < rules.MEASURED_GPUS:
        return Decision(Choice.ONE, rules.BATCH_PER_GPU, 1, reasons)
    enough = job.batch_size // rules.SAMPLES_PER_GPU
    wanted = f"a batch of {count * rules.SAMPLES_PER_GPU} would feed all {count}"
    if choice is Choice.SEVERAL and enough >= rules.MEASURED_GPUS:
        return Decision(choice, rules.BATCH_PER_GPU, enough, (*reasons, wanted))
    fewer = max(rules.MEASURED_GPUS, enough)
    return Decision(Choice.MEASURE, rules.BATCH_PER_GPU, fewer, (*reasons, wanted))


def _exchange(gpus: tuple[GpuEvidence, ...], path: Path) -> str:
    return f"GPU {ranges(gpu.gpu for gpu in gpus)} exchange data {path}"


def starves(finding: Finding) -> bool:
    """Whether the finding means that the host cannot feed its GPUs."""
    return finding.check.area is Area.HOST and finding.check.topic in FEED
