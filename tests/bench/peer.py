"""What this exporter costs beside nvitop-exporter and node_exporter: at rest, under scrapers, with a hung GPU."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import click
from deploy.generate import REPOSITORY
from tests.bench import launch, scrape
from tests.bench.exporters import (
    Exporter,
    node_exporter,
    nvitop_exporter,
    running,
    sleepers,
    this_exporter,
    write_scenario,
)
from tests.bench.page import TO_SCREEN, conditions, report, table
from tests.bench.scrape import PageSize, Scrapes

SCRAPERS = 4
SCRAPES_PER_SECOND = 4.0
WARM_UP_SECONDS = 5.0
SPAWN_SECONDS = 1.0
APART_SECONDS = 15.0
HANG = (15, 45)
"""Seconds after the exporter's start between which one GPU hangs."""


@dataclass(frozen=True, slots=True)
class Steady:
    """One scrape a second for minutes; CPU in shares of one core, once it has settled."""

    scrapes: Scrapes
    cpu_ratio: float
    resident_bytes: int  # at the end
    page: PageSize


@dataclass(frozen=True, slots=True)
class Hung:
    """Several scrapers at a pace while one GPU does not answer."""

    scrapes: Scrapes
    moving: int  # GPUs whose power changed between two pages of the hang
    stale: int  # GPUs whose power stood on both pages, unchanged


@dataclass(frozen=True, slots=True)
class Metered:
    """Where the CPU time went while every call of the simulated driver was timed."""

    cpu_ratio: float  # of one core, the whole process
    driver_ratio: float  # of one core, the simulated driver inside it
    calls_per_second: float  # NVML calls


@dataclass(frozen=True, slots=True)
class Result:
    """All about one exporter; None for what does not apply to it."""

    exporter: Exporter
    steady: Steady
    loaded: Scrapes
    hung: Hung | None
    metered: Metered | None


def steady(scenario: Path, logs: Path, seconds: float, exporter: Exporter) -> Steady:
    with running(exporter, scenario, logs) as process:
        first = scrape.scrape_for(process.port, seconds / 5, 1.0)
        cpu, began = process.cpu_seconds(), time.monotonic()
        rest = scrape.scrape_for(process.port, seconds * 4 / 5, 1.0)
        cpu_ratio = (process.cpu_seconds() - cpu) / (time.monotonic() - began)
        scrapes = Scrapes(rest.latencies_ms, first.failures + rest.failures)
        return Steady(scrapes, cpu_ratio, process.resident_bytes(), scrape.page_size(process.port))


def loaded(exporter: Exporter, scenario: Path, logs: Path, seconds: float) -> Scrapes:
    with running(exporter, scenario, logs) as process:
        time.sleep(WARM_UP_SECONDS)
        return _side_by_side(process.port, seconds)


def hung(exporter: Exporter, power: str, scenario: Path, logs: Path) -> Hung:
    """Scrapers side by side during a hang, from one second after its start to one before its end."""
    starts, ends = HANG
    with running(exporter, scenario, logs) as process:
        time.sleep(max(0.0, process.started + starts + 1.0 - time.monotonic()))
        length = ends - starts - 2.0 - SPAWN_SECONDS
        with ProcessPoolExecutor(1, get_context("spawn")) as watcher:
            pages = watcher.submit(two_pages, process.port, power, length - APART_SECONDS - 3.0)
            scrapes = _side_by_side(process.port, length)
            early, late = pages.result()
    both = early.keys() & late.keys()
    moving = sum(early[gpu] != late[gpu] for gpu in both)
    return Hung(scrapes, moving, len(both) - moving)


def metered(exporter: Exporter, scenario: Path, logs: Path, seconds: float) -> Metered:
    """One scrape a second, with the simulated driver's calls timed inside the process."""
    meter = logs / f"{exporter.name}.meter"
    with running(exporter, scenario, logs, meter) as process:
        scrape.scrape_for(process.port, WARM_UP_SECONDS, 1.0)
        cpu, (driver, calls), began = process.cpu_seconds(), launch.totals(meter), time.monotonic()
        scrape.scrape_for(process.port, seconds, 1.0)
        took, (driver_end, calls_end) = time.monotonic() - began, launch.totals(meter)
        cpu_ratio = (process.cpu_seconds() - cpu) / took
        return Metered(cpu_ratio, (driver_end - driver) / took, (calls_end - calls) / took)


def driver_bytes(scenario: Path) -> int:
    """Resident memory that the simulated driver adds to this exporter's process."""
    command = (sys.executable, "-m", "tests.bench.launch", "-", "weigh", scenario)
    return int(subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout)


def two_pages(port: int, metric: str, wait: float) -> tuple[dict[str, str], dict[str, str]]:
    """A metric's values by series on two pages some time apart, the first after `wait` seconds."""
    time.sleep(wait)
    early = values_on(scrape.page(port), metric)
    time.sleep(APART_SECONDS)
    return early, values_on(scrape.page(port), metric)


def values_on(page: bytes, metric: str) -> dict[str, str]:
    rows = (line.rpartition(" ") for line in page.decode().splitlines() if line.startswith(metric + "{"))
    return {series: value for series, _, value in rows}


def _side_by_side(port: int, seconds: float) -> Scrapes:
    """Scrapers in processes of their own that all begin, and stay, at the same instants: the worst case."""
    begin = time.monotonic() + SPAWN_SECONDS
    with ProcessPoolExecutor(SCRAPERS, get_context("spawn")) as pool:
        each = (port, seconds, 1.0 / SCRAPES_PER_SECOND, begin)
        parts = [pool.submit(scrape.scrape_for, *each) for _ in range(SCRAPERS)]
        return scrape.merged([part.result() for part in parts])


def measure(seconds: float) -> tuple[list[Result], int]:
    """Every measurement of every exporter, ours first; and the resident bytes of the simulated driver in ours."""
    exporters = [each for each in (this_exporter(), nvitop_exporter(), node_exporter()) if each is not None]
    with tempfile.TemporaryDirectory(prefix="gpu-triage-bench-") as directory, sleepers() as pids:
        logs = Path(directory)
        calm, hanging = write_scenario(logs, pids), write_scenario(logs, pids, HANG)
        click.echo(f"one scrape a second, all at once: {seconds:.0f} s", err=True)
        with ThreadPoolExecutor(len(exporters)) as pool:
            rest = list(pool.map(partial(steady, calm, logs, seconds), exporters))
        results = []
        for each, at_rest in zip(exporters, rest, strict=True):
            click.echo(f"{each.name} under load", err=True)
            results.append(
                Result(
                    each,
                    at_rest,
                    loaded(each, calm, logs, seconds / 5),
                    hung(each, each.power, hanging, logs) if each.power else None,
                    metered(each, calm, logs, seconds / 5) if each.power else None,
                )
            )
        return results, driver_bytes(calm)


def rows(results: list[Result], driver: int) -> Iterator[dict[str, str]]:
    names = ["<", *(f"{each.exporter.name} {each.exporter.version}" for each in results)]
    for title, cell in _ROWS:
        yield dict(zip(names, [title, *map(cell, results)], strict=True))
    yield dict(zip(names, ["resident memory of the simulated driver in it", _mib(driver), "", ""], strict=False))


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.2f} %"


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def _of_hung(cell: Callable[[Hung], str]) -> Callable[[Result], str]:
    return lambda result: cell(result.hung) if result.hung else ""


def _of_metered(cell: Callable[[Metered], str]) -> Callable[[Result], str]:
    return lambda result: cell(result.metered) if result.metered else ""


_ROWS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("series", lambda r: f"{r.steady.page.series:,}"),
    ("series about one process", lambda r: f"{r.steady.page.process_series:,}"),
    ("bytes per scrape, plain", lambda r: f"{r.steady.page.plain_bytes:,}"),
    ("bytes per scrape, gzip", lambda r: f"{r.steady.page.gzip_bytes:,}"),
    ("latency p50 / p99 / slowest", lambda r: r.steady.scrapes.latencies),
    ("CPU, of one core", lambda r: _percent(r.steady.cpu_ratio)),
    ("resident memory at the end", lambda r: _mib(r.steady.resident_bytes)),
    (f"{SCRAPERS} scrapers: latency p50 / p99 / slowest", lambda r: r.loaded.latencies),
    ("one GPU hangs: latency p50 / p99 / slowest", _of_hung(lambda hung: hung.scrapes.latencies)),
    ("one GPU hangs: GPUs still measured", _of_hung(lambda hung: str(hung.moving))),
    ("one GPU hangs: GPUs with an old value", _of_hung(lambda hung: str(hung.stale))),
    ("NVML calls per second", _of_metered(lambda metered: f"{metered.calls_per_second:.0f}")),
    ("CPU of the simulated driver, in another run", _of_metered(lambda metered: _percent(metered.driver_ratio))),
    ("CPU without it", _of_metered(lambda metered: _percent(metered.cpu_ratio - metered.driver_ratio))),
)


@click.command(help=__doc__)
@click.option("--seconds", default=300.0, show_default=True, help="Of one scrape a second; other phases take a fifth.")
@TO_SCREEN
def main(seconds: float, *, to_screen: bool) -> None:
    results, driver = measure(seconds)
    report("cost", [conditions(), "", *table(rows(results, driver))], to_screen=to_screen)
