"""The review as numbers for programs: JSON, and CSV with a row for each number."""

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpu_triage.cli.fleet.review import Review
from gpu_triage.cli.fleet.review_page import day


class Measure(NamedTuple):
    """One number; hours are GPU hours, energy is in kWh, and a cost in the currency of the prices."""

    section: str  # total, before, day, class, owner, job, model, host or host class
    name: str  # such as a day or host; "" in the first two sections
    measure: str
    value: float | None  # None if it was not recorded


def measures(review: Review) -> Iterator[Measure]:
    for name, values in review.totals.items():
        yield Measure("total", "", name, review.total(name))
        yield Measure("before", "", name, review.before.get(name))
        yield from (Measure("day", day(at), name, value) for at, value in zip(review.days, values, strict=True))
    for name, values in review.held_back.items():
        yield Measure("class", name, "held back", sum(value or 0.0 for value in values))
    for owner in review.owners:
        yield from _fields("owner", str(owner.owner), {"allocated": owner.allocated, "idle": owner.idle})
    for job, hours in review.jobs.items():
        yield Measure("job", str(job), "lost", hours)
    for model in review.models:
        found = model._asdict()
        yield from _fields("model", found.pop("name"), found)
    for host in review.presence:
        found = host._asdict()
        yield from _fields("host", str(found.pop("key")), found)
    for each in review.hosts:
        yield Measure("host class", f"{each.key} {each.name}", "held back", each.hours)


def _fields(section: str, name: str, values: dict[str, float | None]) -> Iterator[Measure]:
    return (Measure(section, name, measure.replace("_", " "), value) for measure, value in values.items())


def render_csv(review: Review) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(Measure._fields)
    rows.writerows(_inert(each) for each in measures(review))
    return text.getvalue()


def _inert(each: Measure) -> Measure:
    """Without formulas for a spreadsheet: names of pods and users are untrusted."""
    return each._replace(name=f"'{each.name}") if each.name[:1] in tuple("=+-@\t\r") else each


def render_json(review: Review) -> str:
    sections: defaultdict[str, dict[str, dict[str, float | None]]] = defaultdict(lambda: defaultdict(dict))
    for each in measures(review):
        sections[each.section][each.name][each.measure] = each.value
    found: dict[str, Any] = {
        "source": review.source,
        "selection": review.selection,
        "end": review.end,
        "missing": [day(each) for each in review.missing],
        "warnings": review.warnings,
        "prices": review.prices._asdict(),
        **{name: values.get("", {}) if name in ("total", "before") else values for name, values in sections.items()},
    }
    return json.dumps(found, indent=2) + "\n"
