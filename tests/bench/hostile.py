"""How a scraper fares while others attack the exporter.

Attackers, daemon and scraper are processes of their own on one machine: they share its cores, which is worse for the
scraper than attackers elsewhere.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import click
from tests.bench.page import TO_SCREEN, conditions, report, table
from tests.bench.scrape import Scrapes
from tests.hostile.attacks import GUARDED, PLAIN, carry_out
from tests.hostile.target import Scraper, Target, target

QUIET = "quiet"
RAMP_SECONDS = 2.0


def measure(title: str, name: str, running: Target, seconds: float) -> dict[str, object]:
    """The row of one attack, or of quiet, after it has begun in earnest."""
    with _attacked(name, running):
        time.sleep(RAMP_SECONDS)
        with Scraper(running).scraping() as scraper:
            time.sleep(seconds)
    answered = [each for each, status in zip(scraper.latencies_ms, scraper.statuses, strict=True) if status == 200]
    scrapes = Scrapes(tuple(answered), len(scraper.statuses) - len(answered))
    apart = {"failed": scrapes.failures, "again": scraper.reconnects}
    return {
        f"attack, {title}<": name,
        "scrapes": ", ".join((str(len(answered)), *(f"{count} {what}" for what, count in apart.items() if count))),
        "p50 / p99 / slowest": scrapes.latencies,
        "memory": f"{scraper.most.resident_bytes / 2**20:.0f} MiB",
        "threads": scraper.most.threads,
        "descriptors": scraper.most.descriptors,
    }


@contextmanager
def _attacked(name: str, running: Target) -> Iterator[None]:
    if name == QUIET:
        yield
        return
    context = get_context("spawn")
    stop = context.Event()
    attacker = context.Process(target=carry_out, args=(name, running, stop))
    attacker.start()
    try:
        yield
    finally:
        stop.set()
        attacker.join()


def _rows(title: str, names: list[str], seconds: float, *, guarded: bool) -> Iterator[dict[str, object]]:
    for name in names:
        click.echo(name, err=True)
        # A daemon of its own for each: what one attack left behind is not another's.
        with tempfile.TemporaryDirectory() as folder, target(Path(folder), guarded=guarded) as running:
            yield measure(title, name, running, seconds)


@click.command(help=__doc__)
@click.option("--seconds", default=10.0, show_default=True, help="Of each attack.")
@TO_SCREEN
def main(seconds: float, *, to_screen: bool) -> None:
    lines = [conditions()]
    for title, attacks in (("plain HTTP", PLAIN), ("TLS and a password (bcrypt, cost 10)", GUARDED)):
        lines += ["", *table(_rows(title, [QUIET, *attacks], seconds, guarded=attacks is GUARDED))]
    report("hostile", lines, to_screen=to_screen)
