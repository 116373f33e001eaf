"""The measurements: what one exporter costs at rest, under scrapers, with a hung GPU, and without its stand-in."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import psutil
from tests.bench import metering, scrape, subjects
from tests.bench.scrape import PageSize, Scrapes
from tests.bench.subjects import Subject
from tests.bench.workload import Hang

SCRAPERS = 4
SCRAPES_PER_SECOND = 4.0
WARM_UP_SECONDS = 5.0
SPAWN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Durations:
    """How long each phase takes, in seconds."""

    steady: float
    settle: float
    paced: float
    saturated: float
    metered: float
    hang: Hang


FULL = Durations(steady=300, settle=60, paced=60, saturated=10, metered=60, hang=Hang(15, 45))
QUICK = Durations(steady=40, settle=10, paced=10, saturated=3, metered=20, hang=Hang(15, 45))


@dataclass(frozen=True, slots=True)
class Steady:
    """One scrape a second for minutes."""

    scrapes: Scrapes
    cpu_ratio: float  # of one core, from the settling time on
    cpu_seconds_measured: float  # the time that `cpu_ratio` is over
    resident_bytes: int  # at the end
    resident_settled_bytes: int  # after the settling time
    page: PageSize


@dataclass(frozen=True, slots=True)
class Loaded:
    """Several scrapers at once: at a pace, then as fast as they are answered."""

    paced: Scrapes
    saturated: Scrapes
    machine_busy_ratio: float  # share of the machine's CPU time that somebody used, while paced


@dataclass(frozen=True, slots=True)
class Hung:
    """Several scrapers at a pace while GPU 3 does not answer."""

    paced: Scrapes
    gpus: int  # GPUs whose power was on the page before the hang
    moving: int  # GPUs whose power changed between two pages of the hang, 15 s apart
    stale: int  # GPUs whose power stood on both pages, unchanged
    machine_busy_ratio: float  # as in Loaded


@dataclass(frozen=True, slots=True)
class Metered:
    """Where the CPU time went while every call of the stand-in driver was timed."""

    cpu_ratio: float  # of one core, the whole process
    standin_ratio: float  # of one core, the stand-in driver inside it
    calls_per_second: float  # NVML calls


def steady(subject: Subject, scenario: Path, logs: Path, durations: Durations) -> Steady:
    """One scrape a second, from a process that has just started until the end of the time."""
    with subjects.running(subject, scenario, logs) as exporter:
        first = scrape.scrape_for(exporter.port, durations.settle, 1.0)
        settled_bytes, before, began = exporter.resident_bytes(), exporter.cpu_seconds(), time.monotonic()
        rest = scrape.scrape_for(exporter.port, exporter.started + durations.steady - began, 1.0)
        cpu, took = exporter.cpu_seconds() - before, time.monotonic() - began
        return Steady(
            scrapes=Scrapes(rest.latencies_ms, first.failures + rest.failures, rest.seconds),
            cpu_ratio=cpu / took,
            cpu_seconds_measured=took,
            resident_bytes=exporter.resident_bytes(),
            resident_settled_bytes=settled_bytes,
            page=scrape.page_size(exporter.port),
        )


def loaded(subject: Subject, scenario: Path, logs: Path, durations: Durations) -> Loaded:
    with subjects.running(subject, scenario, logs) as exporter:
        time.sleep(WARM_UP_SECONDS)
        psutil.cpu_percent()  # from here on
        paced = _side_by_side(exporter.port, durations.paced, 1.0 / SCRAPES_PER_SECOND)
        busy = psutil.cpu_percent() / 100.0
        saturated = _side_by_side(exporter.port, durations.saturated, 0.0)
    return Loaded(paced=paced, saturated=saturated, machine_busy_ratio=busy)


def hung(subject: Subject, scenario: Path, logs: Path, hang: Hang) -> Hung:
    """Four scrapers side by side during a hang, from one second after its start to one before its end."""
    if subject.power is None:
        raise ValueError(f"{subject.name} knows no GPU")
    with subjects.running(subject, scenario, logs) as exporter:
        time.sleep(WARM_UP_SECONDS)
        healthy = values_on(scrape.page(exporter.port), subject.power)
        _sleep_until(exporter.started + hang.starts + 1.0)
        length = hang.ends - hang.starts - 2.0 - SPAWN_SECONDS
        with ProcessPoolExecutor(1, get_context("spawn")) as watcher:
            pages = watcher.submit(two_pages, exporter.port, subject.power, length - 18.0)
            psutil.cpu_percent()  # from here on
            paced = _side_by_side(exporter.port, length, 1.0 / SCRAPES_PER_SECOND)
            busy = psutil.cpu_percent() / 100.0
            early, late = pages.result()
    both = early.keys() & late.keys()
    moving = sum(early[gpu] != late[gpu] for gpu in both)
    return Hung(paced=paced, gpus=len(healthy), moving=moving, stale=len(both) - moving, machine_busy_ratio=busy)


def metered(subject: Subject, scenario: Path, logs: Path, seconds: float) -> Metered:
    """One scrape a second, with the stand-in driver's calls timed inside the process."""
    meter = logs / f"{subject.name}.meter"
    with subjects.running(subject, scenario, logs, meter) as exporter:
        scrape.scrape_for(exporter.port, WARM_UP_SECONDS, 1.0)
        cpu, (standin, calls), began = exporter.cpu_seconds(), metering.totals(meter), time.monotonic()
        scrape.scrape_for(exporter.port, seconds, 1.0)
        took = time.monotonic() - began
        standin_end, calls_end = metering.totals(meter)
        return Metered(
            cpu_ratio=(exporter.cpu_seconds() - cpu) / took,
            standin_ratio=(standin_end - standin) / took,
            calls_per_second=(calls_end - calls) / took,
        )


def standin_resident_bytes(scenario: Path) -> int:
    """Resident memory that the stand-in driver adds to this exporter's process."""
    command = (sys.executable, "-m", "tests.bench.standin_memory", scenario)
    done = subprocess.run(command, cwd=subjects.REPOSITORY, check=True, capture_output=True, text=True)
    return int(done.stdout)


def floor_ratio(scenario: Path) -> float:
    """Share of one core that the bare NVML calls take, asked through pynvml and without the stand-in's own time."""
    command = (sys.executable, "-m", "tests.bench.floor", scenario)
    done = subprocess.run(command, cwd=subjects.REPOSITORY, check=True, capture_output=True, text=True)
    return float(done.stdout)


def where_time_goes(scenario: Path) -> Mapping[str, float]:
    """Milliseconds a second by part of the sampler, the stand-in's own time taken off."""
    command = (sys.executable, "-m", "tests.bench.where", scenario)
    done = subprocess.run(command, cwd=subjects.REPOSITORY, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def two_pages(port: int, metric: str, wait: float) -> tuple[dict[str, str], dict[str, str]]:
    """A metric's values by series on two pages 15 s apart, the first after `wait` seconds."""
    time.sleep(wait)
    early = values_on(scrape.page(port), metric)
    time.sleep(15.0)
    return early, values_on(scrape.page(port), metric)


def values_on(page: str, metric: str) -> dict[str, str]:
    rows = (line.rpartition(" ") for line in page.splitlines() if line.startswith(metric + "{"))
    return {series: value for series, _, value in rows}


def _side_by_side(port: int, seconds: float, interval: float) -> Scrapes:
    """Scrapers in processes of their own that all begin, and stay, at the same instants: the worst case."""
    begin = time.monotonic() + SPAWN_SECONDS
    with ProcessPoolExecutor(SCRAPERS, get_context("spawn")) as pool:
        parts = [pool.submit(scrape.scrape_for, port, seconds, interval, begin) for _ in range(SCRAPERS)]
        return scrape.merged([part.result() for part in parts])


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
