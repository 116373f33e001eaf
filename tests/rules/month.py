"""``python -m tests.rules.month``: a month of a healthy fleet through exporters and all rules; `make long` runs it.

Each host has one exporter whose judge remembers all of the month, and the rules see the whole fleet, day by day. Prints
every host-day and every alert, and fails with a page, or with more than one ticket.
"""

import math
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Queue
from shutil import which
from tempfile import TemporaryDirectory
from typing import Final

import click
from tests.promql.promtool import Labels, Run, ask
from tests.recordings import DRILL
from tests.rules.examine import input_series, mentioned
from tests.rules.rulefile import alert_files, groups_of
from tests.rules.verdict import WATCHDOG

from gpu_triage.read.selection import Selection
from gpu_triage_simulator import Scenario, VirtualClock, simulated_machine
from gpu_triage_simulator.healthy_fleet import DAY, fleet
from gpu_triage_simulator.history import DEFAULT_JOB, History, Observation, SeriesKey, history_config
from gpu_triage_simulator.series import SeriesRecorder

STEP_SECONDS: Final = 60.0
STEPS: Final = round(DAY / STEP_SECONDS)
LEAD: Final = round(2 * 3600 / STEP_SECONDS)
"""How far back alerts look, in steps: the rules of a day begin so much before it."""
WINDOW_SECONDS: Final = 300
EVALUATION_SECONDS: Final = 120.0
"""Half as many evaluations as scrapes; whatever fires stays for longer."""
FIRING: Final = f'max_over_time(ALERTS{{alertstate="firing"}}[{WINDOW_SECONDS}s])'
MOST_TICKETS: Final = 1
AHEAD: Final = 8
"""Host-days that wait for the rules at most; each takes a few MB."""

Columns = Mapping[SeriesKey, Sequence[float]]
Waiting = Queue[tuple[int, str, Columns, float]]


@dataclass(frozen=True, slots=True)
class Told:
    """An alert of the month, from when it first fired."""

    at: float  # seconds from the start of the month
    labels: Labels
    summary: str

    def __str__(self) -> str:
        day, rest = divmod(self.at, DAY)
        where = " ".join(f"{name}={self.labels[name]}" for name in ("instance", "gpu", "owner") if name in self.labels)
        clock = f"{int(rest / 3600):02}:{int(rest % 3600 / 60):02}"
        return f"day {int(day)} {clock} {self.labels['severity']} {self.labels['alertname']} {where}: {self.summary}"


def play(host: Scenario, days: int, turns: AbstractContextManager[bool], played: Waiting) -> None:
    """Simulate a host, and put what is scraped of each day into a queue.

    It takes turns with others, each in a process of its own: pynvml has one driver per process.
    """
    clock = VirtualClock()
    config = replace(history_config(host, STEP_SECONDS), metrics_profile="rules")
    labels = {"job": DEFAULT_JOB, "instance": host.name, **DRILL}
    with simulated_machine(host, clock=clock, when_looked_at=True) as simulated:
        observation = Observation(simulated, clock, config)
        for day in range(days):
            began, recorder = time.process_time(), SeriesRecorder(labels, STEPS, Selection(config))
            with turns:
                for step in range(STEPS):
                    observation.scrape((day * STEPS + step) * STEP_SECONDS, step, recorder)
            recorder.finish()
            played.put((day, host.name, recorder.columns, time.process_time() - began))


def joined(before: Columns, day: Columns) -> Columns:
    """Two stretches of time, NaN where one has no such series."""
    length = max(map(len, before.values()), default=0)
    return {
        key: [*before.get(key, [math.nan] * length), *day.get(key, [math.nan] * STEPS)]
        for key in before.keys() | day.keys()
    }


def told(promtool: Path, before: Columns, day: Columns, number: int, known: set[str]) -> Iterator[Told]:
    """Alerts that began on a day; `known` is those that fire at its start, and then those at its end."""
    rules = alert_files()
    length = max(map(len, before.values()), default=0)
    begins = number * DAY - length * STEP_SECONDS
    start = VirtualClock().now().wall + begins
    history = History(start, STEP_SECONDS, length + STEPS, joined(before, day), ())
    series = input_series(history, mentioned(rules))
    run = Run(rules, groups_of(rules), STEP_SECONDS, series, evaluation_seconds=EVALUATION_SECONDS)
    times = [length * STEP_SECONDS + at for at in range(WINDOW_SECONDS, round(DAY) + 1, WINDOW_SECONDS)]
    with TemporaryDirectory() as directory:
        firing = ask(promtool, run.asking(tuple((FIRING, at) for at in times)), Path(directory)).samples
        began: list[tuple[float, Labels]] = []
        for at in times:
            now = {repr(sorted(sample.labels.items())): sample.labels for sample in firing[FIRING, at]}
            if not any(labels["alertname"] == WATCHDOG for labels in now.values()):
                raise click.ClickException(f"{WATCHDOG} does not fire on day {number}: the rules do not run")
            began += [(at, labels) for key, labels in now.items() if key not in known and labels["severity"] != "none"]
            known.clear()
            known.update(now)
        moments = tuple({(labels["alertname"], at) for at, labels in began})
        texts = ask(promtool, run.asking(alerts=moments), Path(directory)).alerts if moments else {}
    for at, labels in began:
        alike = (each for each in texts[labels["alertname"], at] if each.labels.items() <= labels.items())
        yield Told(begins + at, labels, next((each.annotations["summary"] for each in alike), "it ended at once"))


@click.command()
@click.option("--days", default=30, show_default=True, help="How long.")
@click.option("--seed", default=1, show_default=True, help="Of all chance.")
@click.option("--only", default="", help="The hosts, as a regular expression, such as notebook|tune-0.")
@click.option(
    "--processes", default=os.cpu_count() or 1, show_default=True, help="How many hosts are simulated at once."
)
def main(days: int, seed: int, only: str, processes: int) -> None:
    """Simulate a healthy fleet, and fail with a page or more than one ticket."""
    promtool = which("promtool")
    if promtool is None:
        raise click.ClickException("promtool is needed; install prometheus")
    hosts = [host for host in fleet(days, seed) if re.match(only, host.name)]
    click.echo(f"{len(hosts)} hosts, {days} days, --seed {seed}")
    waiting: Waiting = multiprocessing.Queue(AHEAD + len(hosts))  # type: ignore[assignment]  # has the same methods
    turns = multiprocessing.Semaphore(processes)
    for host in hosts:
        multiprocessing.Process(target=play, args=(host, days, turns, waiting), daemon=True).start()
    found, known, before = list[Told](), set[str](), dict[SeriesKey, Sequence[float]]()
    days_of: dict[int, dict[str, Columns]] = {}
    for day in range(days):
        while len(days_of.setdefault(day, {})) < len(hosts):
            number, name, columns, seconds = waiting.get(timeout=3600)
            days_of.setdefault(number, {})[name] = columns
            click.echo(f"day {number} of {name}: {seconds:.0f} s of a CPU")
        fresh = {key: column for columns in days_of.pop(day).values() for key, column in columns.items()}
        began = time.monotonic()
        new = list(told(Path(promtool), before, fresh, day, known))
        click.echo(f"day {day}, the rules: {time.monotonic() - began:.0f} s")
        for each in new:
            click.echo(f"  {each}")
        found += new
        before = {key: column[-LEAD:] for key, column in fresh.items()}
    click.echo("\n".join(map(str, found)) or "no alert")
    pages, tickets = (sum(each.labels["severity"] == name for each in found) for name in ("critical", "warning"))
    if pages or tickets > MOST_TICKETS:
        sys.exit(f"{pages} pages and {tickets} tickets of a healthy fleet (--seed {seed})")


if __name__ == "__main__":
    main()
