"""The first thing to look at: verdict, bottleneck and last half hour of every GPU, worst first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.report import GpuVerdict
from gpu_triage.diagnosis.verdicts import Verdict
from gpu_triage.web.page.markup import class_chip, safe, section, verdict_chip
from gpu_triage.web.page.strips import axis, legend, strip
from gpu_triage.web.page.times import lasting

WORST_FIRST: Final = (Verdict.DRAIN, Verdict.WATCH, Verdict.NOT_READ, Verdict.KEEP)


def urgency(gpu: GpuVerdict) -> tuple[int, int, int]:
    """What GPUs are sorted by: verdict, then rank of the class, then index."""
    rank = catalogue.BOTTLENECK_CLASSES.index(gpu.bottleneck.name)
    return WORST_FIRST.index(gpu.verdict), rank, int(gpu.gpu)


def overview_section(gpus: Iterable[GpuVerdict], now: float) -> str:
    """A row for each GPU.

    Args:
        gpus: their verdicts.
        now: Unix seconds at which they were judged.
    """
    ordered = sorted(gpus, key=urgency)
    if not ordered:
        return section("overview", "GPUs", "<p>No GPU is known.</p>")
    models = {gpu.name for gpu in ordered if gpu.name}
    title = f"{len(ordered)} x {models.pop()}" if len(models) == 1 else "GPUs"
    rows = "\n".join(_row(gpu, now) for gpu in ordered)
    below = f'<div class="below">{axis()}<p>{legend(gpu.strip for gpu in ordered)}</p></div>'
    return section("overview", title, f'<ol class="overview">\n{rows}\n</ol>\n{below}')


def _row(gpu: GpuVerdict, now: float) -> str:
    name, index = gpu.bottleneck.name, safe(gpu.gpu)
    return (
        f'<li data-gpu="{index}" data-bottleneck="{safe(name)}" data-verdict="{safe(gpu.verdict.value)}">'
        f'<a id="row-{index}" href="#gpu-{index}">GPU {index}</a>{verdict_chip(gpu.verdict)}'
        f"<span>{class_chip(name, gpu.verdict)}</span><span>{lasting(gpu.since, now)}</span>"
        f"{strip(gpu.strip, f'GPU {gpu.gpu}', now)}</li>"
    )
