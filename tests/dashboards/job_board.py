"""The job dashboard as Grafana asks for it: hidden variables first, then a panel's queries."""

import re

from tests.dashboards.grafana import Target, hidden_query, read, substitute, targets
from tests.dashboards.store import Series, Store

FILE = "job.json"
WHY = "Why it is slow, and what to do first"


def hidden(store: Store, file: str, name: str, **chosen: str) -> str:
    """The value of a hidden variable as Grafana makes it: all options, as one pattern."""
    (variable,) = (each for each in read(file)["templating"]["list"] if each["name"] == name)
    seconds = store.end - store.start
    found = store.at(substitute(hidden_query(file, name), seconds, **chosen), seconds)
    option = re.compile(variable["regex"].strip("/"))
    lines = ["{" + ",".join(f'{label}="{value}"' for label, value in each.labels.items()) + "} 1 0" for each in found]
    return "|".join(sorted(match[1] for line in lines if (match := option.search(line))))


def chosen_by(store: Store, file: str, **chosen: str) -> dict[str, str]:
    """All variables, once an owner is chosen."""
    of_jobs = ("owners", "ended", "lasted", "slowest", "worst", "slow_hosts") if file == FILE else ()
    for name in ("hosts", "gpus", *of_jobs):
        chosen[name] = hidden(store, file, name, **chosen)
    return chosen


def answer(store: Store, target: Target, **chosen: str) -> list[Series]:
    expr = substitute(target.expr, store.end - store.start, **chosen)
    return store.at(expr, store.end - store.start) if target.instant else store.over_time(expr)


def value_of(found: list[Series]) -> float:
    (series,) = found
    return list(series.values.values())[-1]


def rows_of_jobs() -> Target:
    """The query that has a row for each job, whether or not its pace is known."""
    return next(each for each in targets(FILE) if each.panel["title"] == WHY and each.ref == "A")
