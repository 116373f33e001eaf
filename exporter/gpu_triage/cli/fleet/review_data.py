"""The review as numbers for programs, with None for what was not recorded: JSON, and CSV with a row for each number.

Hours are GPU hours, energy is in kWh.
"""

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from gpu_triage.cli.fleet.review import Review, total
from gpu_triage.cli.fleet.review_page import day, named


def _measures(review: Review) -> Iterator[tuple[str, str, str, float | None]]:
    """Sections, names of their rows such as a day or host, names of numbers, and numbers."""
    for name, values in review.totals.items():
        yield "total", "", name, review.total(name)
        yield "before", "", name, review.before.get(name)
        yield from (("day", day(at), name, value) for at, value in zip(review.days, values, strict=True))
    for name, values in review.held_back.items():
        yield "class", name, "held back", total(values)
    for section, rows in review.tables.items():
        for key, numbers in sorted(rows.items()):
            yield from ((section, named(section, key), name, value) for name, value in sorted(numbers.items()))


def render_csv(review: Review) -> str:
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(("section", "name", "measure", "value"))
    for section, name, measure, value in _measures(review):
        # Names of pods and users are untrusted: none is a formula to a spreadsheet.
        writer.writerow((section, f"'{name}" if name[:1] in {*"=+-@\t\r"} else name, measure, value))
    return rows.getvalue()


def render_json(review: Review) -> str:
    sections: defaultdict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(dict))
    for section, name, measure, value in _measures(review):
        (sections[section][name] if name else sections[section])[measure] = value
    about = {name: getattr(review, name) for name in ("source", "selection", "end", "warnings")}
    missing = [day(each) for each in review.missing]
    return json.dumps({**about, "missing": missing, "prices": review.prices._asdict(), **sections}, indent=2) + "\n"
