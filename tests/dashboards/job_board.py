"""The job dashboard as Grafana asks for it: hidden variables first, then a panel's queries."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.dashboards.grafana import Target, first_screen, hidden_query, read, shown_as, substitute, targets, title_of
from tests.dashboards.store import Series, Store

from gpu_triage_simulator.schema import read_toml

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


def unanswered(questions: Mapping[str, Any], file: str, ask: Callable[[Target], list[Series]]) -> list[str]:
    """Questions of `questions.toml` that the first screen of a dashboard does not answer as it says."""
    screen = {title_of(panel): panel["id"] for panel in first_screen(read(file))}
    assert {*questions} == {"seen", *QUESTIONS}
    found = []
    for question in QUESTIONS:
        for title, name, says in questions[question] if isinstance(questions[question], list) else ():
            mine = [each for each in targets(file) if each.panel["id"] == screen.get(title)]
            of_all = {
                said for one in mine for each in ask(one) for said in shown_as(one, name, each.labels, value_of([each]))
            }
            if not any(re.fullmatch(says, said) for said in of_all):
                found.append(f"{question} by {title}, {name}: {sorted(of_all)}")
    return found


QUESTIONS_OF = read_toml(Path(__file__).with_name("questions.toml"))
QUESTIONS = ("what broke", "who waits for whom", "since when", "what does it cost", "what next")


def value_of(found: list[Series]) -> float:
    (series,) = found
    return list(series.values.values())[-1]


def rows_of_jobs() -> Target:
    """The query that has a row for each job, whether or not its pace is known."""
    return next(each for each in targets(FILE) if each.panel["title"] == WHY and each.ref == "A")
