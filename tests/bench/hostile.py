"""How a scraper fares under attack: ``python -m tests.bench.hostile`` writes its section of docs/benchmarks.md.

Attackers, daemon and scraper are processes of their own on one machine: they share its cores, which is worse for the
scraper than attackers elsewhere.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from tests.bench.environment import wiring
from tests.bench.markdown import paragraph
from tests.bench.page import write_section
from tests.bench.scrape import Scrapes
from tests.hostile.attacks import GUARDED, PLAIN, carry_out
from tests.hostile.target import Figures, Scraper, Target, target

QUIET = "quiet"
SECONDS = 10.0
RAMP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """What the scraper met, and the most that the daemon took meanwhile."""

    name: str
    scrapes: Scrapes
    reconnects: int
    most: Figures


def measure(name: str, running: Target) -> Row:
    """One attack, or quiet, for some seconds after it has begun in earnest."""
    with _attacked(name, running):
        time.sleep(RAMP_SECONDS)
        with Scraper(running).scraping() as scraper:
            time.sleep(SECONDS)
    answered = [
        latency for latency, status in zip(scraper.latencies_ms, scraper.statuses, strict=True) if status == 200
    ]
    scrapes = Scrapes(tuple(answered), len(scraper.statuses) - len(answered), SECONDS)
    return Row(name, scrapes, scraper.reconnects, scraper.most)


def document(plain: list[Row], guarded: list[Row], head: str) -> str:
    """The section."""
    lines = [
        "## Hostile clients",
        "",
        *paragraph(
            """Scrapes of a simulated host with eight H100, fifty per second, while others attack the exporter from the
            same machine: much of the latency is the CPU time of the attackers. *Failed* are scrapes without an answer,
            *again* idle connections that the exporter closed for a new one. Memory, threads and descriptors are the
            highest of the exporter. [web-security.md](web-security.md#client-limits) has the limits, `tests/hostile/`
            the attacks. `python -m tests.bench hostile` measures it."""
        ),
        head,
        "",
        *_table("attack, plain HTTP", plain),
        "",
        *_table("attack, TLS and a password (bcrypt, cost 10)", guarded),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Measure and write the section; returns the exit code."""
    at = wiring([], os.getloadavg()[0])
    plain = _rows((QUIET, *PLAIN), guarded=False)
    guarded = _rows((QUIET, *GUARDED), guarded=True)
    load = f"load average {at.load_before:.1f} before, {os.getloadavg()[0]:.1f} after"
    head = f"- {at.machine}, {at.date}, {load}\n- Python {at.python}, {at.versions}"
    write_section("hostile", document(plain, guarded, head))
    return 0


def _rows(names: tuple[str, ...], *, guarded: bool) -> list[Row]:
    rows: list[Row] = []
    for name in names:
        # A daemon of its own for each: what one attack left behind is not another's.
        with tempfile.TemporaryDirectory() as folder, target(Path(folder), guarded=guarded) as running:
            rows.append(measure(name, running))
        sys.stderr.write(f"{name}: p99 {rows[-1].scrapes.percentile_ms(99):.1f} ms\n")
    return rows


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


def _table(title: str, rows: list[Row]) -> list[str]:
    return [
        f"| {title} | scrapes | failed | again | p50 | p99 | slowest | memory | threads | descriptors |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(_line(row) for row in rows),
    ]


def _line(row: Row) -> str:
    p50, p99, slowest = (f"{row.scrapes.percentile_ms(percent):.1f} ms" for percent in (50, 99, 100))
    counts = f"{len(row.scrapes.latencies_ms)} | {row.scrapes.failures} | {row.reconnects}"
    taken = f"{row.most.resident_bytes / 2**20:.0f} MiB | {row.most.threads} | {row.most.descriptors}"
    return f"| {row.name} | {counts} | {p50} | {p99} | {slowest} | {taken} |"


if __name__ == "__main__":
    sys.exit(main())
