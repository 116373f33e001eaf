"""The command `gpu-triage advise`: whether a second GPU of this host pays for a job, as text and as JSON."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

import click

from gpu_triage.cli.advise import recommendation
from gpu_triage.cli.advise.paths import NVLINK, Path, Range
from gpu_triage.cli.advise.recommendation import Choice, Estimate, Job, Recommendation, recommend
from gpu_triage.cli.measure import MEASURE, applies, measure_configured
from gpu_triage.cli.one_shot import for_option, format_option, host_options
from gpu_triage.documents import printable
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.findings.verdicts import EXIT_COULD_NOT_LOOK, EXIT_SOUND
from gpu_triage.judge.report.entries import entry_of, grouped
from gpu_triage.log import configure
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import duration, number_among, whole_number


@click.command(
    "advise",
    cls=OptionsCommand,
    short_help="Say whether a second GPU pays for a training job.",
    essential=("simulate", "config.file"),
    examples=(
        ("gpu-triage advise --params 350M", "from which step time on do two GPUs pay here?"),
        ("gpu-triage advise --params 3B --step-time 900ms", "how much faster are 2, 4 and 8?"),
    ),
)
@click.option(
    "--params",
    "parameters",
    required=True,
    type=recommendation.PARAMETERS,
    help="Trained parameters, with LoRA those of the adapters: 350M, 3B, 7e9.",
)
@click.option(
    "--step-time",
    "step_seconds",
    type=duration("1ms", "24h"),
    help="Time of one step on one GPU, with its unit: 200ms.",
)
@click.option(
    "--gradient-bits",
    type=number_among(32, 16),
    default="32",
    show_default=True,
    help="Size of an exchanged gradient: 32 with PyTorch's autocast; 16 if the model is held in 16 bits.",
)
@click.option("--grow-batch", is_flag=True, help="Each GPU has the batch of one, instead of a share of it.")
@click.option("--gpus", type=whole_number(1, 64), help="Most GPUs to use.")
@format_option(text="people", json="programs")
@for_option("5s", MEASURE)
@host_options(applies)
def advise_command(*, config: Config, form: str, seconds: float, **given: Any) -> int:
    """Say whether a second GPU of this host pays for a training job, and show the calculation.

    Looks at the host for some seconds. Names sick links, then estimates from the path between the GPUs as read, the
    gradients to exchange and the step time of one GPU how much faster 2, 4 and 8 GPUs are, from the worst to the best
    case. Where that does not settle it, lists what to try. Leaves out GPUs with critical findings.

    Exit code: 0 with a recommendation, 2 the GPUs could not be checked, or the options cannot be used.
    """
    configure("critical", config.log_format)
    judgment = measure_configured(config, seconds)
    if judgment.report.blocked is not None:
        click.echo(f"gpu-triage: could not check: {printable(judgment.report.blocked)}", err=True)
        return EXIT_COULD_NOT_LOOK
    answer = recommend(Job(**given), judgment.host, judgment.report)
    click.echo(as_json(answer) if form == "json" else as_text(answer))
    return EXIT_SOUND


def as_text(answer: Recommendation) -> str:
    return "\n".join(printable(line) for line in _lines(answer))


def _lines(answer: Recommendation) -> Iterator[str]:
    yield from _first(answer)
    yield f"recommendation: {headline(answer)}"
    yield f"    because {answer.decision.because}"
    yield from _section("note", answer.notes)
    yield from _section("left out", (f"GPU {ranges(gpus)}: {reason}" for reason, gpus in answer.left_out.items()))
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
    yield from ("fix first:",) if answer.first else ()
    for findings in grouped(answer.first):
        finding, entry = findings[0], entry_of(findings, answer.words)
        yield f"    {finding.check.code}  {entry.subject}: {entry.measured}"
        yield f"        means     {finding.advice.meaning}"
        yield f"        do        {answer.words.decision(finding.advice)}"
    yield from ("",) if answer.first else ()


def _path(path: Path) -> str:
    level = f", path {path.level.upper()}" if path.level and path.access is not NVLINK else ""
    crossing = ", which crosses the sockets" if level and path.level == "sys" else ""
    refused = f" (peer access: {path.refused})" if path.refused else ""
    start = f"GPU {ranges(gpu.gpu for gpu in path.gpus)} {path.access.words}{refused}{level}{crossing}"
    if (link := path.slowest) is None:
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
    yield f"from none of the exchange to {recommendation.BACKWARD_SHARE:.0%} of the compute time overlaps"
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
            share = f"{recommendation.WORTHWHILE:.0%}"
            yield f"{each.gpus} GPUs: {parts}: {share} efficient from a step of {_times(seconds)}"
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
    for limit, decimals in ((100, 0), (10, 1), (1, 2)):
        if value >= limit:
            return f"{value:,.{decimals}f}"
    return f"{value:.3g}"


def as_json(answer: Recommendation) -> str:
    """The format is described in docs/advise.md: sizes in bytes, times in seconds, shares 0-1; null is unknown."""
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
        "left_out": [{"gpus": gpus, "reason": reason} for reason, gpus in answer.left_out.items()],
        "notes": answer.notes,
        "groups": [_group(each) for each in answer.estimates],
        "try_it": tuple(commands(answer)),
        "assumptions": dict(recommendation.ASSUMPTIONS),
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
