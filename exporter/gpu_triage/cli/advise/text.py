"""The answer as text and JSON: what was read, given and assumed, and the estimate that follows from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace

from gpu_triage.cli.advise.estimate import ASSUMPTIONS, BACKWARD_SHARE, WORTHWHILE, Estimate, Job
from gpu_triage.cli.advise.paths import Access, Path, Range
from gpu_triage.cli.advise.recommendation import Choice, Recommendation
from gpu_triage.documents import printable
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.report.entries import entry_of, grouped


def as_text(answer: Recommendation) -> str:
    return "\n".join(printable(line) for line in _lines(answer))


def _lines(answer: Recommendation) -> Iterator[str]:
    yield from _first(answer)
    yield f"recommendation: {headline(answer)}"
    yield f"    because {answer.decision.because}"
    yield from _section("note", answer.notes)
    yield from _section("left out", (f"GPU {ranges(each.gpus)}: {each.reason}" for each in answer.left_out))
    if not answer.estimates:
        return
    yield from _section("read from this host", (_path(each.path) for each in answer.estimates))
    yield from _section("given", _given(answer.job))
    yield from _section("assumed", _assumed(answer))
    yield from _section("estimate", _estimates(answer))
    yield from _section("try it: 100 steps each after a warm-up, and compare samples per second", commands(answer))


def headline(answer: Recommendation) -> str:
    """Return what to do, as a sentence without its full stop."""
    gpus = f"GPU {ranges(answer.gpus)}"
    others = f", and leave GPU {ranges(answer.other_gpus)} to other jobs" if answer.other_gpus else ""
    return {
        Choice.NO_GPU: "run nothing on this host",
        Choice.TRY: f"use one GPU, {gpus}, until you have tried more: the estimate does not settle it",
        Choice.DEPENDS: _depends(answer),
        Choice.SEVERAL: f"use {len(answer.gpus)} GPUs: {gpus}",
        Choice.ONE: f"use one GPU, {gpus}{others}",
    }[answer.decision.choice]


def commands(answer: Recommendation) -> Iterator[str]:
    """Yield the commands that settle what the estimate does not."""
    if answer.trial is None:
        return
    size, tried = f"{answer.job.gradient_bytes:.0f}", tuple(gpu.gpu for gpu in answer.trial.path.gpus)
    for gpus in (answer.gpus, tried):
        devices = f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={','.join(gpus)}"
        yield f"{devices} torchrun --nproc-per-node {len(gpus)} train.py"
    yield f"all_reduce_perf -b {size} -e {size} -g {len(tried)}"


def _depends(answer: Recommendation) -> str:
    if not answer.estimates or (seconds := answer.estimates[0].worthwhile_seconds) is None:
        return ""
    worst, best = _time(seconds.worst), _time(seconds.best)
    return f"two GPUs are worth it if a step takes one GPU more than {worst}, not if less than {best}; between, try it"


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    lines = tuple(lines)
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"    {line}" for line in lines)


def _first(answer: Recommendation) -> Iterator[str]:
    """Yield the findings to fix first, worded and grouped as in `check`."""
    if not answer.first:
        return
    yield "fix first:"
    for findings in grouped(answer.first):
        finding, entry = findings[0], entry_of(findings, answer.words)
        yield f"    {finding.check.code}  {entry.subject}: {entry.measured}"
        yield f"        means     {finding.advice.meaning}"
        yield f"        do        {answer.words.decision(finding.advice)}"
    yield ""


def _path(path: Path) -> str:
    level = f", path {path.level.upper()}" if path.level and path.access is not Access.NVLINK else ""
    crossing = ", which crosses the sockets" if level and path.level == "sys" else ""
    refused = f" (peer access: {path.refused})" if path.refused else ""
    start = f"GPU {ranges(gpu.gpu for gpu in path.gpus)} {path.access.words}{refused}{level}{crossing}"
    link = path.slowest
    if link is None:
        return f"{start}: the speed of a link is not reported"
    return f"{start}: {link.words} at {link.owner} = {_traffic(link.line_rate)}/s"


def _given(job: Job) -> Iterator[str]:
    gradients = f"{job.gradient_bits} bits = {_traffic(job.gradient_bytes)}"
    yield f"{_count(job.parameters)} trained parameters with gradients of {gradients} to exchange in each step"
    if job.step_seconds is not None:
        yield f"a step takes one GPU {_time(job.step_seconds)}"


def _assumed(answer: Recommendation) -> Iterator[str]:
    for access in dict.fromkeys(each.path.access for each in answer.estimates):
        share = f"{access.share.worst:.0%} to {access.share.best:.0%} of the line rate"
        yield f"{access.words}, an all-reduce reaches {share}"
        yield f"{access.words}, each step takes {_times(access.fixed_seconds)} longer, whatever the model's size"
    yield f"from none of the exchange to {BACKWARD_SHARE:.0%} of the compute time overlaps"
    if answer.job.grow_batch:
        yield "each GPU has the batch of one: the total batch grows with the GPUs"
    else:
        yield "the GPUs share the batch of one, and half of the batch takes half of the time: time that on one GPU"


def _estimates(answer: Recommendation) -> Iterator[str]:
    for each in answer.estimates:
        exchange, compute, speedup = each.exchange_seconds, each.compute_seconds, each.speedup
        if exchange is None:
            continue
        parts = f"exchange {_traffic(each.moved_bytes)} in {_times(exchange)}"
        if compute is not None and speedup is not None:
            yield f"{each.gpus} GPUs: compute {_time(compute)}, {parts}: {speedup} times as fast as one"
        elif (seconds := each.worthwhile_seconds) is not None:
            yield f"{each.gpus} GPUs: {parts}: {WORTHWHILE:.0%} efficient from a step of {_times(seconds)}"
    larger = [Estimate(replace(answer.job, grow_batch=True), each.path) for each in answer.estimates]
    grown = [f"{each.gpus} GPUs {each.speedup}" for each in larger if each.speedup is not None]
    if grown and not answer.job.grow_batch:
        yield f"with --grow-batch, where each GPU has the batch of one: {', '.join(grown)} times as many samples"


def _traffic(size_bytes: float) -> str:
    """Format data to exchange, in decimal units as bandwidth has them: ``6.00 GB``, ``27.6 MB``."""
    unit, size = next((each for each in (("GB", 1e9), ("MB", 1e6)) if size_bytes >= each[1]), ("kB", 1e3))
    return f"{_digits(size_bytes / size)} {unit}"


def _time(seconds: float) -> str:
    """Format a time: ``1.20 s``, ``33.3 ms``, ``0.115 ms``."""
    return f"{_digits(seconds)} s" if seconds >= 1 else f"{_digits(seconds * 1000)} ms"


def _times(seconds: Range) -> str:
    """Format a range of times, the best first: ``2.65 ms to 5.15 ms``."""
    return f"{_time(seconds.best)} to {_time(seconds.worst)}"


def _count(parameters: float) -> str:
    """Format a number of parameters as the option takes it: ``6.9M``."""
    unit, size = next(each for each in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)) if parameters >= each[1])
    return f"{parameters / size:.3g}{unit}"


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    for limit, decimals in ((100, 0), (10, 1), (1, 2)):
        if value >= limit:
            return f"{value:,.{decimals}f}"
    return f"{value:.3g}"


def as_json(answer: Recommendation) -> str:
    """Return the answer as JSON; docs/advise.md describes the format.

    Sizes are in bytes, times in seconds, shares 0-1; null is unknown.
    """
    document = {
        "format": "gpu-triage-advice",
        "version": 1,
        "job": asdict(answer.job),
        "choice": answer.decision.choice.value,
        "headline": headline(answer),
        "because": answer.decision.because,
        "gpus": answer.gpus,
        "other_gpus": answer.other_gpus,
        "fix_first": [
            {"code": each.check.code, "gpu": each.gpu, "measured": each.measured, "decision": each.advice.decision}
            for each in answer.first
        ],
        "left_out": [each._asdict() for each in answer.left_out],
        "notes": answer.notes,
        "groups": [_group(each) for each in answer.estimates],
        "try_it": tuple(commands(answer)),
        "assumptions": dict(ASSUMPTIONS),
    }
    return json.dumps(document, indent=2)


def _group(estimate: Estimate) -> dict[str, object]:
    path = estimate.path
    link = path.slowest
    return {
        "gpus": [gpu.gpu for gpu in path.gpus],
        "access": path.access.label,
        "level": path.level or None,
        "refused": path.refused or None,
        "slowest_link": None if link is None else {"of": link.owner, "link": link.words, "line_rate": link.line_rate},
        "bandwidth": path.bandwidth,
        "exchange_bytes": estimate.moved_bytes,
        "exchange_seconds": estimate.exchange_seconds,
        "fixed_seconds": path.access.fixed_seconds,
        "compute_seconds": estimate.compute_seconds,
        "speedup": estimate.speedup,
        "worthwhile_speedup": estimate.worthwhile_speedup,
        "worthwhile_step_seconds": estimate.worthwhile_seconds,
    }
