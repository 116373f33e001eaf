"""The review as sentences and tables, on one self-contained HTML page with plots, and as Markdown; as CSV and JSON."""

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from statistics import fmean, linear_regression
from typing import Any, Final, NamedTuple

from gpu_triage import __version__
from gpu_triage.alerting.macros import GPU_HOURS
from gpu_triage.cli.fleet.fleet_view import HostKey
from gpu_triage.cli.fleet.job_pace import job_name
from gpu_triage.cli.fleet.review import DAY_SECONDS, MOST_ROWS, PENDING, ByDay, Prices, Review, total
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
    absent = {name: fact for name, fact in FACTS.items() if review.total(name) is None}
    if words := [fact.words for fact in absent.values() if fact.absent == _UNKNOWN]:
        yield f"Not recorded in this period: {', '.join(words)}."
    if absent.keys() >= PENDING.keys():
        yield "No queue: scrape kube-state-metrics or Slurm, with the label cluster of the hosts if they have one."
    for warning in review.warnings:
        yield f"Incomplete: {warning}"


def _coverage(review: Review) -> str:
    missing, count = [day(each) for each in review.missing], len(review.days)
    if not missing:
        return "Data for every day."
    named = first_few(missing, _MOST_DAYS_NAMED)
    return f"Data for {count - len(missing)} of {count} days; totals leave out the others. Missing: {named}."


class Fact(NamedTuple):
    """A headline number: its words, of which other number it is a share, what of, in words, and if it costs money."""

    words: str
    unit: str = "h"
    whole: str = ""
    of: str = ""
    costs: bool = False
    absent: str = _UNKNOWN  # shown without a value

    def text(self, value: float | None) -> str:
        return self.absent if value is None else number(value, self.unit)


_NOT_SCRAPED: Final = "not scraped"
_ALL_HOSTS: Final = "of whole clusters"

FACTS: Final = {
    "observed": Fact("observed"),
    "allocated": Fact("allocated", "h", "observed", "the observed", costs=True),
    "used": Fact("used", "h", "active", "the observed whose activity is known"),
    "idle": Fact("idle while allocated", "h", "allocated", "the allocated", costs=True),
    "serving": Fact("idle while serving", "h", "allocated", "the allocated", absent="none labeled"),
    "lost": Fact("lost", "h", "allocated", "the allocated", costs=True),
    "unavailable": Fact("unavailable", "h", "observed", "the observed", costs=True),
    "energy": Fact("Energy of the GPUs", "kWh"),
    "peak": Fact("Most GPUs allocated at once", ""),
    "free": Fact("Fewest GPUs free at once", ""),
    "pod wait": Fact("that pending pods waited for", of=_ALL_HOSTS, absent=_NOT_SCRAPED),
    "pod queue": Fact("Most GPUs that pods waited for at once", "", of=_ALL_HOSTS, absent=_NOT_SCRAPED),
    "job wait": Fact("Pending Slurm jobs", "job hours", of=_ALL_HOSTS, absent=_NOT_SCRAPED),
    "job queue": Fact("Most Slurm jobs pending at once", "", of=_ALL_HOSTS, absent=_NOT_SCRAPED),
    "outages": Fact("Outages of GPUs", ""),
    "replaced": Fact("GPUs replaced", ""),
}
"""Hours are called by the words of `GPU_HOURS`."""
DAILY: Final = ("observed", "allocated", "used", "idle", "lost", "unavailable", "energy")


def facts(review: Review) -> Table:
    """The totals, as shares, beside those of the period before, and with their prices."""
    possible = total(count if count is None else review.step_seconds / 3600 * count for count in review.gpus)
    most = max((value for value in review.gpus if value is not None), default=None)
    rows = [("GPUs" if review.first_look else "GPUs, most in a day", number(most), "", "", "")]
    for name, fact in FACTS.items():
        value = review.total(name)
        which = f"{share(value, review.total(fact.whole))} of {fact.of}" if fact.whole else fact.of
        if name == "observed":
            which = f"{share(value, possible)} of the time of these GPUs"
        title = f"GPU hours {fact.words}" if fact.unit == "h" else fact.words
        before = fact.text(review.before.get(name)) if review.before else _UNKNOWN
        rows.append((title, fact.text(value), which, before, _cost(review.prices, name, value)))
    kept = [0, 1, 2, *([] if review.first_look else [3]), *([4] if review.prices != Prices() else [])]
    heads, *cells = (tuple(row[place] for place in kept) for row in (("", "Period", "Share", "Before", "Cost"), *rows))
    return Table("facts", "Summary", forecast_of(review), heads, tuple(cells))


def _cost(prices: Prices, name: str, value: float | None) -> str:
    """With two decimals; "" for what has no price."""
    price = prices.gpu_hour if FACTS[name].costs else None
    if name == "energy" and prices.kwh is not None:
        price = prices.pue * prices.kwh
    return "" if price is None or value is None else f"{price * value:,.2f}"


FEWEST_WEEKS: Final = 4
"""Two degrees of freedom: with fewer, the interval is too wide to be of use."""
T_975: Final = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Quantiles of Student's t from two degrees of freedom on; the last one is a little wide for more."""


class Forecast(NamedTuple):
    """What a week so many weeks after the last one has by the trend, with the 95 % prediction interval of its mean."""

    now: float  # mean of the last week
    weeks: int  # half as many as the trend was seen in
    value: float
    low: float
    high: float


def forecast(days: Sequence[float | None]) -> Forecast | None:
    """A linear trend of weekly means: days differ by weekday, and neighbors are not independent.

    From one value per day, the oldest first; None for fewer than four weeks, counted from the last day, or a gap.
    """
    known = [value for value in days[len(days) % 7 :] if value is not None]
    count = len(known) // 7
    if count < FEWEST_WEEKS or count < len(days) // 7:
        return None
    means, weeks = [fmean(known[7 * week : 7 * week + 7]) for week in range(count)], range(count)
    slope, start = linear_regression(weeks, means)
    missed = sum((value - start - slope * week) ** 2 for week, value in enumerate(means))
    ahead = count // 2
    far = (count - 1) / 2 + ahead  # from the middle of the weeks
    spread = sum((week - (count - 1) / 2) ** 2 for week in weeks)
    error = math.sqrt(missed / (count - 2) * (1 + 1 / count + far**2 / spread))
    either = T_975[min(count - FEWEST_WEEKS, len(T_975) - 1)] * error
    value = start + slope * (count - 1 + ahead)
    return Forecast(means[-1], ahead, value, value - either, value + either)


def forecast_of(review: Review) -> str:
    """A sentence with the trend of allocated GPUs, or why it cannot be forecast; "" for a first look."""
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
    yield from (each(review) for each in (_classes, _jobs, _owners, _models, _hosts, _presence, _offenders, _decisions))
    yield Table("words", "Words", "", ("GPU hours", "Meaning"), tuple(GPU_HOURS.items()), words=True)


def days_table(review: Review) -> Table:
    columns = (review.gpus, *(review.totals[name] for name in DAILY))
    rows = tuple((day(at), *map(number, values)) for at, *values in zip(review.days, *columns, strict=True))
    heads = ("Day", "GPUs", *(f"{FACTS[name].words} {FACTS[name].unit}" for name in DAILY))
    return Table("days", "Day by day", "", heads, rows)


def _classes(review: Review) -> Table:
    observed = review.total("observed")
    hours = {name: total(values) or 0.0 for name, values in review.held_back.items()}
    ordered = sorted((name for name in hours if hours[name] > 0), key=lambda name: -hours[name])
    rows = tuple((name, STATES[name], number(hours[name], "h"), share(hours[name], observed)) for name in ordered)
    note = "Hours in which something other than its own work limited a GPU, however much, while it was not idle."
    heads = ("Class", "GPUs were", "Held back", "Of observed")
    return Table("classes", "GPU hours held back, by bottleneck", note, heads, rows)


def named(section: str, key: tuple[str, ...]) -> str:
    """What a row of a table is about, from the values of its labels."""
    if section == "owner":
        return _owner(*key)
    if section == "job":
        return str(job_name(dict(zip(("cluster", "owner"), key, strict=True))))
    if section == "host":
        return str(HostKey(*key))
    return f"{HostKey(*key[:3])} {key[3]}" if section == "host class" else key[0] or "unknown"


def _owner(cluster: str, namespace: str, user: str, account: str) -> str:
    """``namespace east/vision``, ``east/ada (physics)``; "" for what doesn't apply."""
    name = f"{user or 'unknown user'}{account and f' ({account})'}" if user or account else "unknown"
    return f"{'namespace ' if namespace else ''}{cluster and f'{cluster}/'}{namespace or name}"


Numbers = Mapping[str, float]
Columns = Mapping[str, Callable[[Numbers], str]]


def _ranked(
    review: Review, section: str, by: Callable[[Numbers], float], columns: Columns, about: tuple[str, str, str]
) -> Table:
    """The rows with a number above 0, the highest first; the table's name, title and note are `about` it."""
    ranked = sorted(review.tables[section].items(), key=lambda each: (-by(each[1]), each[0]))
    rows = ((key, each) for key, each in islice(ranked, MOST_ROWS) if by(each) > 0)
    cells = tuple((named(section, key), *(column(each) for column in columns.values())) for key, each in rows)
    return Table(*about, (section.capitalize(), *columns), cells)


def _hours(name: str) -> Callable[[Numbers], str]:
    return lambda each: number(each.get(name, 0.0), "h")


def _cost_of(review: Review, name: str) -> Columns:
    """A column, if there is a price."""
    priced = review.prices.gpu_hour is not None
    return {"Cost": lambda each: _cost(review.prices, name, each.get(name, 0.0))} if priced else {}


def _owners(review: Review) -> Table:
    def idle(each: Numbers) -> float:
        return each.get("idle", 0.0) + 1e-9 * each.get("allocated", 0.0)  # those without an idle hour, too

    columns: Columns = {
        "Allocated": _hours("allocated"),
        "Share idle": lambda each: share(each.get("idle", 0.0), each["allocated"]),
        "Idle while allocated": _hours("idle"),
        **_cost_of(review, "idle"),
    }
    note = "A shared GPU counts by shares. The most hours idle while allocated first."
    return _ranked(review, "owner", idle, columns, ("owners", "GPU hours by owner", note))


def _jobs(review: Review) -> Table:
    columns = {"Lost": _hours("lost"), **_cost_of(review, "lost")}
    about = ("jobs", "GPU hours lost, by job", GPU_HOURS["lost"])
    return _ranked(review, "job", lambda each: each["lost"], columns, about)


def _models(review: Review) -> Table:
    def known(each: Numbers) -> float:
        return each.get("observed", 0.0) + each.get("held back", 0.0)

    columns: Columns = {
        "Observed": _hours("observed"),
        "Used": lambda each: share(each.get("used"), each.get("active")),
        "95th percentile": lambda each: f"{each['p95']:.0%}" if "p95" in each else _UNKNOWN,
        "Headroom": lambda each: f"{max(0.0, 1 - each['p95']):.0%}" if "p95" in each else _UNKNOWN,
        "Unavailable": _hours("unavailable"),
        "Held back": _hours("held back"),
    }
    note = (
        "Headroom is what the 95th percentile of utilization in a day leaves, as the mean of all GPUs and days. Used "
        "above 80 % for weeks: buy more, or queue. Below 40 %: share GPUs, or return some."
    )
    return _ranked(review, "model", known, columns, ("models", "Use and headroom, by model", note))


def _hosts(review: Review) -> Table:
    note = "The hosts that were held back most, and by what; all GPUs of a host together."
    about = ("hosts", "GPU hours held back, by host", note)
    return _ranked(review, "host class", lambda each: each["held back"], {"Held back": _hours("held back")}, about)


AWAY: Final = 0.02
"""Share of the time that a host misses by a restart now and then."""


def _presence(review: Review) -> Table:
    def away(each: Numbers) -> float:
        hours = each.get("unobserved", 0.0) + each.get("unavailable", 0.0)
        broke = each.get("outages") or each.get("replaced")
        return hours + 1e-9 if broke or hours > AWAY * each.get("observed", 0.0) else 0.0

    def repair(each: Numbers) -> str:
        return number(each["unavailable"] / each["outages"], "h") if each.get("outages") else _UNKNOWN

    columns: Columns = {
        "Not observed": _hours("unobserved"),
        "Unavailable": _hours("unavailable"),
        "Of both in maintenance": _hours("planned"),
        "Outages of GPUs": lambda each: number(each.get("outages")),
        "Hours to repair": repair,
        "GPUs replaced": lambda each: number(each.get("replaced")),
    }
    note = "Hosts with outages or other GPUs than before, or not observed or unavailable for more than 2 % of the time."
    return _ranked(review, "host", away, columns, ("presence", "Hosts that were away", note))


def _offenders(review: Review) -> Table:
    rows = tuple(
        (each.board, f"{each.key} GPU {each.gpu}", kind_in_words(each.kind), str(each.times))
        for each in review.offenders
    )
    note = "Boards that had one kind of incident three times within 30 days, or twice within 7: replace them."
    heads = ("Board", "Where", "Incident", "Times in 30 days")
    return Table("offenders", "Hardware that fails again and again", note, heads, rows, words=True)


def _decisions(review: Review) -> Table:
    rows = tuple((each.gpu, each.what, day(each.at), each.by, each.note) for each in review.decisions)
    note = "Findings that operators accepted, with the date until when; and repairs."
    return Table("decisions", "Accepted and repaired", note, ("GPU", "What", "Date", "By", "Note"), rows, words=True)


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
    held = [Band(name, f"c-{name}", values) for name, values in review.held_back.items() if any(values)]
    yield plot("GPU hours held back, by bottleneck", "h", review.days, held)
    idle = [Band("idle", "f-idle", totals["idle"])]
    yield plot("GPU hours idle while allocated", "h", review.days, idle)
    yield plot("Energy", "kWh", review.days, [Band("GPUs", "f-energy", totals["energy"])])


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


def _measures(review: Review) -> Iterator[tuple[str, str, str, float | None]]:
    """Section, row such as a day or host, name and number: GPU hours, energy in kWh; None for what was not recorded."""
    for name in (*review.totals, "replaced"):
        yield "total", "", name, review.total(name)
        yield "before", "", name, review.before.get(name)
    for name, values in review.totals.items():
        yield from (("day", day(at), name, value) for at, value in zip(review.days, values, strict=True))
    for name, values in review.held_back.items():
        yield "class", name, "held back", total(values)
    for kind, rows in review.tables.items():
        for key, numbers in sorted(rows.items()):
            yield from ((kind, named(kind, key), name, value) for name, value in sorted(numbers.items()))


def render_csv(review: Review) -> str:
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(("section", "name", "measure", "value"))
    for kind, name, measure, value in _measures(review):
        # Names of pods and users are untrusted: none is a formula to a spreadsheet.
        writer.writerow((kind, f"'{name}" if name[:1] in {*"=+-@\t\r"} else name, measure, value))
    return rows.getvalue()


def render_json(review: Review) -> str:
    sections: defaultdict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(dict))
    for kind, name, measure, value in _measures(review):
        (sections[kind][name] if name else sections[kind])[measure] = value
    about = {name: getattr(review, name) for name in ("source", "selection", "end", "warnings")}
    missing = [day(each) for each in review.missing]
    about["decisions"] = [each._asdict() for each in review.decisions]
    return json.dumps({**about, "missing": missing, "prices": review.prices._asdict(), **sections}, indent=2) + "\n"
