"""What to do with a job, from its memory and its exchange."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gpu_triage.cli.advise.assumptions import SHORT_STEP, WORTHWHILE
from gpu_triage.cli.advise.exchange import Exchange
from gpu_triage.cli.advise.job import Job, Workload
from gpu_triage.cli.advise.memory import Memory, smallest_group


class Choice(Enum):
    """The course of action."""

    ONE = "one"
    SEVERAL = "several"
    MEASURE = "measure"  # the arithmetic does not settle it
    DEPENDS = "depends"  # on the step time, which is not known
    SPLIT = "split"  # one GPU is too small
    TOO_LARGE = "too_large"
    NO_GPU = "no_gpu"


class Decision(NamedTuple):
    """What to do, with how many GPUs (for MEASURE and DEPENDS: how many to compare with one), and why."""

    choice: Choice
    gpus: int
    because: str


def decide(
    job: Job, memory: Memory | None, exchanges: tuple[Exchange, ...], count: int, starved: tuple[str, ...]
) -> Decision:
    """Decide between one and `count` usable GPUs.

    Args:
        job: the job.
        memory: None if no GPU reports its memory.
        exchanges: of copies of the model, one for each group size.
        count: number of usable GPUs, after `--gpus`.
        starved: why the host cannot feed more GPUs.
    """
    if not count:
        return Decision(Choice.NO_GPU, 0, "a job needs a GPU that answers, is whole and has no critical finding")
    if memory is not None and not memory.fits:
        return _too_large_for_one(job, memory)
    if count == 1:
        return Decision(Choice.ONE, 1, "one GPU was asked for" if job.gpus == 1 else "only one GPU is usable")
    if starved:
        return Decision(Choice.ONE, 1, f"the host cannot feed more: {'; '.join(starved)}")
    if job.workload is Workload.INFERENCE:
        return Decision(Choice.ONE, 1, "the model fits on one GPU: each replica answers alone, without an exchange")
    return _by_exchange(exchanges)


def _too_large_for_one(job: Job, memory: Memory) -> Decision:
    size = smallest_group(job, memory)
    if size is None:
        return Decision(Choice.TOO_LARGE, 0, "no group of the usable GPUs holds the model")
    return Decision(Choice.SPLIT, size, "one GPU does not hold the model, and copies of it need as much each")


def _by_exchange(exchanges: tuple[Exchange, ...]) -> Decision:
    pair = exchanges[0]
    if pair.seconds is None:
        return Decision(Choice.MEASURE, pair.gpus, "the speed of the links is not reported, so no time can be computed")
    if pair.compute_seconds is None:
        return Decision(Choice.DEPENDS, pair.gpus, "the time of a step on one GPU decides: give it with --step-time")
    return _by_efficiency(exchanges)


def _by_efficiency(exchanges: tuple[Exchange, ...]) -> Decision:
    certain = [each for each in exchanges if _at_least_worthwhile(each, 0)]
    possible = [each for each in exchanges if _at_least_worthwhile(each, 1)]
    least = f"{WORTHWHILE.value:.0%}"
    if not possible:
        return Decision(Choice.ONE, 1, f"no group reaches {least} efficiency, even if all that can be hidden is hidden")
    if not certain:
        words = f"{least} efficiency depends on how much of the exchange is hidden behind the backward pass"
        return Decision(Choice.MEASURE, possible[-1].gpus, words)
    best = certain[-1]
    if (best.compute_seconds or 0.0) < SHORT_STEP.value:
        words = f"steps below {SHORT_STEP.value * 1000:.0f} ms suffer from overheads that are not in this arithmetic"
        return Decision(Choice.MEASURE, best.gpus, words)
    return Decision(Choice.SEVERAL, best.gpus, f"the largest group with at least {least} efficiency, nothing hidden")


def _at_least_worthwhile(exchange: Exchange, bound: int) -> bool:
    efficiency = exchange.efficiency
    return efficiency is not None and efficiency[bound] >= WORTHWHILE.value
