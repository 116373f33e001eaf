"""The last half hour of a GPU's bottleneck classes as a strip, drawn without a script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.past import STRIP_SECONDS, Stretch
from gpu_triage.web.page.markup import class_chip, safe
from gpu_triage.web.page.times import clock_time, duration

_MINUTES: Final = STRIP_SECONDS / 60
_TICK_MINUTES: Final = (20, 10)
_TOLD_STRETCHES: Final = 8
"""A screen reader reads this many; a GPU that changes more often is told from its seconds counter."""

_GAP_SECONDS: Final = 1.0
"""A shorter time between two stretches is no gap."""


def strip(stretches: tuple[Stretch, ...], subject: str, now: float) -> str:
    """A strip of classes; time that was not judged stays empty.

    Args:
        stretches: oldest first.
        subject: whose.
        now: Unix seconds at its right end.
    """
    drawn = "".join(_rectangle(stretch, now) for stretch in stretches)
    ticks = "".join(f'<line x1="{_x(60.0 * at)}" x2="{_x(60.0 * at)}" y2="100%"/>' for at in _TICK_MINUTES)
    label = f"{subject}, {_told(stretches)}"
    return f'<svg class="strip" role="img" aria-label="{safe(label)}">{drawn}{ticks}</svg>'


def axis() -> str:
    """The time below the strips; decoration, as each strip is described in words."""
    middle = "".join(f'<text x="{_x(60.0 * at)}" y="1em" text-anchor="middle">{at}</text>' for at in _TICK_MINUTES)
    return (
        f'<svg class="axis" aria-hidden="true"><text y="1em">{_MINUTES:.0f} min ago</text>{middle}'
        '<text x="100%" y="1em" text-anchor="end">now</text></svg>'
    )


def legend(strips: Iterable[tuple[Stretch, ...]]) -> str:
    """What is seen in the strips: classes in the order of their ranks, and time that was not judged."""
    strips = tuple(strips)
    seen = {stretch.name for stretches in strips for stretch in stretches}
    chips = [class_chip(name) for name in catalogue.BOTTLENECK_CLASSES if name in seen]
    if any(_judged_seconds(stretches) < STRIP_SECONDS - _GAP_SECONDS for stretches in strips):
        chips.append('<small class="soft">hatched: not judged</small>')
    return " ".join(chips)


def _judged_seconds(stretches: tuple[Stretch, ...]) -> float:
    return sum(stretch.began_ago - stretch.ended_ago for stretch in stretches)


def _rectangle(stretch: Stretch, now: float) -> str:
    width = 100 * (stretch.began_ago - stretch.ended_ago) / STRIP_SECONDS
    began, ended = clock_time(now - stretch.began_ago), clock_time(now - stretch.ended_ago)
    told = f"{stretch.name} for {_length(stretch)}, {began} to {ended} UTC"
    return (
        f'<rect class="c-{safe(stretch.name)}" x="{_x(stretch.began_ago)}" width="{width:.2f}%" y="-5%" height="110%">'
        f"<title>{safe(told)}</title></rect>"
    )


def _x(seconds_ago: float) -> str:
    return f"{100 * (1 - seconds_ago / STRIP_SECONDS):.2f}%"


def _told(stretches: tuple[Stretch, ...]) -> str:
    """The strip in words."""
    if not stretches:
        return "not judged yet"
    told = list(_pieces(stretches))
    omitted = len(told) - _TOLD_STRETCHES
    if omitted > 0:
        told = [f"{omitted} earlier changes", *told[omitted:]]
    return f"last {duration(stretches[0].began_ago)}: {', then '.join(told)}"


def _pieces(stretches: tuple[Stretch, ...]) -> Iterator[str]:
    before = stretches[0].began_ago
    for stretch in stretches:
        if before - stretch.began_ago > _GAP_SECONDS:
            yield f"not judged for {duration(before - stretch.began_ago)}"
        yield f"{stretch.name} for {_length(stretch)}"
        before = stretch.ended_ago
    if before > _GAP_SECONDS:
        yield f"not judged for {duration(before)}"


def _length(stretch: Stretch) -> str:
    return duration(stretch.began_ago - stretch.ended_ago)
