"""Top section of the status page: verdict, bottleneck and last half hour of every GPU, worst first.

The half hour is a timeline strip of bottleneck classes, drawn without a script.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gpu_triage.judge.bottleneck.memory import STRIP_SECONDS, ClassPeriod
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.verdicts import WORST_FIRST
from gpu_triage.judge.report.report import GpuVerdict
from gpu_triage.judge.report.words import CLUSTER, Words
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.serve.page.markup import class_chip, safe, section, verdict_chip
from gpu_triage.serve.page.times import clock_time, lasting

_TICK_MINUTES: Final = (20, 10)
_TOLD_STRETCHES: Final = 8
"""The most entries read by a screen reader; for a GPU that changes more often, earlier ones are summarized."""

_GAP_SECONDS: Final = 1.0
"""A shorter gap between two stretches is ignored."""


def urgency(gpu: GpuVerdict) -> tuple[int, int, int]:
    """Sort key for GPUs: verdict, then rank of the bottleneck class, then index."""
    rank = BOTTLENECK_CLASSES.index(gpu.bottleneck.name)
    return WORST_FIRST.index(gpu.verdict), rank, int(gpu.gpu)


def overview_section(gpus: Iterable[GpuVerdict], now: float, words: Words = CLUSTER) -> str:
    """One row per GPU; `now` is the time of the judgment in Unix seconds."""
    ordered = sorted(gpus, key=urgency)
    if not ordered:
        return section("overview", "GPUs", "<p>No GPU is known.</p>")
    models = {gpu.name for gpu in ordered if gpu.name}
    title = f"{len(ordered)} x {models.pop()}" if len(models) == 1 else "GPUs"
    rows = "\n".join(_row(gpu, now, words) for gpu in ordered)
    below = f'<div class="below">{_axis()}<p>{legend(gpu.strip for gpu in ordered)}</p></div>'
    return section("overview", title, f'<ol class="overview">\n{rows}\n</ol>\n{below}')


def _row(gpu: GpuVerdict, now: float, words: Words) -> str:
    name, index = gpu.bottleneck.name, safe(gpu.gpu)
    return (
        f'<li data-gpu="{index}" data-bottleneck="{safe(name)}" data-verdict="{safe(gpu.verdict.value)}">'
        f'<a id="row-{index}" href="#gpu-{index}">GPU {index}</a>{verdict_chip(gpu.verdict, words)}'
        f"<span>{class_chip(name, gpu.verdict)}</span><span>{lasting(gpu.since, now)}</span>"
        f"{strip(gpu.strip, f'GPU {gpu.gpu}', now)}</li>"
    )


def strip(stretches: tuple[ClassPeriod, ...], subject: str, now: float) -> str:
    """A timeline of bottleneck classes, oldest first, up to `now` (Unix seconds); time not judged stays empty."""
    drawn = "".join(_rectangle(stretch, now) for stretch in stretches)
    ticks = "".join(f'<line x1="{_x(60.0 * at)}" x2="{_x(60.0 * at)}" y2="100%"/>' for at in _TICK_MINUTES)
    label = f"{subject}, {_periods_text(stretches)}"
    return f'<svg class="strip" role="img" aria-label="{safe(label)}">{drawn}{ticks}</svg>'


def _axis() -> str:
    """The time axis below the strips; hidden from screen readers, as each strip has a description."""
    middle = "".join(f'<text x="{_x(60.0 * at)}" y="1em" text-anchor="middle">{at}</text>' for at in _TICK_MINUTES)
    return (
        f'<svg class="axis" aria-hidden="true"><text y="1em">{STRIP_SECONDS / 60:.0f} min ago</text>{middle}'
        '<text x="100%" y="1em" text-anchor="end">now</text></svg>'
    )


def legend(strips: Iterable[tuple[ClassPeriod, ...]]) -> str:
    """Legend of the strips: the classes that occur, by rank, and time that was not judged."""
    strips = tuple(strips)
    seen = {stretch.name for stretches in strips for stretch in stretches}
    chips = [class_chip(name) for name in BOTTLENECK_CLASSES if name in seen]
    if any(sum(map(_seconds, stretches)) < STRIP_SECONDS - _GAP_SECONDS for stretches in strips):
        chips.append('<small class="soft">hatched: not judged</small>')
    return " ".join(chips)


def _rectangle(stretch: ClassPeriod, now: float) -> str:
    width = 100 * _seconds(stretch) / STRIP_SECONDS
    began, ended = clock_time(now - stretch.began_ago), clock_time(now - stretch.ended_ago)
    text = f"{stretch.name} for {length_of_time(_seconds(stretch))}, {began} to {ended} UTC"
    return (
        f'<rect class="c-{safe(stretch.name)}" x="{_x(stretch.began_ago)}" width="{width:.2f}%" y="-5%" height="110%">'
        f"<title>{safe(text)}</title></rect>"
    )


def _x(seconds_ago: float) -> str:
    return f"{100 * (1 - seconds_ago / STRIP_SECONDS):.2f}%"


def _periods_text(stretches: tuple[ClassPeriod, ...]) -> str:
    if not stretches:
        return "not judged yet"
    text = list(_pieces(stretches))
    omitted = len(text) - _TOLD_STRETCHES
    if omitted > 0:
        text = [f"{omitted} earlier changes", *text[omitted:]]
    return f"last {length_of_time(stretches[0].began_ago)}: {', then '.join(text)}"


def _pieces(stretches: tuple[ClassPeriod, ...]) -> Iterator[str]:
    before = stretches[0].began_ago
    for stretch in stretches:
        if before - stretch.began_ago > _GAP_SECONDS:
            yield f"not judged for {length_of_time(before - stretch.began_ago)}"
        yield f"{stretch.name} for {length_of_time(_seconds(stretch))}"
        before = stretch.ended_ago
    if before > _GAP_SECONDS:
        yield f"not judged for {length_of_time(before)}"


def _seconds(stretch: ClassPeriod) -> float:
    return stretch.began_ago - stretch.ended_ago
