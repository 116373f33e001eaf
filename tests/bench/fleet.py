"""What a fleet costs a Prometheus: memory, CPU, rules, remote write and disk, and how large one must be.

The smallest number of hosts is measured with each metrics profile, and once with everything sent on; larger ones with
the default profile. Exits with 1 if a scrape was missed.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import LinearRegression, linear_regression
from typing import NamedTuple

import click
import psutil
from deploy.generate import REPOSITORY
from deploy.generate.fleet import federated, remote_written
from tests.bench.hosts import PlayedPages, history_of_host, own_page, prometheus, served, sink, summed, with_noise
from tests.bench.page import SIZING, TO_SCREEN, conditions, report, table
from tests.bench.rules import BLOCK_SECONDS, CALM, LOOK_SECONDS, Seen, all_scraped, look

from gpu_triage.options.config import DEFAULT, PROFILES
from gpu_triage_simulator.history import History, write_openmetrics

RECORDED, CHOSEN, DASHBOARDS, EVERYTHING = "recorded", "chosen", "dashboards", "everything"
MONTH_SECONDS = 30 * 86400
GIB, GB, MBIT = 2**30, 1e9, 1e6
MACHINES_GIB = (16, 32, 64, 128)
USED_SHARE = 0.5
"""Of a machine's memory: the rest is for queries, churn of series, restarts and the page cache."""
ALLOWED_DRIFT = 0.1
RECORDED_PER_HOST = 200
BYTES_PER_SERIES = 6 << 10
"""More than a Prometheus takes, to see before a run whether it fits."""
APPENDED = "prometheus_tsdb_head_samples_appended_total"
SENT = "prometheus_remote_storage"


class Write(NamedTuple):
    """What one queue of remote write sent."""

    samples_per_second: float
    bits_per_second: float  # compressed bodies of requests, without HTTP headers
    failed: int  # samples that were lost
    read_share: float  # of the samples that were scraped and recorded meanwhile; not 1 while it is behind

    @property
    def kept_up(self) -> bool:
        return abs(self.read_share - 1) <= ALLOWED_DRIFT and not self.failed


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run cost a Prometheus."""

    hosts: int  # of eight GPUs
    profile: str  # of the metrics that they serve
    page_series: int  # of one host's page
    series: int  # in the head
    samples_per_second: float  # scraped and recorded
    peak_bytes: int  # highest resident memory
    cores: float  # that it kept busy
    evaluation: tuple[float, str]  # the longest as a share of its group's interval, and the group
    complete: bool  # whether no scrape was missed
    writes: Mapping[str, Write]  # what each queue sent


def sent() -> Mapping[str, str]:
    """Which metrics each queue of remote write sends, as a regular expression."""
    chosen, dashboards = (
        "|".join(each for each in names if ":" not in each and each != "ALERTS")
        for names in (federated(REPOSITORY), remote_written(REPOSITORY))
    )
    return {RECORDED: ".+:.+|ALERTS", CHOSEN: chosen, DASHBOARDS: dashboards, EVERYTHING: ".+"}


@dataclass(frozen=True, slots=True)
class Bench:
    """What all runs have in common."""

    histories: Mapping[str, History]  # that hosts play, by profile
    scrape_seconds: int
    settle_seconds: float
    seconds: float

    def run(self, hosts: int, profile: str, queues: Sequence[str] = (RECORDED, CHOSEN)) -> Cost:
        """Watch a Prometheus of so many hosts; each queue of remote write reads all samples, which costs CPU."""
        pages = PlayedPages(self.histories[profile], time.time())
        need = hosts * (pages.count + RECORDED_PER_HOST) * BYTES_PER_SERIES
        if need > (free := psutil.virtual_memory().available):
            raise click.ClickException(f"{hosts} hosts take {need / GIB:.0f} of {free / GIB:.0f} GiB; ask for fewer")
        click.echo(f"{hosts:,} hosts, profile {profile}: {(self.settle_seconds + self.seconds) / 60:.1f} min", err=True)
        with (
            tempfile.TemporaryDirectory(prefix="gpu-triage-fleet-") as folder,
            sink() as (to, arrived),
            served(lambda host: pages.page(host, time.time())) as address,
            prometheus(Path(folder), address, hosts, self.scrape_seconds, remote_writes(to, queues)) as server,
        ):
            groups: dict[str, Seen] = {}
            process = psutil.Process(server.pid)
            time.sleep(self.settle_seconds)
            before, cpu, began, earlier = own_page(server), _cpu(process), time.monotonic(), arrived.copy()
            while (left := began + self.seconds - time.monotonic()) > 0:
                time.sleep(min(LOOK_SECONDS, left))
                look(server, groups, CALM)
            after, span, cores = own_page(server), time.monotonic() - began, _cpu(process) - cpu
            writes = {name: _write(name, before, after, span, (arrived - earlier)[f"/{name}"]) for name in queues}
            series = server.ask("status/tsdb")["headStats"]["numSeries"]
            complete = all_scraped(server, hosts, self.seconds, self.scrape_seconds)
            return Cost(
                hosts=hosts,
                profile=profile,
                page_series=pages.count,
                series=series,
                samples_per_second=(summed(after, APPENDED) - summed(before, APPENDED)) / span,
                peak_bytes=_peak(process),
                cores=cores / span,
                evaluation=longest(groups),
                complete=complete,
                writes=writes,
            )


def remote_writes(address: str, queues: Sequence[str]) -> Iterator[dict[str, object]]:
    for name in queues:
        keep = {"source_labels": ["__name__"], "regex": sent()[name], "action": "keep"}
        yield {"name": name, "url": f"http://{address}/{name}", "write_relabel_configs": [keep]}


def longest(groups: Mapping[str, Seen]) -> tuple[float, str]:
    """The longest evaluation as a share of its group's interval, and the group; 0 where none was evaluated."""
    shares = ((max([*seen.times[CALM], seen.first]) / seen.interval, name) for name, seen in groups.items())
    return max(shares, default=(0.0, ""))


def _write(name: str, before: str, after: str, span: float, arrived: int) -> Write:
    def grown(metric: str) -> float:
        queue = f'remote_name="{name}"'
        return summed(after, metric, queue) - summed(before, metric, queue)

    samples, dropped = grown(f"{SENT}_samples_total"), grown(f"{SENT}_samples_dropped_total")
    appended = summed(after, APPENDED) - summed(before, APPENDED)
    failed = round(grown(f"{SENT}_samples_failed_total"))
    return Write(samples / span, arrived * 8 / span, failed, (samples + dropped) / appended)


def _cpu(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


def _peak(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def bytes_per_sample(history: History) -> float:
    """On disk, chunks and index, of a history that must fit one block of two hours, in a real block of Prometheus."""
    with tempfile.TemporaryDirectory() as directory:
        text, blocks = Path(directory) / "history.om", Path(directory) / "blocks"
        with text.open("w", encoding="utf-8") as out:
            write_openmetrics(history, out)
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(blocks)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (written,) = (path.parent for path in blocks.glob("*/meta.json"))
        stats = json.loads((written / "meta.json").read_text(encoding="utf-8"))["stats"]
        parts = [*(written / "chunks").iterdir(), written / "index"]
        return float(sum(path.stat().st_size for path in parts) / stats["numSamples"])


@dataclass(frozen=True, slots=True)
class Fleet:
    """All that was measured."""

    costs: Sequence[Cost]
    bytes_per_sample: Mapping[str, float]  # on disk, by profile

    @property
    def plain(self) -> list[Cost]:
        """Runs with the same queues of remote write, which are comparable."""
        return [cost for cost in self.costs if EVERYTHING not in cost.writes]

    @property
    def memory(self) -> LinearRegression:
        """Highest memory in bytes by series in the head, as a least-squares line.

        Raises:
            StatisticsError: only one number of hosts was measured.
        """
        return linear_regression([cost.series for cost in self.plain], [cost.peak_bytes for cost in self.plain])

    def largest(self, profile: str) -> Cost:
        return max((cost for cost in self.plain if cost.profile == profile), key=lambda cost: cost.hosts)

    def month(self, profile: str, hosts: int) -> str:
        """Disk of Prometheus in 30 days."""
        cost = self.largest(profile)
        samples = cost.samples_per_second / cost.hosts * hosts * MONTH_SECONDS
        size = samples * self.bytes_per_sample[profile] / GB
        return f"{size:,.0f} GB" if size >= 10 else f"{size:.2f} GB"

    def hosts_within(self, profile: str, memory_bytes: float) -> int:
        """How many hosts one Prometheus holds in so much memory, rounded down to two digits, as the figures are."""
        cost, line = self.largest(profile), self.memory
        hosts = max(0, int((memory_bytes - line.intercept) / line.slope / (cost.series / cost.hosts)))
        unit = int(10 ** max(0, len(str(hosts)) - 2))
        return hosts // unit * unit

    def tables(self) -> Iterator[str]:
        """For docs/benchmarks.md."""
        yield from table(map(_run_row, self.costs))
        yield ""
        yield from table(map(self._profile_row, PROFILES))
        yield ""
        yield from table(_write_row(cost, name, write) for cost in self.costs for name, write in cost.writes.items())
        line = self.memory
        formula = f"{line.slope * 1e6 / GIB:.3g} GiB per million series {line.intercept / GIB:+.3g} GiB"
        yield from ("", f"- Memory of all runs but the one that sends everything: {formula}.")

    def sizing(self) -> Mapping[str, Iterable[str]]:
        """For docs/sizing.md, by section."""
        writes = ((name, cost.hosts, sent) for cost in self.costs for name, sent in cost.writes.items())
        mbits = {name: sent.bits_per_second / hosts * 1000 / MBIT for name, hosts, sent in writes if sent.kept_up}
        return {
            "hosts": table(map(self._machine_row, MACHINES_GIB)),
            "remote-write": table({"sent<": name, "Mbit/s": f"{each:.1f}"} for name, each in mbits.items()),
            "disk": table({"profile<": f"`{each}`", "disk": self.month(each, 1000)} for each in PROFILES),
        }

    def _machine_row(self, gib: int) -> dict[str, str]:
        hosts = {f"`{each}`": f"{self.hosts_within(each, gib * GIB * USED_SHARE):,}" for each in PROFILES}
        return {"memory of the machine": f"{gib} GiB", **hosts}

    def _profile_row(self, profile: str) -> dict[str, str]:
        cost = self.largest(profile)
        return {
            "profile<": f"`{profile}`",
            "series served": f"{cost.page_series:,}",
            "series held": f"{cost.series / cost.hosts:,.0f}",
            "samples/s": f"{cost.samples_per_second / cost.hosts:,.0f}",
            "bytes per sample on disk": f"{self.bytes_per_sample[profile]:.2f}",
            "disk, 30 days": self.month(profile, 1),
        }


def _run_row(cost: Cost) -> dict[str, str]:
    share, group = cost.evaluation
    return {
        "hosts": f"{cost.hosts:,}",
        "profile<": f"`{cost.profile}`",
        "series": f"{cost.series:,}",
        "samples/s": f"{cost.samples_per_second:,.0f}",
        "memory": f"{cost.peak_bytes / GIB:.2f} GiB",
        "KiB per series": f"{cost.peak_bytes / cost.series / 1024:.1f}",
        "cores": f"{cost.cores:.2f}",
        "longest evaluation<": f"{share:.1%}, {group}",
        "scrapes<": "complete" if cost.complete else "**missed**",
    }


def _write_row(cost: Cost, name: str, sent: Write) -> dict[str, str]:
    return {
        "hosts": f"{cost.hosts:,}",
        "profile<": f"`{cost.profile}`",
        "series sent<": name,
        "samples/s": f"{sent.samples_per_second:,.0f}",
        "Mbit/s": f"{sent.bits_per_second / MBIT:.2f}",
        "failed samples": f"{sent.failed:,}",
        "kept up<": "yes" if sent.kept_up else "no",
    }


@click.command(help=__doc__)
@click.option("--hosts", default="250,1000,2500", show_default=True, help="Numbers of hosts with eight GPUs.")
@click.option("--scrape", "scrape_seconds", default=15, show_default=True, help="Seconds between scrapes of a host.")
@click.option("--minutes", default=5.0, show_default=True, help="Measured time of each run.")
@click.option("--settle", "settle_seconds", default=75.0, show_default=True, help="Seconds of each run before that.")
@click.option("--history-hours", default=2.0, show_default=True, help="What the block holds that disk is measured on.")
@TO_SCREEN
def main(
    *, hosts: str, scrape_seconds: int, minutes: float, settle_seconds: float, history_hours: float, to_screen: bool
) -> None:
    start = (int(time.time()) // BLOCK_SECONDS - 2) * BLOCK_SECONDS
    seconds = history_hours * 3600 - scrape_seconds
    histories = {each: with_noise(history_of_host(seconds, scrape_seconds, start, each)) for each in PROFILES}
    bench = Bench(histories, scrape_seconds, settle_seconds, minutes * 60)
    smallest, *larger = sorted({int(each) for each in hosts.split(",")})
    runs = [*((smallest, profile) for profile in PROFILES), *((size, DEFAULT) for size in larger)]
    costs = [bench.run(*run) for run in runs]
    costs.append(bench.run(smallest, DEFAULT, tuple(sent())))
    fleet = Fleet(costs, {profile: bytes_per_sample(history) for profile, history in histories.items()})
    report("fleet", [conditions(), "", *fleet.tables()], to_screen=to_screen)
    for name, lines in fleet.sizing().items():
        report(name, lines, to_screen=to_screen, page=SIZING)
    sys.exit(0 if all(cost.complete for cost in costs) else 1)
