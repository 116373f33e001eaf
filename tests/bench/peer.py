"""What this exporter costs beside nvitop-exporter and node_exporter: at rest, under scrapers, with a hung GPU."""

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
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
from tests.bench.scrape import Scrapes

SCRAPERS = 4
SCRAPES_PER_SECOND = 4.0
WARM_UP_SECONDS = 5.0
SPAWN_SECONDS = 1.0
APART_SECONDS = 15.0
HANG = (15, 45)
"""Seconds after the exporter's start between which one GPU hangs."""

Cells = dict[str, str]
"""Of one exporter's column, by the title of the row; all of it is about one host."""


def steady(scenario: Path, logs: Path, seconds: float, exporter: Exporter) -> Cells:
    """One scrape a second for minutes; CPU in shares of one core, once it has settled."""
    with running(exporter, scenario, logs) as process:
        first = scrape.scrape_for(process.port, seconds / 5, 1.0)
        cpu, began = process.cpu_seconds(), time.monotonic()
        rest = scrape.scrape_for(process.port, seconds * 4 / 5, 1.0)
        cpu_ratio = (process.cpu_seconds() - cpu) / (time.monotonic() - began)
        resident = process.resident_bytes()
        return {
            **page_size(process.port),
            "latency p50 / p99 / slowest": Scrapes(rest.latencies_ms, first.failures + rest.failures).latencies,
            "CPU, of one core": _percent(cpu_ratio),
            "resident memory at the end": _mib(resident),
        }


def page_size(port: int) -> Cells:
    headers = ({**scrape.HEADERS, "Accept-Encoding": coding} for coding in ("identity", "gzip"))
    plain, packed = (scrape.page(port, **each) for each in headers)
    series = [line for line in plain.decode().splitlines() if line and not line.startswith("#")]
    counts = {
        "series": len(series),
        "series about one process": sum('pid="' in line for line in series),
        "bytes per scrape, plain": len(plain),
        "bytes per scrape, gzip": len(packed),
    }
    return {title: f"{count:,}" for title, count in counts.items()}


def loaded(exporter: Exporter, scenario: Path, logs: Path, seconds: float) -> Cells:
    with running(exporter, scenario, logs) as process:
        time.sleep(WARM_UP_SECONDS)
        return {f"{SCRAPERS} scrapers: latency p50 / p99 / slowest": _side_by_side(process.port, seconds).latencies}


def hung(exporter: Exporter, power: str, scenario: Path, logs: Path) -> Cells:
    """Scrapers side by side during a hang, from one second after its start to one before its end.

    A GPU is measured if its power changed between two pages of the hang.
    """
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
    return {
        "one GPU hangs: latency p50 / p99 / slowest": scrapes.latencies,
        "one GPU hangs: GPUs still measured": str(moving),
        "one GPU hangs: GPUs with an old value": str(len(both) - moving),
    }


def metered(exporter: Exporter, scenario: Path, logs: Path, seconds: float) -> Cells:
    """Where the CPU time goes, of one core: one scrape a second, while each call of the simulated driver is timed."""
    meter = logs / f"{exporter.name}.meter"
    with running(exporter, scenario, logs, meter) as process:
        scrape.scrape_for(process.port, WARM_UP_SECONDS, 1.0)
        cpu, (driver, calls), began = process.cpu_seconds(), launch.totals(meter), time.monotonic()
        scrape.scrape_for(process.port, seconds, 1.0)
        took, (driver_end, calls_end) = time.monotonic() - began, launch.totals(meter)
        of_all, of_driver = (process.cpu_seconds() - cpu) / took, (driver_end - driver) / took
        return {
            "NVML calls per second": f"{(calls_end - calls) / took:.0f}",
            "CPU of the simulated driver, in another run": _percent(of_driver),
            "CPU without it": _percent(of_all - of_driver),
        }


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


def measure(seconds: float) -> list[dict[str, str]]:
    """The rows of every measurement, with a column for each exporter, ours first."""
    exporters = [each for each in (this_exporter(), nvitop_exporter(), node_exporter()) if each is not None]
    with tempfile.TemporaryDirectory(prefix="gpu-triage-bench-") as directory, sleepers() as pids:
        logs = Path(directory)
        calm, hanging = write_scenario(logs, pids), write_scenario(logs, pids, HANG)
        click.echo(f"one scrape a second, all at once: {seconds:.0f} s", err=True)
        with ThreadPoolExecutor(len(exporters)) as pool:
            columns = list(pool.map(partial(steady, calm, logs, seconds), exporters))
        for each, cells in zip(exporters, columns, strict=True):
            click.echo(f"{each.name} under load", err=True)
            cells.update(loaded(each, calm, logs, seconds / 5))
            if each.power:
                cells.update(hung(each, each.power, hanging, logs) | metered(each, calm, logs, seconds / 5))
        columns[0]["resident memory of the simulated driver in it"] = _mib(driver_bytes(calm))
    names = [f"{each.name} {each.version}" for each in exporters]
    return [{"<": title, **dict(zip(names, [c.get(title, "") for c in columns], strict=True))} for title in columns[0]]


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.2f} %"


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


@click.command(help=__doc__)
@click.option("--seconds", default=300.0, show_default=True, help="Of one scrape a second; other phases take a fifth.")
@TO_SCREEN
def main(seconds: float, *, to_screen: bool) -> None:
    rows = measure(seconds)
    report("cost", [conditions(), "", *table(rows)], to_screen=to_screen)
