"""What a fleet costs: ``python -m tests.bench.fleet_cost``, for docs/benchmarks.md and docs/sizing.md."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import psutil
from tests.bench.environment import wiring
from tests.bench.fleet_cost_page import document
from tests.bench.fleet_disk import BLOCK_SECONDS, Block, block_of
from tests.bench.fleet_figures import EVERYTHING, Cost, FleetCosts, NotMeasured
from tests.bench.fleet_played import changing_series, profile_history, with_noise
from tests.bench.fleet_watch import Run, TooLarge, measured
from tests.bench.page import write_section
from tests.bench.sizing_page import sizing

from gpu_triage.options.config import DEFAULT, PROFILES, RULES
from gpu_triage_simulator.history import History

ROOT = Path(__file__).resolve().parents[2]
SIZING_PAGE = ROOT / "docs" / "sizing.md"
PROGRAMS = ("prometheus", "promtool", "victoria-metrics")
RECORDED_PER_HOST = 200
"""About what the rules record for a healthy host."""
FIRST_BYTES_PER_SERIES = 6 << 10
"""Of a small Prometheus, before anything was measured."""
SPARE = 1.05
"""What a run is expected to take, over what the largest run before it took for each series."""


def say(text: str) -> None:
    """Progress, for the person who waits."""
    click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)


@dataclass
class Bench:
    """A benchmark that runs.

    Attributes:
        histories: that hosts play, by profile.
        scrape_seconds, settle_seconds, seconds: of every run.
        keep_free_bytes: of memory, for others on this machine.
        directory: for everything that is written.
        stop: set when the benchmark shall end early.
        bytes_per_series: of memory, that a run is expected to take.
    """

    histories: dict[str, History]
    scrape_seconds: int
    settle_seconds: float
    seconds: float
    keep_free_bytes: int
    directory: Path
    stop: threading.Event
    bytes_per_series: float = FIRST_BYTES_PER_SERIES

    def run(self, hosts: int, profile: str, *, everything: bool = False) -> Run:
        """One run of so many hosts."""
        return Run(
            hosts,
            profile,
            self.histories[profile],
            self.scrape_seconds,
            self.settle_seconds,
            self.seconds,
            self.keep_free_bytes,
            everything,
        )

    def needs_bytes(self, hosts: int, profile: str) -> float:
        """Memory that a run is expected to take."""
        return hosts * (len(self.histories[profile].series) + RECORDED_PER_HOST) * self.bytes_per_series

    def lacks(self, need_bytes: float) -> str | None:
        """Why a run does not fit in memory; None if it does."""
        free = psutil.virtual_memory().available - self.keep_free_bytes
        if need_bytes <= free:
            return None
        return f"needs about {need_bytes / 2**30:.0f} GiB, and {max(0, free) / 2**30:.0f} GiB may be used here"

    def measure(self, run: Run) -> Cost | NotMeasured:
        """Runs it; says why not where memory runs out."""
        say(f"{run.name}: runs for {(run.settle_seconds + run.seconds) / 60:.1f} minutes")
        directory = Path(tempfile.mkdtemp(prefix=f"{run.hosts}-{run.profile}-", dir=self.directory))
        try:
            cost = measured(run, directory, self.stop)
        except TooLarge as error:
            say(f"{run.name}: {error}")
            return NotMeasured(run.hosts, run.profile, str(error))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        say(f"{run.name}: {cost.series:,} series in {cost.peak_bytes / 2**30:.2f} GiB")
        return cost

    def smallest(self, hosts: int) -> list[Cost | NotMeasured]:
        """Every profile, and one run that sends everything, side by side."""
        runs = [self.run(hosts, profile) for profile in PROFILES]
        runs.append(self.run(hosts, DEFAULT, everything=True))
        if lacking := self.lacks(sum(self.needs_bytes(run.hosts, run.profile) for run in runs)):
            raise click.ClickException(f"{hosts} hosts with each profile: {lacking}; ask for fewer with --hosts")
        with ThreadPoolExecutor(len(runs)) as pool:
            found = list(pool.map(self.measure, runs))
        for each in found:
            if isinstance(each, NotMeasured):
                raise click.ClickException(f"{hosts} hosts with profile {each.profile}: {each.reason}; ask for fewer")
        self._learn(found)
        return found

    def larger(self, hosts: int) -> list[Cost | NotMeasured]:
        """The default profile, or where that does not fit in memory the one with the fewest series."""
        found: list[Cost | NotMeasured] = []
        for profile in (DEFAULT, RULES):
            if lacking := self.lacks(self.needs_bytes(hosts, profile)):
                say(f"{hosts:,} hosts with profile {profile}: {lacking}; not measured")
                found.append(NotMeasured(hosts, profile, lacking))
                continue
            found.append(self.measure(self.run(hosts, profile)))
            if isinstance(found[-1], Cost):
                break
        self._learn(found)
        return found

    def _learn(self, found: list[Cost | NotMeasured]) -> None:
        """Expects of the next run what the largest one took."""
        costs = [each for each in found if isinstance(each, Cost) and each.kind != EVERYTHING]
        if costs:
            largest = max(costs, key=lambda each: each.series)
            self.bytes_per_series = SPARE * largest.peak_bytes / largest.series


def histories(scrape_seconds: int, seconds: float) -> dict[str, tuple[History, History]]:
    """What one host of each profile serves in one block before now: as simulated, and with noise."""
    start = (int(time.time()) // BLOCK_SECONDS - 2) * BLOCK_SECONDS
    found = {}
    for profile in PROFILES:
        say(f"simulates {seconds / 3600:.1f} h of one host with profile {profile}")
        plain = profile_history(profile, seconds - scrape_seconds, scrape_seconds, start)
        found[profile] = (plain, with_noise(plain))
    return found


def blocks(pairs: dict[str, tuple[History, History]], directory: Path) -> dict[str, tuple[Block, Block]]:
    """What the histories take on disk."""
    found = {}
    for profile, pair in pairs.items():
        say(f"writes the blocks of profile {profile}")
        plain, noisy = (
            block_of(each, changing_series(each), directory / f"block-{profile}-{number}", victoria=number == 1)
            for number, each in enumerate(pair)
        )
        found[profile] = (plain, noisy)
    return found


def version() -> str:
    """Of the Prometheus that is measured."""
    told = subprocess.run(["prometheus", "--version"], check=True, capture_output=True, text=True).stdout
    return told.split(" (", 1)[0].replace("prometheus, version", "Prometheus")


def command(note: str) -> str:
    """The call that measures this again."""
    arguments = shlex.join(each for each in sys.argv[1:] if each not in {"--note", note})
    return "`python -m tests.bench fleet`" if not arguments else f"`python -m tests.bench fleet {arguments}`"


@contextmanager
def ended_by_signals(stop: threading.Event) -> Iterator[None]:
    """Ends all servers and removes all files when the benchmark is told to end, by SIGTERM as by Ctrl-C."""

    def end(number: int, _frame: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        stop.set()
        raise click.exceptions.Exit(128 + number)

    before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@click.command()
@click.option("--hosts", default="250,1000,2500", show_default=True, help="Numbers of hosts with eight GPUs.")
@click.option(
    "--scrape", "scrape_seconds", default=15, show_default=True, help="Seconds between two scrapes of a host."
)
@click.option(
    "--minutes", default=5.0, show_default=True, help="Measured time of each run; the slowest rules run every 5."
)
@click.option("--settle", "settle_seconds", default=75.0, show_default=True, help="Seconds of each run before that.")
@click.option("--history-hours", default=2.0, show_default=True, help="What the blocks hold that disk is measured on.")
@click.option("--keep-free", default=6.0, show_default=True, help="GiB of memory to leave to others.")
@click.option("--note", default="", help="A note about what else ran.")
def main(
    *,
    hosts: str,
    scrape_seconds: int,
    minutes: float,
    settle_seconds: float,
    history_hours: float,
    keep_free: float,
    note: str,
) -> None:
    """Measure what a fleet costs and write both texts.

    The smallest number of hosts is measured with each metrics profile, larger ones with the default profile. A size
    that does not fit in memory is named and left out. Exit code 1 when a scrape was missed.
    """
    for program in PROGRAMS:
        if shutil.which(program) is None:
            raise click.ClickException(f"{program} is not installed; run tests/environment/install-servers.sh")
    sizes = sorted({int(each) for each in hosts.split(",")})
    load_before, begun, stop = os.getloadavg()[0], time.monotonic(), threading.Event()
    with tempfile.TemporaryDirectory(prefix="gpu-triage-fleet-") as folder, ended_by_signals(stop):
        say(f"{len(sizes)} sizes: about {len(sizes) * (minutes + settle_seconds / 60 + 1) + 8:.0f} minutes in all")
        pairs = histories(scrape_seconds, history_hours * 3600)
        bench = Bench(
            histories={profile: noisy for profile, (_, noisy) in pairs.items()},
            scrape_seconds=scrape_seconds,
            settle_seconds=settle_seconds,
            seconds=minutes * 60,
            keep_free_bytes=int(keep_free * 2**30),
            directory=Path(folder),
            stop=stop,
        )
        disk = blocks(pairs, Path(folder))
        found = bench.smallest(sizes[0])
        for size in sizes[1:]:
            found += bench.larger(size)
    at = wiring([], load_before)
    costs = FleetCosts(
        scrape_seconds=scrape_seconds,
        minutes=minutes,
        costs=[each for each in found if isinstance(each, Cost)],
        not_measured=[each for each in found if isinstance(each, NotMeasured)],
        blocks=disk,
        took_minutes=(time.monotonic() - begun) / 60,
        cpus=os.cpu_count() or 1,
    )
    head = [each for each in (at.machine, version(), at.date, command(note), note) if each]
    write_section("fleet", document(costs, [f"- {', '.join(head)}"]))
    SIZING_PAGE.write_text(sizing(costs), encoding="utf-8")
    complete = all(each.scrapes.complete for each in costs.costs)
    if not complete:
        say("scrapes were missed: the machine does not sustain as many hosts; ask for fewer")
    sys.exit(0 if complete else 1)


if __name__ == "__main__":
    main()
