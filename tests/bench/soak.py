"""Does memory stay flat? ``python -m tests.bench.soak`` writes docs/benchmarks-soak.md.

An hour of a bad night on a virtual clock, ten minutes of a real daemon that is scraped five times a second in every
format, and a quarter of an hour of one on whose host 24 processes start every second and GPUs fail in turn. Exits with
1 when memory grew.
"""

from __future__ import annotations

import argparse
import gc
import http.client
import itertools
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.bench.churn import FAULTS, NEW_PER_SECOND, churn
from tests.bench.environment import wiring
from tests.bench.subjects import running, this_exporter
from tests.faults.stand_in import StandIn
from tests.rig import rig

from gpu_triage import __version__
from gpu_triage.allocator import keep_memory_flat
from gpu_triage.simulator import load_scenario
from gpu_triage.simulator.scenario_file import SCENARIOS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks-soak.md"
SCENARIO = "h100-8-bad-night"
VIRTUAL_SECONDS = 3600
REAL_SECONDS = 600
CHURN_SECONDS = 900
POINTS = 12
ALLOWED_GROWTH_MIB = 1.5
"""Between the second quarter and the end. Less than a tenth of a leak of one series' text per scrape."""

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
    """

    what: str
    seconds: float
    mib: tuple[float, ...]

    @property
    def growth_mib(self) -> float:
        """From the second quarter's highest to the last quarter's highest."""
        quarter = len(self.mib) // 4
        return max(self.mib[-quarter:]) - max(self.mib[quarter : 2 * quarter])

    @property
    def flat(self) -> bool:
        """Whether it neither grew nor took more than it may."""
        return self.growth_mib <= ALLOWED_GROWTH_MIB and max(self.mib) <= MOST_MIB


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
    """The daemon over the compiled driver, scraped once a second, on a host that never rests."""
    mib: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        host = StandIn(Path(directory))
        with host.daemon() as daemon:
            process = psutil.Process(daemon.process.pid)
            requests = itertools.cycle(REQUESTS)
            for at in churn(host, seconds, faults=True):
                path, headers = next(requests)
                daemon.get_bytes(path, headers)
                if at >= seconds / POINTS * (len(mib) + 1):
                    family = (process, *process.children(recursive=True))
                    mib.append(sum(member.memory_info().rss for member in family) / 2**20)
                    sys.stderr.write(f"churn {at:.0f} s: {mib[-1]:.1f} MiB\n")
    minutes = f"{seconds / 60:.0f} minutes of the daemon"
    what = f"{minutes}, {NEW_PER_SECOND} new processes a second, {len(FAULTS)} faults in turn"
    return Soak(what, seconds / POINTS, tuple(mib))


def document(soaks: list[Soak], head: str) -> str:
    """The page."""
    parts = [
        "# Benchmarks: soak",
        "",
        "Whether memory stays flat. `make soak` writes this page; do not edit it. The stand-in driver is included.",
        "",
        head,
    ]
    for soak in soaks:
        points = "".join(f" {mib:.1f} |" for mib in soak.mib)
        verdict = "flat" if soak.flat else "**not flat**"
        parts += [
            "",
            f"## {soak.what}",
            "",
            "| after |" + "".join(f" {soak.seconds * (n + 1) / 60:.0f} min |" for n in range(len(soak.mib))),
            "|---|" + "---:|" * len(soak.mib),
            f"| MiB |{points}",
            "",
            (
                f"From the second quarter to the last: {soak.growth_mib:+.1f} MiB of {ALLOWED_GROWTH_MIB}."
                f" Highest: {max(soak.mib):.1f} MiB of {MOST_MIB:.0f}. Memory is {verdict}."
            ),
        ]
    return "\n".join([*parts, ""])


def main(arguments: list[str]) -> int:
    """Soak and write the page; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time, and no page is written")
    quick = parser.parse_args(arguments).quick
    share = 10 if quick else 1
    # As the daemon does, which the first soak has not.
    keep_memory_flat()
    at = wiring([], 0.0)
    soaks = [
        soak_virtual(VIRTUAL_SECONDS // share),
        soak_real(REAL_SECONDS // share),
        soak_churn(CHURN_SECONDS // share),
    ]
    page = document(soaks, f"- {at.machine}\n- {at.date}")
    sys.stdout.write(page)
    if not quick:
        PAGE.write_text(page, encoding="utf-8")
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
