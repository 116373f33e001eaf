"""Plots for the review: one stacked bar per day, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.review import ByDay, total
from gpu_triage.cli.fleet.review_tables import day, number
from gpu_triage.serve.page.markup import safe

_WIDTH: Final = 720
_HEIGHT: Final = 200
_LEFT: Final = 60
_BOTTOM: Final = 22
_TOP: Final = 10
_LABELS: Final = 6

SHEET: Final = """
figure { margin: 1rem 0; }
figcaption { font-weight: 600; margin-bottom: .25rem; }
.plot { display: block; width: 100%; max-width: 60rem; height: auto; font-size: 12px; fill: var(--soft); }
.plot line { stroke: var(--line); }
.missing { fill: var(--line); opacity: .5; }
.legend { list-style: none; margin: .25rem 0; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem .9rem;
  font-size: .875rem; }
.legend .key { width: .8em; height: .8em; margin-right: .3em; }
.f-busy { fill: var(--well); } .f-seen { fill: var(--line); } .f-idle { fill: var(--soft); }
.f-energy { fill: var(--link); }
"""
"""CSS for the plots, appended to that of the status page."""


class Band(NamedTuple):
    """One color in the stacked bars."""

    name: str
    mark: str  # CSS class that sets the color
    values: ByDay


def plot(title: str, unit: str, days: Sequence[float], bands: Sequence[Band]) -> str:
    """A stacked bar per day; a day without data is a full-height gray bar."""
    sums = [total(values) for values in zip(*(band.values for band in bands), strict=True)] if bands else []
    highest = max((value for value in sums if value is not None), default=0.0)
    if highest <= 0:
        return ""
    top = _round_up(highest)
    spoken = f"{title}: {number(total(sums), unit)} in all, at most {number(highest, unit)} in a day"
    named = [(band.mark, band.name) for band in bands] + [("missing", "no data")] * (None in sums)
    legend = "".join(
        f'<li><svg class="key" viewBox="0 0 1 1" aria-hidden="true"><rect class="{mark}" width="1" height="1"/></svg>'
        f"{safe(name)}</li>"
        for mark, name in named
    )
    drawn = "".join((*_axis(top), *_bars(sums, bands, top, days), *_dates(days)))
    return (
        f"<figure>\n<figcaption>{safe(title)}, {safe(unit)} per day</figcaption>\n"
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{safe(spoken)}">{drawn}</svg>\n'
        f'<ul class="legend">{legend}</ul>\n</figure>'
    )


def _round_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value)


def _height(value: float, top: float) -> float:
    return (_HEIGHT - _BOTTOM - _TOP) * value / top


def _axis(top: float) -> Iterator[str]:
    for part in (0.0, 0.5, 1.0):
        y = _HEIGHT - _BOTTOM - _height(top * part, top)
        yield f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{safe(number(top * part))}</text>'


def _bars(sums: Sequence[float | None], bands: Sequence[Band], top: float, days: Sequence[float]) -> Iterator[str]:
    step = (_WIDTH - _LEFT) / len(days)
    for place, whole in enumerate(sums):
        x, width = _LEFT + place * step + step * 0.1, step * 0.8
        if whole is None:
            height = _height(top, top)
            yield f'<rect class="missing" x="{x:.1f}" y="{_TOP}" width="{width:.1f}" height="{height:.1f}">'
            yield f"<title>{day(days[place])}: no data</title></rect>"
            continue
        y = float(_HEIGHT - _BOTTOM)
        for band in bands:
            value = band.values[place] or 0.0
            if value <= 0:
                continue
            height = _height(value, top)
            y -= height
            yield f'<rect class="{band.mark}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}">'
            yield f"<title>{day(days[place])}: {safe(band.name)} {safe(number(value))}</title></rect>"


def _dates(days: Sequence[float]) -> Iterator[str]:
    step = (_WIDTH - _LEFT) / len(days)
    every = max(1, math.ceil(len(days) / _LABELS))
    for place in range(0, len(days), every):
        x = _LEFT + (place + 0.5) * step
        yield f'<text x="{x:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{day(days[place])[5:]}</text>'
