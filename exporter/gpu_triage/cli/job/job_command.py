"""The command `gpu-triage job`: its options and its exit code."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import click

from gpu_triage.cli.fleet.fleet_command import at_option, limit_option, parse_moment, price_option, server_options
from gpu_triage.cli.fleet.fleet_view import Selection
from gpu_triage.cli.fleet.prometheus import PrometheusClient
from gpu_triage.cli.job.advice import advice_on, compare
from gpu_triage.cli.job.job_facts import facts_of, window_of
from gpu_triage.cli.job.job_report import FORMAT, VERSION, JobReport, render_html, render_json, render_text, run_json
from gpu_triage.cli.job.job_runs import WANTED, Run, SeveralJobs, Wanted, find
from gpu_triage.cli.job.job_view import job_of, notes_on
from gpu_triage.cli.one_shot import echo_text, fail_on_option, format_option
from gpu_triage.documents import printable, quoted
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import EXIT_COULD_NOT_LOOK, EXIT_FINDINGS, EXIT_SOUND
from gpu_triage.options.values import TextType, parse_duration
from gpu_triage.serve.page.markup import date_time

_MOST_LISTED: Final = 20
_DAYS: Final = re.compile(r"([0-9]{1,3})d")


def parse_since(text: str) -> Callable[[float], float]:
    """A function that returns the time, from the end of the job if it is a duration such as ``2h`` or ``3d``."""
    days = _DAYS.fullmatch(text)
    with suppress(ValueError):
        seconds = 86_400.0 * int(days[1]) if days else parse_duration(text)
        return lambda end: end - seconds
    try:
        moment = parse_moment(text)
    except ValueError as error:
        raise ValueError(f"{quoted(text)} is no duration and no time; write 2h, 3d or 2026-11-22T10:00:00Z") from error
    return lambda _end: moment


@click.command("job", short_help="Say why a job is slow, from the Prometheus of its hosts.")
@click.argument("job_name", metavar="JOB", type=WANTED)
@server_options
@at_option("Time to look back from, such as 2026-11-22T10:00:00Z.")
@click.option(
    "--since",
    metavar="TIME",
    type=TextType("TIME", parse_since, str),
    help="Look at the last part of the job only: a duration such as 2h or 3d, or a time.  [default: its start]",
)
@price_option
@limit_option("Most findings, and most hosts, to show.")
@fail_on_option
@format_option(text="people", json="programs", html="tickets")
def job_command(
    *,
    job_name: Wanted,
    client: PrometheusClient,
    selection: Selection,
    at: float | None,
    since: Callable[[float], float] | None,
    gpu_hour_price: float | None,
    limit: int,
    fail_on: str,
    form: str,
) -> int:
    """Show why a job is slow: what it loses, which GPU or host the others wait for, findings, and what to do first.

    JOB is the number of a Slurm job, a pod (NAMESPACE/POD), the name of a workload for all of its pods, or a user. A
    prefix decides if it could be several: slurm:4711, pod:train-0, user:ada. A job that has ended is looked at as long
    as Prometheus remembers it.

    \b
      gpu-triage job 4711 --prometheus http://prometheus:9090
      gpu-triage job research/train --prometheus http://prometheus:9090 --since 2h
      gpu-triage job 4711 --prometheus http://prometheus:9090 --format html > ticket.html

    Exit code: 0 no finding on its GPUs and hosts is as severe as --fail-on, 1 one is, 2 the server does not answer, no
    job matches or several do, or the options cannot be used, 70 a fault of this program.
    """  # noqa: D301 - click needs the backspace escape
    try:
        found = find(client, selection, job_name, at)
    except SeveralJobs as several:
        _list(several.runs, form)
        return EXIT_COULD_NOT_LOOK
    run = found.run
    start = None if since is None else since(run.end)
    if start is not None and start >= run.end:
        had = f"{run} had its GPUs from {date_time(run.start)} to {date_time(run.end)}"
        raise PrometheusUnavailable(f"{client.url}: {had}; --since is after that")
    window = window_of(run, start)
    job = job_of(found, window, facts_of(client, selection, found, window))
    comparison = compare(job)
    advice, notes = advice_on(job, comparison), tuple(notes_on(job))
    shown = JobReport(job, comparison, advice, notes, client.url, tuple(client.warnings), limit, gpu_hour_price)
    if form == "json":
        click.echo(render_json(shown), nl=False)
    elif form == "html":
        click.echo(render_html(shown).decode(), nl=False)
    else:
        echo_text(partial(render_text, shown))
    worst = max((finding.rank for finding in job.findings), default=-1)
    return EXIT_FINDINGS if worst >= Severity(fail_on).rank else EXIT_SOUND


def _list(runs: tuple[Run, ...], form: str) -> None:
    if form == "json":
        document = {"format": FORMAT, "version": VERSION, "matches": [run_json(run) for run in runs]}
        click.echo(json.dumps(document, indent=2))
    click.echo(f"{len(runs)} jobs match, the latest first:", err=True)
    for run in runs[:_MOST_LISTED]:
        cluster = f" in cluster {run.key.cluster}" if run.key.cluster else ""
        what = f"{run}{cluster}, {run.gpus} GPU{'s' * (run.gpus != 1)}, last seen {date_time(run.end)}"
        click.echo(printable(f"    {what}: gpu-triage job {how_to_choose(run, runs)}"), err=True)
    if len(runs) > _MOST_LISTED:
        click.echo(f"    and {len(runs) - _MOST_LISTED} more", err=True)


def how_to_choose(run: Run, runs: tuple[Run, ...]) -> str:
    key = run.key
    argument = key.argument
    others = [each for each in runs if each is not run]
    if any(each.key.kind is not key.kind for each in others):
        argument = f"{key.kind.value}:{argument}"
    same = [each for each in others if (each.key.kind, each.key.namespace, each.key.name) == key[:1] + key[2:]]
    if any(each.key.cluster != key.cluster for each in same):
        argument += f" --cluster {re.escape(key.cluster) or chr(39) * 2}"
    if any(each.key.cluster == key.cluster for each in same):
        argument += f" --at {run.end:.0f}"
    return argument
