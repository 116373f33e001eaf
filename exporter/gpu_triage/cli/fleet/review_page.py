"""The review as sentences and tables, on one self-contained HTML page with plots, and as Markdown."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from gpu_triage import __version__
from gpu_triage.alerting.gpu_hours import GPU_HOURS
from gpu_triage.cli.fleet.forecast import FEWEST_WEEKS, forecast
from gpu_triage.cli.fleet.review import DAY_SECONDS, MOST_ROWS, ByDay, Prices, Review, total
from gpu_triage.documents import printable
from gpu_triage.judge.conditions.health import kind_in_words
from gpu_triage.judge.evidence.wording import first_few, length_of_time
from gpu_triage.judge.report.headline import STATES
from gpu_triage.serve.page.markup import class_chip, date_time, foreign, row, safe, section, table, whole_page
from gpu_triage.serve.page.style import ICONS, STYLE, source_hash

_UNKNOWN: Final = "-"
_MOST_DAYS_NAMED: Final = 10


class Table(NamedTuple):
    """A table; the first column holds row headings, the others numbers unless `words`."""

    name: str
    title: str
    note: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: bool = False


def day(seconds: float) -> str:
    return date_time(seconds)[:10]


def number(value: float | None, unit: str = "") -> str:
    """A number with at most one decimal, such as ``1,234 h`` or ``3.4 h``."""
    if value is None:
        return _UNKNOWN
    text = f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:,.1f}"  # noqa: PLR2004
    return f"{text} {unit}".rstrip()


def share(part: float | None, whole: float | None) -> str:
    """A percentage, with one decimal below 10 %."""
    if part is None or not whole:
        return _UNKNOWN
    ratio = part / whole
    return f"{ratio:.1%}" if 0 < ratio < 0.1 else f"{ratio:.0%}"  # noqa: PLR2004


def title(review: Review) -> str:
    if review.first_look:
        return f"GPU capacity review, first look at {length_of_time(review.step_seconds)}"
    return f"GPU capacity review, {day(review.days[0])} to {day(review.end - DAY_SECONDS)}"


def provenance(review: Review) -> Iterator[str]:
    """The source of the numbers, and what data is missing."""
    which = f", hosts {review.selection}" if review.selection else ""
    if review.first_look:
        yield f"From {review.source}{which}, from raw series; the period ends at {date_time(review.end)}."
        yield "A review of whole days reads recorded series and has more: leave out --since once a day is complete."
    else:
        yield f"From {review.source}{which}. Days are in UTC; the period ends at {date_time(review.end)}."
        yield _coverage(review)
    if absent := [words for name, words in NAMES.items() if review.total(name) is None]:
        yield f"Not recorded in this period: {', '.join(absent)}."
    for warning in review.warnings:
        yield f"Incomplete: {warning}"


def _coverage(review: Review) -> str:
    missing, count = [day(each) for each in review.missing], len(review.days)
    if not missing:
        return "Data for every day."
    named = first_few(missing, _MOST_DAYS_NAMED)
    return f"Data for {count - len(missing)} of {count} days; totals leave out the others. Missing: {named}."


NAMES: Final = {
    "observed": "observed",
    "allocated": "allocated",
    "used": "used",
    "idle": "idle while allocated",
    "lost": "lost",
    "unavailable": "unavailable",
    "energy": "energy",
}
"""What the tables call the totals: hours by the words of `GPU_HOURS`."""
_PARTS_OF: Final = {
    "allocated": ("observed", "the observed"),
    "used": ("active", "the observed whose activity is known"),
    "idle": ("allocated", "the allocated"),
    "lost": ("allocated", "the allocated"),
    "unavailable": ("observed", "the observed"),
}
_COSTS: Final = frozenset({"allocated", "idle", "lost", "unavailable"})


def facts(review: Review) -> Table:
    """The totals, as shares, beside those of the period before, and with their prices."""
    possible = total(count if count is None else review.step_seconds / 3600 * count for count in review.gpus)
    most = max((value for value in review.gpus if value is not None), default=None)
    prices = review.prices
    rows = [("GPUs" if review.first_look else "GPUs, most in a day", number(most), "", "", "")]
    for name, words in NAMES.items():
        value, cost = review.total(name), None
        which = f"{share(value, possible)} of the time of these GPUs" if name == "observed" else ""
        if name in _PARTS_OF:
            whole, called = _PARTS_OF[name]
            which = f"{share(value, review.total(whole))} of {called}"
        unit = "kWh" if name == "energy" else "h"
        if name in _COSTS and value is not None and prices.gpu_hour is not None:
            cost = value * prices.gpu_hour
        elif name == "energy" and value is not None and prices.kwh is not None:
            cost = value * prices.pue * prices.kwh
        title = "Energy of the GPUs" if name == "energy" else f"GPU hours {words}"
        before = number(review.before.get(name), unit)
        rows.append((title, number(value, unit), which, before, _UNKNOWN if cost is None else f"{cost:,.2f}"))
    for name, words in (("peak", "Most GPUs allocated at once"), ("free", "Fewest GPUs free at once")):
        rows.append((words, number(review.total(name)), "", number(review.before.get(name)), ""))
    outages, unavailable = review.total("outages"), review.total("unavailable")
    repair = number(unavailable / outages, "h each") if outages and unavailable is not None else ""
    rows.append(("Outages of GPUs", number(outages), repair, number(review.before.get("outages")), ""))
    heads = ("", "Period", "Share", "Before", "Cost")
    kept = [0, 1, 2, *([] if review.first_look else [3]), *([4] if prices != Prices() else [])]
    cells = tuple(tuple(row[place] for place in kept) for row in rows)
    return Table("facts", "Summary", forecast_of(review), tuple(heads[place] for place in kept), cells)


def forecast_of(review: Review) -> str:
    """The trend of the allocated GPUs in a sentence, or why there is none; "" of a first look."""
    if review.first_look:
        return ""
    found = forecast([None if value is None else value / 24 for value in review.totals["allocated"]])
    if found is None:
        return f"No forecast: it takes {FEWEST_WEEKS} whole weeks of known allocation."
    least, most = max(0.0, found.low), found.high
    return (
        f"If the trend of the weekly means goes on, {number(found.value)} GPUs are allocated in {found.weeks} weeks, "
        f"95 % between {number(least)} and {number(most)}; in the last week, {number(found.now)}."
    )


def tables(review: Review) -> Iterator[Table]:
    yield from (each(review) for each in (_classes, _jobs, _owners, _models, _hosts, _presence, _offenders))
    rows = tuple(GPU_HOURS.items())
    yield Table("words", "Words", "", ("GPU hours", "Meaning"), rows, words=True)


def days_table(review: Review) -> Table:
    columns = (review.gpus, *(review.totals[name] for name in NAMES))
    rows = tuple((day(at), *map(number, values)) for at, *values in zip(review.days, *columns, strict=True))
    heads = ("Day", "GPUs", *(f"{words} {'kWh' if name == 'energy' else 'h'}" for name, words in NAMES.items()))
    return Table("days", "Day by day", "", heads, rows)


def _classes(review: Review) -> Table:
    observed = review.total("observed")
    hours = {name: total(values) or 0.0 for name, values in review.held_back.items()}
    ordered = sorted((name for name in hours if hours[name] > 0), key=lambda name: -hours[name])
    rows = tuple((name, STATES[name], number(hours[name], "h"), share(hours[name], observed)) for name in ordered)
    note = "Hours in which something other than its own work limited a GPU, however much, while it was not idle."
    heads = ("Class", "GPUs were", "Held back", "Of observed")
    return Table("classes", "GPU hours held back, by bottleneck", note, heads, rows)


def _cost(hours: float, prices: Prices) -> tuple[str, ...]:
    return () if prices.gpu_hour is None else (f"{prices.gpu_hour * hours:,.2f}",)


def _owners(review: Review) -> Table:
    rows = tuple(
        (
            str(each.owner),
            *(number(hours, "h") for hours in (each.allocated, each.idle)),
            share(each.idle, each.allocated),
            *_cost(each.idle, review.prices),
        )
        for each in review.owners[:MOST_ROWS]
    )
    note = "A shared GPU counts by shares. The most hours idle while allocated first."
    priced = [] if review.prices.gpu_hour is None else ["Cost of idle"]
    heads = ("Owner", "Allocated", "Idle while allocated", "Share", *priced)
    return Table("owners", "GPU hours by owner", note, heads, rows)


def _jobs(review: Review) -> Table:
    rows = tuple(
        (str(job), number(hours, "h"), *_cost(hours, review.prices))
        for job, hours in islice(review.jobs.items(), MOST_ROWS)
    )
    heads = ("Job", "Lost", *([] if review.prices.gpu_hour is None else ["Cost"]))
    return Table("jobs", "GPU hours lost, by job", GPU_HOURS["lost"], heads, rows)


def _models(review: Review) -> Table:
    rows = tuple(
        (
            each.name or "unknown",
            number(each.observed, "h"),
            share(each.used, each.active),
            _UNKNOWN if each.p95 is None else f"{each.p95:.0%}",
            _UNKNOWN if each.p95 is None else f"{max(0.0, 1 - each.p95):.0%}",
            number(each.unavailable, "h"),
            number(each.held_back, "h"),
        )
        for each in review.models[:MOST_ROWS]
    )
    note = (
        "Headroom is what the 95th percentile of utilization in a day leaves, as the mean of all GPUs and days. Used "
        "above 80 % for weeks: buy more, or queue. Below 40 %: share GPUs, or return some."
    )
    heads = ("Model", "Observed", "Used", "95th percentile", "Headroom", "Unavailable", "Held back")
    return Table("models", "Use and headroom, by model", note, heads, rows)


def _hosts(review: Review) -> Table:
    rows = tuple((str(each.key), each.name, number(each.hours, "h")) for each in review.hosts)
    note = "The hosts that were held back most, and by what; all GPUs of a host together."
    return Table("hosts", "GPU hours held back, by host", note, ("Host", "Class", "Held back"), rows, words=True)


def _presence(review: Review) -> Table:
    rows = tuple(
        (
            str(each.key),
            *(number(hours, "h") for hours in (each.unobserved, each.unavailable)),
            share(each.observed - each.unavailable, each.observed + each.unobserved),
            number(each.outages),
            number(each.hours_to_repair, "h"),
        )
        for each in review.presence[:MOST_ROWS]
    )
    note = "Hosts whose GPUs were not observed or unavailable for more than 2 % of the time; a GPU hour is of one GPU."
    heads = ("Host", "Not observed", "Unavailable", "Available", "Outages of GPUs", "Hours to repair")
    return Table("presence", "Hosts that were away", note, heads, rows)


def _offenders(review: Review) -> Table:
    rows = tuple(
        (each.board, f"{each.key} GPU {each.gpu}", kind_in_words(each.kind), str(each.times))
        for each in review.offenders
    )
    note = "Boards that had one kind of incident three times within 30 days, or twice within 7: replace them."
    heads = ("Board", "Where", "Incident", "Times in 30 days")
    return Table("offenders", "Hardware that fails again and again", note, heads, rows, words=True)


_WIDTH, _HEIGHT = 720, 200
_LEFT, _BOTTOM, _TOP = 60, 22, 10  # margins
_LABELS: Final = 6

_SHEET: Final = """
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
td { text-align: right; }
thead th { text-align: right; }
tr > th:first-child, .words :is(th, td):not(:last-child) { text-align: left; }
"""
"""CSS for the plots and tables."""


class Band(NamedTuple):
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
        named = [(band.mark, band.values[place] or 0.0, f"{band.name} {number(band.values[place])}") for band in bands]
        y = float(_HEIGHT - _BOTTOM)
        for mark, value, words in named if whole is not None else [("missing", top, "no data")]:
            if value > 0:
                height = _height(value, top)
                y -= height
                x, width = _LEFT + place * step + step * 0.1, step * 0.8
                yield f'<rect class="{mark}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}">'
                yield f"<title>{day(days[place])}: {safe(words)}</title></rect>"


def _dates(days: Sequence[float]) -> Iterator[str]:
    step = (_WIDTH - _LEFT) / len(days)
    every = max(1, math.ceil(len(days) / _LABELS))
    for place in range(0, len(days), every):
        x = _LEFT + (place + 0.5) * step
        yield f'<text x="{x:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{day(days[place])[5:]}</text>'


_NONE: Final = "None in this period."


def render_html(review: Review) -> bytes:
    """The page, without scripts or external resources."""
    parts = [f"<h1>{safe(title(review))}</h1>", *(f"<p>{safe(line)}</p>" for line in provenance(review))]
    parts.append(_section(facts(review)))
    if not review.first_look:
        parts.append(section("plots", "Day by day", "\n".join(filter(None, _plots(review)))))
    parts += [_section(each) for each in tables(review)]
    return standalone_page(title(review), ICONS["idle"], _SHEET, parts)


def standalone_page(title: str, icon: str, sheet: str, parts: Iterable[str]) -> bytes:
    """A page in the style of the status page, without scripts or external resources; empty parts are left out."""
    sheet = f"{STYLE}{sheet}\nbody {{ max-width: 64rem; }}\n"
    policy = f"default-src 'none'; style-src '{source_hash(sheet)}'; img-src data:"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    body = "\n".join(filter(None, (*parts, f'<p class="soft">gpu-triage {__version__}</p>')))
    return whole_page(title, icon, sheet, f"<main>\n{body}\n</main>", head)


def _plots(review: Review) -> Iterator[str]:
    totals = review.totals
    used = [
        Band("used", "f-busy", totals["used"]),
        Band("not used", "f-seen", _difference(review.observed, totals["used"])),
    ]
    yield plot("GPU hours observed", "h", review.days, used)
    met = [(name, values) for name, values in review.held_back.items() if any(values)]
    held = [Band(name, f"c-{name}", _zero_if_seen(values, review.observed)) for name, values in met]
    yield plot("GPU hours held back, by bottleneck", "h", review.days, held)
    idle = [Band("idle", "f-idle", totals["idle"])]
    yield plot("GPU hours idle while allocated", "h", review.days, idle)
    yield plot("Energy", "kWh", review.days, [Band("GPUs", "f-energy", totals["energy"])])


def _zero_if_seen(values: ByDay, observed: ByDay) -> ByDay:
    """Held-back hours of a class, with 0 on observed days without a series."""
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
