"""What is said of random jobs with one hidden truth each: who is named, how much is lost, and how often in vain."""

import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from shutil import which
from statistics import median

import click
from tests.bench.page import TO_SCREEN, conditions, report, table
from tests.jobs.played import OF_JOBS, Outcome, play
from tests.jobs.random_jobs import HANGS, HEALTHY, SLOW, cases

BATCH = 12
"""Jobs that are played at once."""


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
        "loses 10 % or more": len(large),
        "culprit named": f"{sum(each.right for each in large)} of {len(large)}" if large else "",
        "told": f"{len(told)} of {len(large)}" if large else "",
        "minutes, median / most": f"{median(told):.1f} / {max(told):.1f}" if told else "",
        "error of the loss, points, median / most": f"{median(errors):.1f} / {max(errors):.1f}" if errors else "",
        "innocent named": sum(each.named is not None and not each.right for each in outcomes),
        "false alerts": sum(bool(each.told) for each in outcomes if not each.case.truth.loss),
    }


def rows(outcomes: Sequence[Outcome]) -> Iterator[dict[str, object]]:
    for kind in (*SLOW, *HANGS, *HEALTHY):
        yield row(kind, [each for each in outcomes if each.case.kind == kind])
    yield row("all", outcomes)


@click.command()
@click.option("--jobs", default=72, show_default=True, help="How many.")
@click.option("--seed", default=1, show_default=True, help="Of all chance.")
@TO_SCREEN
def main(jobs: int, seed: int, *, to_screen: bool) -> None:
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
    report("jobs", [conditions(), "", *table(rows(outcomes))], to_screen=to_screen)
