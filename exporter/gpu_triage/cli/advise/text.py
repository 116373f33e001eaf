"""The answer as text: each number with the arithmetic that leads to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gpu_triage.cli.advise.assumptions import USABLE_MEMORY, WORTHWHILE
from gpu_triage.cli.advise.exchange import Exchange
from gpu_triage.cli.advise.headline import headline
from gpu_triage.cli.advise.job import Job, Workload
from gpu_triage.cli.advise.limits import limits_of
from gpu_triage.cli.advise.memory import Memory
from gpu_triage.cli.advise.paths import Access, Path
from gpu_triage.cli.advise.recommendation import Recommendation
from gpu_triage.cli.advise.steps import StepTime
from gpu_triage.cli.advise.units import count, gib, rate, time, traffic
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.report.entries import entry_of, grouped

_ACCESS: Final = {
    Access.NVLINK: "over NVLink",
    Access.PEER: "directly over PCIe",
    Access.HOST_MEMORY: "through host memory",
}


def as_text(job: Job, answer: Recommendation, step: StepTime) -> Iterator[str]:
    """Yield the answer as lines of text."""
    yield from _first(answer)
    yield f"recommendation: {headline(job, answer)}"
    yield f"    because {answer.decision.because}"
    unknown = f"the step time is not known: {step.words}"
    asked = answer.exchanges and job.step_seconds is None
    yield from _section("note", (*answer.notes, *((unknown,) if asked else ())))
    yield from _section("left out", (f"GPU {ranges(each.gpus)}: {each.reason}" for each in answer.left_out))
    yield from _section("memory of the model", _memory(job, answer))
    yield from _section("what needs less memory", _alternatives(answer))
    if answer.exchanges:
        yield from _section("paths", _paths(answer.exchanges))
        yield from _section("exchange in each step", (_exchange(each) for each in answer.exchanges))
        yield from _section(f"efficiency ({step.words})", _efficiencies(answer.exchanges))
        yield from _section("break-even", _break_evens(answer.exchanges))
    yield from _section("limits of this advice", limits_of(job, answer))


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
        yield f"        means     {answer.words.advice(finding.advice.meaning)}"
        yield f"        do        {answer.words.advice(finding.advice.decision)}"
    yield ""


def _memory(job: Job, answer: Recommendation) -> Iterator[str]:
    for part in job.parts:
        product = f"{count(part.parameters)} x {part.bytes_each:g} bytes = {gib(part.size_bytes)}"
        yield f"{part.what:<10} {product} ({part.words})"
    memory = answer.memory
    if memory is None:
        yield "No GPU reports its memory: whether the model fits is not known."
        return
    share = f"{USABLE_MEMORY.value:.0%} of {gib(memory.total_bytes)} = {gib(memory.usable_bytes)}"
    yield f"{'together':<10} {gib(memory.needed_bytes)}; a GPU has {share} to plan with: {_fits(memory)}"
    if not memory.fits:
        quotient = f"{gib(memory.needed_bytes)} / {gib(memory.usable_bytes)}"
        ratio = memory.needed_bytes / memory.usable_bytes
        yield f"{'GPUs':<10} {quotient} = {ratio:.2f}: at least {memory.fewest_gpus}"
    left_out = "the KV cache" if job.workload is Workload.INFERENCE else "activations"
    yield f"Not included: {left_out} and temporary buffers. They come on top."


def _fits(memory: Memory) -> str:
    left = memory.usable_bytes - memory.needed_bytes
    return f"fits, {gib(left)} left" if memory.fits else f"{gib(-left)} too much for one"


def _alternatives(answer: Recommendation) -> Iterator[str]:
    for each in answer.alternatives:
        holds = "does not fit on this host" if each.gpus is None else f"fits on {each.gpus}"
        gpus = "" if each.gpus is None else " GPU" if each.gpus == 1 else " GPUs"
        yield f"{each.options}: {gib(each.needed_bytes)}, {holds}{gpus}"


def _paths(exchanges: tuple[Exchange, ...]) -> Iterator[str]:
    for each in exchanges:
        yield _path(each.path)


def _path(path: Path) -> str:
    level = f", path {path.level.upper()}" if path.level and path.access is not Access.NVLINK else ""
    crossing = ", which crosses the sockets" if level and path.level == "sys" else ""
    refused = f" (peer access: {path.refused})" if path.refused else ""
    start = f"GPU {ranges(gpu.gpu for gpu in path.gpus)} {_ACCESS[path.access]}{refused}{level}{crossing}"
    link, bandwidth = path.slowest, path.bandwidth
    if link is None or bandwidth is None:
        return f"{start}: the speed of a link is not reported"
    share = f"{path.access.share.value:.0%}"
    return f"{start}: {link.words} at {link.owner} = {rate(link.line_rate)}, of which {share} = {rate(bandwidth)}"


def _exchange(exchange: Exchange) -> str:
    gpus, payload = exchange.gpus, traffic(exchange.payload_bytes)
    if exchange.sharded:
        what = f"(2 x weights + gradients = {payload}) x {gpus - 1}/{gpus}"
    else:
        precision = exchange.job.trained_precision
        what = f"{count(exchange.job.trained)} x {precision.gradient:g} bytes x 2 x {gpus - 1}/{gpus}"
    moved, seconds, bandwidth = traffic(exchange.moved_bytes), exchange.seconds, exchange.path.bandwidth
    over = "" if seconds is None or bandwidth is None else f"; / {rate(bandwidth)} = {time(seconds)}"
    return f"{gpus} GPUs: {what} = {moved}{over}"


def _efficiencies(exchanges: tuple[Exchange, ...]) -> Iterator[str]:
    for each in exchanges:
        compute, seconds, efficiency = each.compute_seconds, each.seconds, each.efficiency
        if compute is None or seconds is None or efficiency is None:
            continue
        low, high = efficiency
        fraction = f"{time(compute)} / ({time(compute)} + {time(seconds)}) = {low:.0%}"
        best = f"up to {high:.0%} if the exchange is hidden"
        if each.sharded:
            yield f"{each.gpus} GPUs: {fraction} of a step computes, {best}"
        else:
            yield f"{each.gpus} GPUs: {fraction}, {low * each.gpus:.2f} times one GPU; {best}"


def _break_evens(exchanges: tuple[Exchange, ...]) -> Iterator[str]:
    for each in exchanges:
        faster, worth = each.break_even_seconds, each.worthwhile_seconds
        if each.sharded or faster is None or worth is None or each.seconds is None:
            continue
        factor = f"{each.gpus} x " if each.job.same_total_batch else ""
        arithmetic = f"{factor}{time(each.seconds)} / ({each.gpus} - 1) = {time(faster)}"
        yield (
            f"{each.gpus} GPUs are faster than one if its step takes more than {arithmetic}; "
            f"{WORTHWHILE.value:.0%} efficient from {time(worth)} on"
        )
