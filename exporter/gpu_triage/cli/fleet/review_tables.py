"""The review as sentences and tables, shared by all output formats."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.render import moment
from gpu_triage.cli.fleet.review import DAY_SECONDS, Review, total
from gpu_triage.cli.fleet.review_queries import MOST_ROWS
from gpu_triage.judge.conditions.repeat_offenders import kind_in_words
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.report.headline import STATES

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
    """A UTC day: ``2026-11-22``."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d}"


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
    """The title, with the period covered."""
    if review.first_look:
        return f"GPU capacity review, first look at {length_of_time(review.step_seconds)}"
    return f"GPU capacity review, {day(review.days[0])} to {day(review.end - DAY_SECONDS)}"


def provenance(review: Review) -> Iterator[str]:
    """The source of the numbers, and what data is missing."""
    which = f", hosts {review.selection}" if review.selection else ""
    if review.first_look:
        yield f"From {review.source}{which}, from raw series; the period ends at {moment(review.end)}."
        yield "A review of whole days reads recorded series and has more: leave out --since once a day is complete."
    else:
        yield f"From {review.source}{which}. Days are in UTC; the period ends at {moment(review.end)}."
        yield _coverage(review)
    absent = [
        name
        for name, values in (
            ("allocated but idle hours", review.idle),
            ("energy", review.energy),
            ("hours by owner", review.owners),
            ("hours by model", review.models),
        )
        if not any(value is not None for value in values)
    ]
    if absent:
        yield f"Not recorded in this period: {', '.join(absent)}."
    for warning in review.warnings:
        yield f"Incomplete: {warning}"


def _coverage(review: Review) -> str:
    missing = [day(each) for each in review.missing]
    count = len(review.days)
    if not missing:
        return "Data for every day."
    more = len(missing) - _MOST_DAYS_NAMED
    named = ", ".join(missing[:_MOST_DAYS_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"Data for {count - len(missing)} of {count} days; totals leave out the others. Missing: {named}."


def facts(review: Review) -> Table:
    """Totals for the whole period."""
    observed, busy, idle = total(review.observed), total(review.busy), total(review.idle)
    lost = total(review.lost_by_day)
    possible = total(count if count is None else review.step_seconds / 3600 * count for count in review.gpus)
    most = max((value for value in review.gpus if value is not None), default=None)
    rows = (
        ("GPUs" if review.first_look else "GPUs, most in a day", number(most), ""),
        ("GPU hours observed", number(observed, "h"), f"{share(observed, possible)} of the time of these GPUs"),
        ("GPU hours with work", number(busy, "h"), f"{share(busy, observed)} of the observed"),
        ("GPU hours lost to a bottleneck", number(lost, "h"), f"{share(lost, observed)} of the observed"),
        ("GPU hours allocated but idle", number(idle, "h"), f"{share(idle, observed)} of the observed"),
        ("Energy of the GPUs", number(total(review.energy), "kWh"), ""),
    )
    return Table("facts", "Summary", "", ("", "Period", "Share"), rows)


def tables(review: Review) -> Iterator[Table]:
    """All tables after the summary."""
    yield _classes(review)
    yield _owners(review)
    yield _models(review)
    yield _hosts(review)
    yield _offenders(review)


def days_table(review: Review) -> Table:
    """A table with one row per day."""
    columns = (review.gpus, review.observed, review.busy, review.lost_by_day, review.idle, review.energy)
    rows = tuple((day(at), *map(number, values)) for at, *values in zip(review.days, *columns, strict=True))
    heads = ("Day", "GPUs", "Observed h", "With work h", "Lost h", "Allocated idle h", "Energy kWh")
    return Table("days", "Day by day", "", heads, rows)


def _classes(review: Review) -> Table:
    observed = total(review.observed)
    hours = {name: total(values) or 0.0 for name, values in review.lost.items()}
    ordered = sorted((name for name in hours if hours[name] > 0), key=lambda name: -hours[name])
    rows = tuple((name, STATES[name], number(hours[name], "h"), share(hours[name], observed)) for name in ordered)
    note = "Hours in which something other than its own work limited a GPU, while it was not idle."
    return Table("classes", "Hours lost by bottleneck", note, ("Class", "GPUs were", "Lost", "Of observed"), rows)


def _owners(review: Review) -> Table:
    rows = tuple(
        (
            str(each.owner),
            number(each.allocated, "h"),
            number(each.busy, "h"),
            number(each.unused, "h"),
            share(each.busy, each.allocated),
        )
        for each in review.owners[:MOST_ROWS]
    )
    note = "What each owner had, used, and left unused; a shared GPU counts by shares. The most unused first."
    return Table("owners", "Allocated and used, by owner", note, ("Owner", "Had", "Used", "Unused", "Use"), rows)


def _models(review: Review) -> Table:
    rows = tuple(
        (
            each.name,
            number(each.observed, "h"),
            share(each.busy, each.observed),
            _UNKNOWN if each.p95 is None else f"{each.p95:.0%}",
            _UNKNOWN if each.p95 is None else f"{max(0.0, 1 - each.p95):.0%}",
            number(each.lost, "h"),
        )
        for each in review.models[:MOST_ROWS]
    )
    note = (
        "Headroom is what the 95th percentile of utilization in a day leaves, as the mean of all GPUs and days. Busy "
        "above 80 % for weeks: buy more, or queue. Below 40 %: share GPUs, or return some."
    )
    heads = ("Model", "Observed", "Busy", "95th percentile", "Headroom", "Lost")
    return Table("models", "Use and headroom, by model", note, heads, rows)


def _hosts(review: Review) -> Table:
    rows = tuple((str(each.key), each.name, number(each.hours, "h")) for each in review.hosts)
    note = "The hosts that lost most, and to what; all GPUs of a host together."
    return Table("hosts", "Hours lost by host", note, ("Host", "Class", "Lost"), rows, words=True)


def _offenders(review: Review) -> Table:
    rows = tuple(
        (each.board, f"{each.key} GPU {each.gpu}", kind_in_words(each.kind), str(each.times))
        for each in review.offenders
    )
    note = "Boards that had one kind of incident three times within 30 days, or twice within 7: replace them."
    heads = ("Board", "Where", "Incident", "Times in 30 days")
    return Table("offenders", "Hardware that fails again and again", note, heads, rows, words=True)
