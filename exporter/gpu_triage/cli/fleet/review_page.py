"""Renders the review as one self-contained HTML page, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_triage import __version__
from gpu_triage.cli.fleet.review import ByDay, Review
from gpu_triage.cli.fleet.review_plots import SHEET, Band, plot
from gpu_triage.cli.fleet.review_tables import Table, days_table, facts, provenance, tables, title
from gpu_triage.documents import printable
from gpu_triage.serve.page.markup import class_chip, foreign, row, safe, section, table, whole_page
from gpu_triage.serve.page.style import ICONS, STYLE, source_hash

_SHEET: Final = f"""{STYLE}{SHEET}
body {{ max-width: 64rem; }}
td {{ text-align: right; }}
thead th {{ text-align: right; }}
tr > th:first-child, .words :is(th, td):not(:last-child) {{ text-align: left; }}
"""
_POLICY: Final = (
    f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src '{source_hash(_SHEET)}'; "
    'img-src data:">\n'
)
_NONE: Final = "None in this period."


def render_html(review: Review) -> bytes:
    """The page, without scripts or external resources."""
    parts = [f"<h1>{safe(title(review))}</h1>", *(f"<p>{safe(line)}</p>" for line in provenance(review))]
    parts.append(_section(facts(review)))
    if not review.first_look:
        parts.append(section("plots", "Day by day", "\n".join(filter(None, _plots(review)))))
    parts += [_section(each) for each in tables(review)]
    parts.append(f'<p class="soft">gpu-triage {__version__}</p>')
    return whole_page(title(review), ICONS["idle"], _SHEET, "<main>\n" + "\n".join(parts) + "\n</main>", _POLICY)


def _plots(review: Review) -> Iterator[str]:
    unused = _difference(review.observed, review.busy)
    used = [Band("with work", "f-busy", review.busy), Band("without", "f-seen", unused)]
    yield plot("GPU hours observed", "h", review.days, used)
    met = [(name, values) for name, values in review.lost.items() if any(values)]
    lost = [Band(name, f"c-{name}", _zero_if_seen(values, review.observed)) for name, values in met]
    yield plot("GPU hours lost, by bottleneck", "h", review.days, lost)
    yield plot("GPU hours allocated but idle", "h", review.days, [Band("idle", "f-idle", review.idle)])
    yield plot("Energy", "kWh", review.days, [Band("GPUs", "f-energy", review.energy)])


def _zero_if_seen(values: ByDay, observed: ByDay) -> ByDay:
    """Lost hours of a class, with 0 on observed days without a series."""
    pairs = zip(values, observed, strict=True)
    return tuple(0.0 if value is None and seen is not None else value for value, seen in pairs)


def _difference(whole: ByDay, part: ByDay) -> ByDay:
    pairs = zip(whole, part, strict=True)
    return tuple(None if each is None else max(0.0, each - (less or 0.0)) for each, less in pairs)


def _section(each: Table) -> str:
    if not each.rows:
        return section(each.name, each.title, f"<p>{_NONE}</p>")
    first = class_chip if each.name == "classes" else foreign
    rows = (row(first(cells[0]), map(safe, cells[1:])) for cells in each.rows)
    note = f"<p>{safe(each.note)}</p>\n" if each.note else ""
    words = "words" if each.words else ""
    return section(each.name, each.title, f"{note}{table(each.title, each.heads, rows, words)}")


def render_markdown(review: Review) -> str:
    """The same content, with a table of the days instead of plots."""
    parts = [f"# {title(review)}", *map(_escaped, provenance(review))]
    days = () if review.first_look else (days_table(review),)
    for each in (facts(review), *tables(review), *days):
        parts += [f"## {each.title}", *filter(None, (each.note,)), _markdown(each) if each.rows else _NONE]
    return "\n\n".join((*parts, f"gpu-triage {__version__}")) + "\n"


def _markdown(each: Table) -> str:
    align = [":---", *(":---" if each.words else "---:" for _ in each.heads[1:])]
    lines = [each.heads, align, *(tuple(map(_escaped, cells)) for cells in each.rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _escaped(text: str) -> str:
    """Escape text for Markdown: names of pods and users are untrusted."""
    return "".join(f"\\{each}" if each in "\\`*_[]<>|#" else each for each in printable(text))
