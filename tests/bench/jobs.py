"""What is said of random jobs with one hidden truth each: who is named, how much is lost, and how often in vain.

And what that costs a Prometheus for one large job.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from shutil import which
from statistics import median

import click
from tests.bench.page import TO_SCREEN, conditions, report, table
from tests.jobs.played import OF_JOBS, Outcome, play
from tests.jobs.random_jobs import HANGS, HEALTHY, SAMPLE_SECONDS, SLOW, Case, cases, large, series_of
from tests.promql.promtool import Run, ask, selector
from tests.rules.handwritten import Series
from tests.rules.rulefile import group_alone, groups_of

BATCH = 12
"""Jobs that are played at once."""
COSTED = {"GpuJobSlow": 60.0, "GpuJobHung": 30.0}
"""An alert of each group that is measured, and the group's interval."""
COSTED_MINUTES = (40, 60)
"""The evaluations between these are counted: from minute 30 on, everything is known that the rules look at."""


def row(kind: str, outcomes: Sequence[Outcome]) -> dict[str, object]:
    large = [each for each in outcomes if each.case.truth.loss >= 0.1]
    told = [min(each.told.values()) for each in large if OF_JOBS & set(each.told)]
    errors = [
        abs(each.lost - each.case.truth.loss) * 100
        for each in outcomes
        if each.lost is not None and each.case.truth.loss
    ]
    return {
        "kind<": kind,
        "jobs": len(outcomes),
        "culprit of 10 % or more": f"{sum(each.right for each in large)} of {len(large)}" if large else "",
        "minutes, median / most": f"{median(told):.1f} / {max(told):.1f}" if told else "",
        "error of the loss, points, median / most": f"{median(errors):.1f} / {max(errors):.1f}" if errors else "",
        "innocent named": sum(each.named is not None and not each.right for each in outcomes),
        "false alerts": sum(bool(each.told) for each in outcomes if not each.case.truth.loss),
    }


def rows(outcomes: Sequence[Outcome]) -> Iterator[dict[str, object]]:
    for kind in (*SLOW, *HANGS):
        yield row(kind, [each for each in outcomes if each.case.kind == kind])
    yield row("healthy", [each for each in outcomes if each.case.kind in HEALTHY])
    yield row("all", outcomes)


def cost(promtool: Path, case: Case) -> Iterator[dict[str, object]]:
    count = round(COSTED_MINUTES[1] * 60 / SAMPLE_SECONDS)
    series = {selector(name, labels): values[:count] for (name, labels), values in series_of(case).items()}
    for alert, interval in COSTED.items():
        with tempfile.TemporaryDirectory() as directory:
            rules = group_alone(alert, Path(directory), "instance_gpu_owner:gpu_job:member")
            each = evaluation_seconds(promtool, rules, series, SAMPLE_SECONDS, interval)
        yield {
            "group of<": alert,
            "GPUs of the job": len(case.job.ranks),
            "CPU of an evaluation": f"{each * 1000:.0f} ms",
            "share of its interval": f"{each / interval:.1%}",
        }


def evaluation_seconds(
    promtool: Path, rules: tuple[Path, ...], series: Series, sample_seconds: float, interval: float
) -> float:
    """The CPU time of an evaluation: how much more a run takes that ends later, with the same series."""
    took = []
    with tempfile.TemporaryDirectory() as directory:
        for minute in COSTED_MINUTES:
            run = Run(rules, groups_of(rules), sample_seconds, series, (("up", minute * 60.0),), (), interval)
            before = os.times()
            ask(promtool, run, Path(directory))
            after = os.times()
            took.append(sum(after[2:4]) - sum(before[2:4]))
    return (took[1] - took[0]) / ((COSTED_MINUTES[1] - COSTED_MINUTES[0]) * 60 / interval)


@click.command()
@click.option("--jobs", default=72, show_default=True, help="How many.")
@click.option("--hosts", default=100, show_default=True, help="Of the large job, with 8 GPUs each.")
@click.option("--seed", default=1, show_default=True, help="Of all chance.")
@TO_SCREEN
def main(jobs: int, hosts: int, seed: int, *, to_screen: bool) -> None:
    """What is said of random jobs: culprit, loss, time, and false alerts."""
    programs = [which(name) for name in ("promtool", "prometheus")]
    if None in programs:
        raise click.ClickException("promtool and prometheus are needed; install prometheus")
    promtool, prometheus = (Path(str(each)) for each in programs)
    source = cases(jobs, seed)
    outcomes: list[Outcome] = []
    while batch := list(islice(source, BATCH)):
        with tempfile.TemporaryDirectory() as directory:
            outcomes += play(promtool, prometheus, Path(directory), batch)
        click.echo(f"{len(outcomes)} of {jobs} jobs", err=True)
        for each in outcomes[-len(batch) :]:
            if not each.right or (each.told and not each.case.truth.loss):
                what = (
                    f"loses {each.case.truth.loss:.0%}, found {each.lost}, named {each.named}, told {dict(each.told)}"
                )
                click.echo(f"  {each.case.name}: {what}", err=True)
    costs = list(table(cost(promtool, large(hosts, seed))))
    report("jobs", [conditions(), "", *table(rows(outcomes)), "", *costs], to_screen=to_screen)
