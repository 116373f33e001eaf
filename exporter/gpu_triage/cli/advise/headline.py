"""The answer in one sentence."""

from __future__ import annotations

from gpu_triage.cli.advise.assumptions import WORTHWHILE
from gpu_triage.cli.advise.decision import Choice
from gpu_triage.cli.advise.job import Job, Workload
from gpu_triage.cli.advise.recommendation import Recommendation
from gpu_triage.cli.advise.units import gib, time
from gpu_triage.judge.evidence.wording import ranges


def headline(job: Job, answer: Recommendation) -> str:
    """Return what to do, as a sentence without its full stop."""
    if answer.unfit:
        codes = ", ".join(dict.fromkeys(finding.check.code for finding in answer.unfit))
        return f"run nothing on this host until this is fixed: {codes}"
    gpus = f"GPU {ranges(answer.gpus)}" if answer.gpus else ""
    return {
        Choice.NO_GPU: "run nothing on this host: it has no usable GPU",
        Choice.TOO_LARGE: f"the model does not fit on this host: {_missing(answer)}",
        Choice.SPLIT: f"split the model over {len(answer.gpus)} GPUs, {gpus}{_more_replicas(answer)}",
        Choice.MEASURE: f"measure one GPU against {len(answer.gpus)} ({gpus}) before you decide",
        Choice.DEPENDS: _depends(answer),
        Choice.SEVERAL: f"use {len(answer.gpus)} GPUs: {gpus}",
        Choice.ONE: f"use one GPU, {gpus}{_others(job, answer)}",
    }[answer.decision.choice]


def _missing(answer: Recommendation) -> str:
    memory = answer.memory
    usable = "its one usable GPU" if answer.usable_gpus == 1 else f"its {answer.usable_gpus} usable GPUs"
    if memory is None or not memory.missing_bytes:
        return f"no group of {usable} that divides the attention heads, or is a power of two, holds it"
    return f"it needs {gib(memory.missing_bytes)} more than {usable} can hold"


def _more_replicas(answer: Recommendation) -> str:
    return f"; the usable GPUs hold {answer.replicas} such replicas" if answer.replicas > 1 else ""


def _others(job: Job, answer: Recommendation) -> str:
    if not answer.other_gpus:
        return ""
    others = f"GPU {ranges(answer.other_gpus)}"
    if job.workload is Workload.INFERENCE:
        return f", for a replica; {others} can hold more, {answer.replicas} in all"
    return f", and leave {others} to other jobs"


def _depends(answer: Recommendation) -> str:
    pair = next(iter(answer.exchanges), None)
    if pair is None or pair.break_even_seconds is None or pair.worthwhile_seconds is None:
        return ""
    return (
        f"two GPUs ({ranges(gpu.gpu for gpu in pair.path.gpus)}) are faster than one if its step takes more than "
        f"{time(pair.break_even_seconds)}, and {WORTHWHILE.value:.0%} efficient from "
        f"{time(pair.worthwhile_seconds)} on"
    )
