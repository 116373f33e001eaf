"""``python -m tests.rules.month``: a month of a healthy fleet through exporters and all rules; `make long` runs it.

Each host has one exporter whose judge remembers all of the month, and the rules see the whole fleet, day by day. Prints
every host and every alert, and fails with a page, or with more than one ticket.
"""

import functools
import math
import multiprocessing
import os
import pickle
import re
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
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

Columns = Mapping[SeriesKey, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Told:
    """An alert of the month, from when it first fired."""

    at: float  # seconds from the start of the month
    labels: Labels

    def __str__(self) -> str:
        day, rest = divmod(self.at, DAY)
        where = " ".join(f"{name}={self.labels[name]}" for name in ("instance", "gpu", "owner") if name in self.labels)
        clock = f"{int(rest / 3600):02}:{int(rest % 3600 / 60):02}"
        return f"day {int(day)} {clock} {self.labels['severity']} {self.labels['alertname']} {where}"


@dataclass(frozen=True, slots=True)
class Played:
    """A folder with the months of simulated hosts, a file for each host and day."""

    folder: Path
    days: int

    def file(self, host: str, day: int) -> Path:
        return self.folder / f"{host}-day-{day}"

    def read(self, host: str, day: int) -> Columns:
        columns: Columns = pickle.loads(zlib.decompress(self.file(host, day).read_bytes()))  # noqa: S301 - our own
        return columns

    def play(self, host: Scenario) -> float:
        """Simulate a host, and write what is scraped of each day; returns the seconds of a CPU."""
        clock = VirtualClock()
        config = replace(history_config(host, STEP_SECONDS), metrics_profile="rules")
        labels = {"job": DEFAULT_JOB, "instance": host.name, **DRILL}
        with simulated_machine(host, clock=clock, when_looked_at=True) as simulated:
            observation = Observation(simulated, clock, config)
            for day in range(self.days):
                recorder = SeriesRecorder(labels, STEPS, Selection(config))
                for step in range(STEPS):
                    observation.scrape((day * STEPS + step) * STEP_SECONDS, step, recorder)
                recorder.finish()
                self.file(host.name, day).write_bytes(zlib.compress(pickle.dumps(recorder.columns), 1))
        return time.process_time()


def joined(before: Columns, day: Columns) -> Columns:
    """Two stretches of time, NaN where one has no such series."""
    length = max(map(len, before.values()), default=0)
    return {
        key: [*before.get(key, [math.nan] * length), *day.get(key, [math.nan] * STEPS)]
        for key in before.keys() | day.keys()
    }


def told(promtool: Path, played: Played, hosts: Sequence[str], number: int) -> list[Told]:
    """Alerts that began on a day."""
    day = {key: column for host in hosts for key, column in played.read(host, number).items()}
    before: dict[SeriesKey, Sequence[float]] = {}
    if number:
        before = {key: column[-LEAD:] for host in hosts for key, column in played.read(host, number - 1).items()}
    rules = alert_files()
    length = max(map(len, before.values()), default=0)
    begins = number * DAY - length * STEP_SECONDS
    start = VirtualClock().now().wall + begins
    history = History(start, STEP_SECONDS, length + STEPS, joined(before, day), ())
    series = input_series(history, mentioned(rules))
    run = Run(rules, groups_of(rules), STEP_SECONDS, series, evaluation_seconds=EVALUATION_SECONDS)
    times = [
        length * STEP_SECONDS + at for at in range(0 if number else WINDOW_SECONDS, round(DAY) + 1, WINDOW_SECONDS)
    ]
    with TemporaryDirectory() as directory:
        firing = ask(promtool, run.asking(tuple((FIRING, at) for at in times)), Path(directory)).samples
        known, began = set[str](), list[tuple[float, Labels]]()
        for at in times:
            now = {repr(sorted(sample.labels.items())): sample.labels for sample in firing[FIRING, at]}
            if not any(labels["alertname"] == WATCHDOG for labels in now.values()):
                raise click.ClickException(f"{WATCHDOG} does not fire on day {number}: the rules do not run")
            # What fires at the end of the day before began then.
            if at > length * STEP_SECONDS:
                fresh = [labels for key, labels in now.items() if key not in known]
                began += [(at, labels) for labels in fresh if labels["severity"] != "none"]
            known = set(now)
    return [Told(begins + at, labels) for at, labels in began]


@click.command()
@click.option("--days", default=30, show_default=True, help="How long.")
@click.option("--seed", default=1, show_default=True, help="Of all chance.")
@click.option("--only", default="", help="The hosts, as a regular expression, such as notebook|tune-0.")
@click.pass_context
def main(context: click.Context, days: int, seed: int, only: str) -> None:
    """Simulate a healthy fleet, and fail with a page or more than one ticket."""
    promtool = which("promtool")
    if promtool is None:
        raise click.ClickException("promtool is needed; install prometheus")
    hosts = [host for host in fleet(days, seed) if re.match(only, host.name)]
    played = Played(Path(context.with_resource(TemporaryDirectory())), days)
    click.echo(f"{len(hosts)} hosts, {days} days, --seed {seed}")
    # Each in a process of its own: pynvml has one driver per process.
    with multiprocessing.Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        runs = [(host, pool.apply_async(played.play, (host,))) for host in hosts]
        for host, run in runs:
            click.echo(f"{host.name}: {run.get():.0f} s of a CPU")
        found = list[Told]()
        names = [host.name for host in hosts]
        days_told = pool.imap(functools.partial(told, Path(promtool), played, names), range(days))
        for number, new in enumerate(days_told):
            click.echo(f"day {number}: {len(new) or 'no'} alerts")
            for each in new:
                click.echo(f"  {each}")
            found += new
    click.echo("\n".join(map(str, found)) or "no alert")
    pages, tickets = (sum(each.labels["severity"] == name for each in found) for name in ("critical", "warning"))
    if pages or tickets > MOST_TICKETS:
        sys.exit(f"{pages} pages and {tickets} tickets of a healthy fleet (--seed {seed})")


if __name__ == "__main__":
    main()
