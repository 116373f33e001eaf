"""Does memory stay flat? ``python -m tests.bench.soak`` writes its section of docs/benchmarks.md.

An hour of a bad night on a virtual clock, ten minutes of a real daemon that is scraped five times a second in every
format, and meanwhile an hour of one with 16 GPUs, on whose host 24 processes start every second, GPUs and collectors
fail in turn, MIG is switched and Xids come in storms. Exits with 1 when memory grew.
"""

from __future__ import annotations

import argparse
import gc
import http.client
import itertools
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.bench.churn import FAULTS, GPUS, NEW_PER_SECOND, churn
from tests.bench.environment import wiring
from tests.bench.page import write_section
from tests.bench.subjects import running, this_exporter
from tests.faults.stand_in import StandIn
from tests.rig import rig

from gpu_triage import __version__
from gpu_triage.serve.process_settings import keep_memory_flat
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.scenario_file import SCENARIOS

SCENARIO = "h100-8-bad-night"
VIRTUAL_SECONDS = 3600
REAL_SECONDS = 600
CHURN_SECONDS = 3600
SETTLED_SECONDS = 600
POINTS = 12
ALLOWED_GROWTH_MIB = 1.5
"""Between the second quarter and the end. Less than a tenth of a leak of one series' text per scrape."""

CHURN_GROWTH_MIB = 2.0
"""After the first ten minutes, whatever comes and goes."""

MOST_MIB = 64.0
"""A quarter of what the unit allows, and a third more than an undisturbed daemon takes."""

REQUESTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("/metrics", {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}),
    ("/metrics", {"Accept-Encoding": "gzip"}),
    ("/metrics", {}),
    ("/metrics?name%5B%5D=gpu_up&name%5B%5D=gpu_power_watts", {}),
    ("/", {}),
)


@dataclass(frozen=True, slots=True)
class Soak:
    """Resident memory over time.

    Attributes:
        what: was soaked.
        seconds: between two points.
        mib: resident memory at each point.
        settled_seconds: from when on it should be flat; None for the second quarter.
        allowed_mib: by how much it may grow all the same.
    """

    what: str
    seconds: float
    mib: tuple[float, ...]
    settled_seconds: float | None = None
    allowed_mib: float = ALLOWED_GROWTH_MIB

    @property
    def growth_mib(self) -> float:
        """From the highest once it has settled to the last quarter's highest."""
        quarter = len(self.mib) // 4
        settled = self.mib[quarter : 2 * quarter]
        if self.settled_seconds is not None:
            settled = self.mib[: max(1, round(self.settled_seconds / self.seconds))]
        return max(self.mib[-quarter:]) - max(settled)

    @property
    def since(self) -> str:
        """What the growth is counted from."""
        return "second quarter" if self.settled_seconds is None else f"first {self.settled_seconds / 60:.0f} minutes"

    @property
    def flat(self) -> bool:
        """Whether it neither grew nor took more than it may."""
        return self.growth_mib <= self.allowed_mib and max(self.mib) <= MOST_MIB


def soak_virtual(seconds: int) -> Soak:
    """The sampler, in this process, through a scenario on a virtual clock."""
    this = psutil.Process()
    mib = []
    with rig(load_scenario(SCENARIO)) as night:
        for _ in range(POINTS):
            night.run(seconds / POINTS)
            night.exposition.page("", (), gzipped=True)
            gc.collect()
            mib.append(this.memory_info().rss / 2**20)
            sys.stderr.write(f"virtual {night.elapsed:.0f} s: {mib[-1]:.1f} MiB\n")
    return Soak(f"{seconds / 60:.0f} virtual minutes of {SCENARIO}, sampled every second", seconds / POINTS, tuple(mib))


def soak_real(seconds: int) -> Soak:
    """The daemon, scraped five times a second."""
    mib = []
    with tempfile.TemporaryDirectory() as directory:
        scenario = SCENARIOS / f"{SCENARIO}.toml"
        with running(this_exporter(__version__), scenario, Path(directory)) as daemon:
            for _ in range(POINTS):
                _scrape_for(daemon.port, seconds / POINTS)
                mib.append(daemon.resident_bytes() / 2**20)
                sys.stderr.write(f"real {seconds / POINTS * len(mib):.0f} s: {mib[-1]:.1f} MiB\n")
    return Soak(f"{seconds / 60:.0f} minutes of the daemon, five requests a second", seconds / POINTS, tuple(mib))


def soak_churn(seconds: int) -> Soak:
    """The daemon over the compiled driver, scraped once a second, on a host that never rests.

    The short-lived processes that look for lost GPUs are not counted.
    """
    mib: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        host = StandIn(Path(directory), GPUS)
        with host.daemon() as daemon:
            process = psutil.Process(daemon.process.pid)
            requests = itertools.cycle(REQUESTS)
            for at in churn(host, seconds, faults=True):
                path, headers = next(requests)
                try:
                    daemon.get_bytes(path, headers)
                except OSError as error:
                    # On a machine that is busy with other things an answer may take longer than the client waits.
                    sys.stderr.write(f"churn {at:.0f} s: no answer, {error}\n")
                if at >= seconds / POINTS * (len(mib) + 1):
                    mib.append(process.memory_info().rss / 2**20)
                    sys.stderr.write(f"churn {at:.0f} s: {mib[-1]:.1f} MiB\n")
    host_text = f"{seconds / 60:.0f} minutes of the daemon with {GPUS} GPUs"
    what = f"{host_text}: {NEW_PER_SECOND} new processes a second, {len(FAULTS)} faults in turn, storms of Xids"
    return Soak(what, seconds / POINTS, tuple(mib), min(SETTLED_SECONDS, seconds / 4), CHURN_GROWTH_MIB)


def document(soaks: list[Soak], head: str) -> str:
    """The section."""
    rows = (
        f"| {soak.what} | {' | '.join(f'{soak.mib[len(soak.mib) * quarter // 4 - 1]:.1f}' for quarter in range(1, 5))} "
        f"| {max(soak.mib):.1f} | {soak.growth_mib:+.1f} of {soak.allowed_mib} since the {soak.since} "
        f"| {'flat' if soak.flat else '**not flat**'} |"
        for soak in soaks
    )
    lines = [
        "## Memory over time",
        "",
        f"Resident memory in MiB after each quarter of the time, of {MOST_MIB:.0f} allowed, with the simulated driver.",
        "Growth is from the highest of the time named to the highest of the last quarter.",
        "",
        head,
        "",
        "| | 1/4 | 2/4 | 3/4 | end | highest | growth | |",
        "|---|---:|---:|---:|---:|---:|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Soak and write the section; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench soak", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time, and nothing is written")
    parser.add_argument("--churn-minutes", type=int, default=CHURN_SECONDS // 60, help="in place of an hour")
    options = parser.parse_args(arguments)
    quick = options.quick
    share = 10 if quick else 1
    # As the daemon does, which the first soak has not.
    keep_memory_flat()
    at = wiring(arguments, 0.0)
    with ThreadPoolExecutor(1) as pool:
        virtual = soak_virtual(VIRTUAL_SECONDS // share)
        # Each is a process of its own.
        real = pool.submit(soak_real, REAL_SECONDS // share)
        churned = soak_churn(60 * options.churn_minutes // share)
        soaks = [virtual, real.result(), churned]
    text = document(soaks, f"- `{at.command.replace('bench', 'soak')}`, {at.date}, {at.machine}")
    sys.stdout.write(text)
    if not quick:
        write_section("soak", text)
    return int(not all(soak.flat for soak in soaks))


def _scrape_for(port: int, seconds: float) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        path, headers = REQUESTS[number % len(REQUESTS)]
        client.request("GET", path, headers=headers)
        client.getresponse().read()
        number += 1
        time.sleep(1 / len(REQUESTS))
    client.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
