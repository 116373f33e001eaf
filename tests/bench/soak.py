"""Does memory stay flat? Exits with 1 if it grew.

An hour of a bad night on a virtual clock, ten minutes of a real daemon that is scraped five times a second in every
format, ten of one at rest and of one where processes come and go, and meanwhile an hour of one with 16 GPUs, on whose
host 24 processes start every second, GPUs and collectors fail in turn, MIG is switched and Xids come in storms.
"""

import gc
import http.client
import itertools
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
from tests.bench.exporters import running, this_exporter
from tests.bench.page import TO_SCREEN, conditions, report, table
from tests.faults.stand_in import StandIn
from tests.rig import rig

from gpu_triage.serve.process_settings import keep_memory_flat
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.scenario_file import SCENARIOS

SCENARIO = "h100-8-bad-night"
VIRTUAL_SECONDS = 3600.0
REAL_SECONDS = 600.0
CHURN_SECONDS = 3600.0
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

FAULT_SECONDS = 10
"""How long a fault lasts, and how long there is none after it."""
XIDS_PER_SECOND = 20
XID_SECONDS = 60
"""How often a storm of Xids begins; it lasts as long as a fault."""
_XID_CODES = 200
_XIDS_KEPT_SECONDS = 3
FAULTS = (
    "gpu 1 hang nvmlDeviceGetPowerUsage",
    "gpu 2 lost",
    "gpu 3 error nvmlDeviceGetUtilizationRates 999",
    "gpu 4 value nvmlDeviceGetTotalEnergyConsumption 18446744073709551614",
    "gpu 5 slow nvmlDeviceGetTemperature 0.7",
    "gpu 6 removed",
    "gpu 8 value nvmlDeviceGetMigMode 1 1",
    "host error nvmlDeviceGetCount 999",
    "gpu 7 value nvmlDeviceGetPowerUsage 4294967294",
    "gpu 9 error nvmlDeviceGetFieldValues 999",
    "gpu * error nvmlDeviceGetMemoryInfo 999",
    "gpu 10 reset",
)


@dataclass(frozen=True, slots=True)
class Load:
    """What happens on a host."""

    what: str
    gpus: int
    born: int  # processes that start each second, or with the first if they live on
    life_seconds: float  # how long each of them lives
    faults: tuple[str, ...] = ()  # in turn; storms of Xids come with them
    requests: tuple[tuple[str, dict[str, str]], ...] = REQUESTS[:1]  # in turn, one a second: Prometheus's alone
    growth_mib: float = ALLOWED_GROWTH_MIB
    most_mib: float = MOST_MIB


AT_REST = Load("64 processes", 8, 64, math.inf, most_mib=40.0)
COMING_AND_GOING = Load("64 new processes a second", 8, 64, 5, most_mib=44.0)
EVERYTHING = Load(
    f"24 new processes a second, {len(FAULTS)} faults in turn, storms of Xids",
    16,
    24,
    5,
    FAULTS,
    REQUESTS,
    growth_mib=2.0,
)


@dataclass(frozen=True, slots=True)
class Soak:
    what: str
    mib: tuple[float, ...]  # resident memory at each of the points
    allowed_mib: float = ALLOWED_GROWTH_MIB
    most_mib: float = MOST_MIB

    @property
    def growth_mib(self) -> float:
        """From the highest of the second quarter to the highest of the last one."""
        quarter = len(self.mib) // 4
        return max(self.mib[-quarter:]) - max(self.mib[quarter : 2 * quarter])

    @property
    def flat(self) -> bool:
        """Whether it neither grew nor took more than it may."""
        return self.growth_mib <= self.allowed_mib and max(self.mib) <= self.most_mib


def soak_virtual(seconds: float) -> Soak:
    """The sampler, in this process, through a scenario on a virtual clock."""
    mib = []
    with rig(load_scenario(SCENARIO)) as night:
        for _ in range(POINTS):
            night.run(seconds / POINTS)
            night.exposition.page("", (), gzipped=True)
            gc.collect()
            mib.append(_resident(os.getpid()))
    return Soak(f"{seconds / 60:.0f} virtual minutes of {SCENARIO}, sampled every second", tuple(mib))


def soak_real(seconds: float) -> Soak:
    """The daemon, scraped five times a second."""
    mib = []
    scenario = SCENARIOS / f"{SCENARIO}.toml"
    with tempfile.TemporaryDirectory() as logs, running(this_exporter(), scenario, Path(logs)) as daemon:
        for _ in range(POINTS):
            _scrape_for(daemon.port, seconds / POINTS)
            mib.append(_resident(daemon.process.pid))
    return Soak(f"{seconds / 60:.0f} minutes of the daemon, five requests a second", tuple(mib))


def soak_alone(load: Load, seconds: float) -> Soak:
    """The daemon over the compiled driver, with nothing simulated in its process, scraped once a second.

    The short-lived processes that look for lost GPUs are not counted.
    """
    mib: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        host = StandIn(Path(directory), load.gpus)
        with host.daemon() as daemon:
            requests = itertools.cycle(load.requests)
            for at in played(host, load, seconds):
                path, headers = next(requests)
                try:
                    daemon.ask(path, **headers)
                except OSError as error:
                    # On a machine that is busy with other things an answer may take longer than the client waits.
                    click.echo(f"{load.what}, {at:.0f} s: no answer, {error}", err=True)
                if at >= seconds / POINTS * (len(mib) + 1):
                    mib.append(_resident(daemon.process.pid))
    what = f"{seconds / 60:.0f} minutes of the daemon alone with {load.gpus} GPUs: {load.what}"
    return Soak(what, tuple(mib), load.growth_mib, load.most_mib)


def played(host: StandIn, load: Load, seconds: float) -> Iterator[float]:
    """Start and end processes on the host's GPUs, while faults and storms of Xids come and go; yields once a second."""
    alive: deque[list[subprocess.Popen[bytes]]] = deque()
    began = time.monotonic()
    try:
        for second in range(round(seconds)):
            if not alive or load.life_seconds < math.inf:
                alive.append([subprocess.Popen(["sleep", "3600"]) for _ in range(load.born)])
            if len(alive) > load.life_seconds:
                _end(alive.popleft())
            pids = [process.pid for born in alive for process in born]
            lines = [f"gpu {gpu} pids {' '.join(map(str, pids[gpu :: host.gpus]))}" for gpu in range(host.gpus)]
            turn, since = divmod(second, 2 * FAULT_SECONDS)
            if load.faults:
                lines += [load.faults[turn % len(load.faults)]] if since < FAULT_SECONDS else []
                lines += _xids(second, host.gpus)
            host.replace(*lines)
            time.sleep(max(0.0, began + second + 1 - time.monotonic()))
            yield time.monotonic() - began
    finally:
        for born in alive:
            _end(born)


def _xids(second: int, gpus: int) -> Iterator[str]:
    """The events of the last seconds: each is heard once, by its number."""
    for past in range(max(0, second - _XIDS_KEPT_SECONDS), second + 1):
        if past % XID_SECONDS < FAULT_SECONDS:
            for number in range(past * XIDS_PER_SECOND + 1, (past + 1) * XIDS_PER_SECOND + 1):
                yield f"gpu {number % gpus} xid {number} {number % _XID_CODES + 1}"


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    mib = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    click.echo(f"process {pid}: {mib:.1f} MiB", err=True)
    return mib


def _scrape_for(port: int, seconds: float) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    end = time.monotonic() + seconds
    for path, headers in itertools.cycle(REQUESTS):
        client.request("GET", path, headers=headers)
        client.getresponse().read()
        time.sleep(1 / len(REQUESTS))
        if time.monotonic() > end:
            break
    client.close()


def _row(soak: Soak) -> dict[str, str]:
    growth = f"{soak.growth_mib:+.1f} of {soak.allowed_mib}, {'flat' if soak.flat else '**not flat**'}"
    quarters = {f"{at}/4": f"{soak.mib[len(soak.mib) * at // 4 - 1]:.1f}" for at in range(1, 5)}
    return {"MiB<": soak.what, **quarters, "highest": f"{max(soak.mib):.1f}", "growth<": growth}


@click.command(help=__doc__)
@click.option("--share", default=1.0, show_default=True, help="Of the time: 0.1 for six minutes.")
@TO_SCREEN
def main(share: float, *, to_screen: bool) -> None:
    # As the daemon does, which the first soak has not.
    keep_memory_flat()
    virtual = soak_virtual(VIRTUAL_SECONDS * share)
    # Each is a process of its own.
    with ThreadPoolExecutor() as pool:
        real = pool.submit(soak_real, REAL_SECONDS * share)
        longer = pool.submit(soak_alone, EVERYTHING, CHURN_SECONDS * share)
        alone = [soak_alone(load, REAL_SECONDS * share) for load in (AT_REST, COMING_AND_GOING)]
        soaks = [virtual, real.result(), *alone, longer.result()]
    report("soak", [conditions(), "", *table(map(_row, soaks))], to_screen=to_screen)
    sys.exit(0 if all(soak.flat for soak in soaks) else 1)
