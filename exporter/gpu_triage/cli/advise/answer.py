"""A recommendation as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from gpu_triage.cli.advise.job import Job
from gpu_triage.cli.advise.memory import gib
from gpu_triage.cli.advise.recommendation import Recommendation
from gpu_triage.cli.advise.rules import USABLE_MEMORY, WORTHWHILE_EFFICIENCY, Choice
from gpu_triage.judge.evidence.ranges import ranges

_ALTERNATIVES: Final = {Choice.TOO_LARGE: "what would fit", Choice.SHARD: "what needs less memory"}


def as_text(job: Job, answer: Recommendation) -> Iterator[str]:
    """Yield the recommendation as lines of text."""
    yield f"recommendation: {answer.headline}"
    yield f"    rule {answer.rule.name}: {answer.rule.words}"
    yield f"    source: {answer.rule.source}"
    yield from _section("note", answer.notes)
    yield from _section("left out", (f"GPU {ranges(each.gpus)}: {each.reason}" for each in answer.left_out))
    yield from _section("because", answer.reasons)
    yield from _section("memory", _memory(job, answer))
    alternatives = (
        f"{each.words} ({'fits' if each.fits else 'does not fit'} on this host; {each.source})"
        for each in answer.alternatives
    )
    yield from _section(_ALTERNATIVES.get(answer.choice, ""), alternatives)
    if answer.efficiency is not None:
        low, high = answer.efficiency
        title = f"expected efficiency of {answer.considered} GPUs"
        speedup = f"a speedup of {low * answer.considered:.2f} to {high * answer.considered:.2f}"
        worth = f"a second GPU is worthwhile above {WORTHWHILE_EFFICIENCY:.0%} efficiency"
        yield from _section(title, [f"{low:.0%} to {high:.0%}, {speedup}; {worth}"])
    yield from _section(
        "fix first",
        (f"{f.check.code} {f.subject}: {f.measured}. {f.advice.decision}" for f in answer.fix_first),
    )
    yield from _section("limits of this advice", answer.evidence_ends)


def _memory(job: Job, answer: Recommendation) -> Iterator[str]:
    memory = answer.memory
    if memory is None:
        yield "no GPU reports its memory: whether the model fits is not known"
        return
    kind = job.kind
    yield f"needed: {gib(memory.needed_bytes)} ({kind.bytes_per_parameter} bytes a parameter: {kind.bytes_are_for})"
    share = f"{USABLE_MEMORY:.0%}"
    yield f"one GPU: {gib(memory.usable_bytes)} usable ({share}) of {gib(memory.total_bytes)}"
    if memory.gpus > 1:
        usable, total = gib(memory.usable_bytes * memory.gpus), gib(memory.total_bytes * memory.gpus)
        yield f"{memory.gpus} GPUs: {usable} usable of {total}, if the model is split over them"
    yield "activations and caches come on top; they grow with the batch and the length of a sequence"


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    lines = tuple(lines)
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"    {line}" for line in lines)


def as_json(job: Job, answer: Recommendation) -> str:
    """Return the recommendation as JSON; docs/advise.md describes the format."""
    memory = answer.memory
    document = {
        "format": "gpu-triage-advice",
        "version": 1,
        "parameters": job.parameters,
        "batch_size": job.batch_size,
        "workload": job.kind.value,
        "choice": answer.choice.value,
        "headline": answer.headline,
        "rule": answer.rule._asdict(),
        "requested_gpus": job.gpus,
        "considered_gpus": answer.considered,
        "gpus": answer.gpus,
        "other_gpus": answer.other_gpus,
        "left_out": [each._asdict() for each in answer.left_out],
        "notes": answer.notes,
        "reasons": answer.reasons,
        "memory": None
        if memory is None
        else {
            "needed_bytes": memory.needed_bytes,
            "gpu_usable_bytes": memory.usable_bytes,
            "gpu_total_bytes": memory.total_bytes,
            "usable_gpus": memory.gpus,
            "gpus_needed": memory.gpus_needed,
            "missing_bytes": memory.missing_bytes,
        },
        "alternatives": [each._asdict() for each in answer.alternatives],
        "efficiency": answer.efficiency,
        "fix_first": [
            {"code": f.check.code, "gpu": f.gpu, "measured": f.measured, "decision": f.advice.decision}
            for f in answer.fix_first
        ],
        "evidence_ends": answer.evidence_ends,
    }
    return json.dumps(document, indent=2)
