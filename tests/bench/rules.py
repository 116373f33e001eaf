"""What the rules cost a Prometheus of many hosts, while nothing is wrong and while every tenth host is too hot.

Exits with 1 if a scrape was missed or a group takes too much of its interval at 1,000 hosts.
"""

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TextIO

import click
import psutil
from tests.bench.hosts import (
    JOB,
    MET,
    MET_SECONDS,
    MET_SHARE,
    PlayedPages,
    history_of_host,
    host_name,
    number,
    of_host,
    prometheus,
    served,
)
from tests.bench.page import TO_SCREEN, conditions, report, table
from tests.e2e.processes import Prometheus

from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.exporter.judgment import (
    GPU_FINDING,
    GPU_FINDING_LASTED_SECONDS,
    GPU_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_FINDING_VALUE,
)
from gpu_triage.read.gpu.presence import GPU_UP

SCALED_HOSTS = 1000
SETTLING, CALM, HOT = "settling", "calm", "hot"
ALLOWED_SHARE = {CALM: 0.05, HOT: 0.1}
"""Of a group's interval, by what the hosts do."""
NOT_COUNTED = 0.4
"""Share of the time, from the start, that is not counted: windows of 10 minutes are not full yet."""
HOT_SHARE = 0.1
"""Share of the hosts that get too hot, all eight GPUs of each, in the second half of what counts."""
LOOK_SECONDS = 15.0
RECORDED, FIRING = 'count({__name__=~".+:.+"})', 'count(ALERTS{alertname="GpuHwThermalThrottling",alertstate="firing"})'

BLOCK_SECONDS = 7200
"""Of a block of Prometheus, which starts at a multiple of it. promtool reads its input once for each."""
MINUTE, HOUR, DAY = 60, 3600, 86400

SCRAPED: dict[str, int] = {"gpu_info": 15 * MINUTE, "gpu_process_owner_info": 15 * MINUTE}
"""Series of a healthy host that the rules look back on for longer than the benchmark lets them settle, and how far."""
TARGET = "instance:gpu_exporter_target:up"
COPIES = "instance_gpu_class:gpu_bottleneck_seconds:max5m"


@dataclass
class Seen:
    """Evaluation times in seconds of one group, as Prometheus reports them at each look."""

    interval: float = 0.0  # between evaluations
    rules: int = 1
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # of those that count, by phase
    first: float = 0.0  # it reads its windows from disk, as once after a restart
    last: str = ""  # when the last one was

    def note(self, at: str, seconds: float, phase: str) -> None:
        """Take in the last evaluation, which was at this time; once, however often it is seen."""
        if not seconds or at == self.last:
            return
        if not self.last:
            self.first = seconds
        elif phase != SETTLING:
            self.times[phase].append(seconds)
        self.last = at

    def scaled(self, phase: str, hosts: int) -> float:
        """The longest evaluation as a share of the interval, if all hosts of the fleet that is scaled to were there."""
        return max(self.times[phase]) / self.interval * SCALED_HOSTS / hosts

    def too_slow(self, hosts: int) -> bool:
        return any(self.scaled(phase, hosts) > ALLOWED_SHARE[phase] for phase, times in self.times.items() if times)


class HotPages:
    """Pages of hosts, the first of which overheat at once: with a confirmed finding for each of their GPUs."""

    def __init__(self, pages: PlayedPages, hosts: int) -> None:
        row = BY_CODE["thermal.hw"]
        kind = f'action="{row.action}",code="{row.code}",severity="{row.severity}"'
        self._pages = pages
        self._hosts = hosts
        self._findings = "".join(
            f"{GPU_FINDING.name}{{{kind},{labels}}} 2\n"
            f'{GPU_FINDING_VALUE.name}{{code="{row.code}",{labels}}} 0.4\n'
            f'{GPU_FINDING_LASTED_SECONDS.name}{{code="{row.code}",{labels}}} 900\n'
            f"{GPU_FINDING_SINCE_TIMESTAMP_SECONDS.name}{{{kind},{labels}}} {time.time():.0f}\n"
            for name, labels, _ in pages.series
            if name == GPU_UP.name
        )
        self.hot = False

    def __call__(self, host: int) -> bytes:
        page = self._pages.page(host, time.time())
        return page + of_host(self._findings, host).encode() if self.hot and host < self._hosts else page


def look(server: Prometheus, groups: dict[str, Seen], phase: str) -> None:
    """Add what the last evaluation of every group took."""
    for group in server.ask("rules")["groups"]:
        seen = groups.setdefault(group["name"], Seen(group["interval"], len(group["rules"])))
        seen.note(group["lastEvaluation"], group["evaluationTime"], phase)


def all_scraped(server: Prometheus, hosts: int, seconds: float, scrape_seconds: int) -> bool:
    """Whether no scrape of the last so many seconds was missed; at the edges of the time one may fall outside."""
    window = f"{int(seconds)}s"
    fewest = number(server, f"min(sum_over_time(up[{window}]))")
    failed = number(server, f"sum(count_over_time(up[{window}]) - sum_over_time(up[{window}]))")
    return number(server, "count(up)") == hosts and fewest >= seconds // scrape_seconds - 1 and failed == 0


class Growing(NamedTuple):
    """A series at the end of the past."""

    labels: str  # as `written`
    value: float
    slope: float  # growth a second; 0 for gauges


class Past(NamedTuple):
    """What Prometheus shall already know of a metric."""

    name: str  # of the metric or recorded series
    series: list[Growing]  # of one host
    seconds: int  # how far back it goes
    step_seconds: int  # between its samples


def past_of(pages: PlayedPages, scrape_seconds: int) -> list[Past]:
    """What the rules' longest windows look back on: scraped series, and those that the rules themselves record."""
    by_name: dict[str, list[Growing]] = {}
    for name, labels, values in pages.series:
        by_name.setdefault(name, []).append(Growing(labels, values[-1], 0.0))

    def recorded(name: str, value: float, slope: float, extra: str = "") -> Past:
        return Past(name, [Growing(f"{extra}{gpu.labels}", value, slope) for gpu in by_name["gpu_up"]], DAY, 300)

    return [
        *(Past(name, by_name[name], seconds, scrape_seconds) for name, seconds in SCRAPED.items()),
        Past("up", [Growing("", 1.0, 0.0)], 20 * MINUTE, scrape_seconds),
        Past(TARGET, [Growing("", 1.0, 0.0)], HOUR, MINUTE),
        recorded("instance_gpu_name:gpu_available:last5m", 1.0, 0.0, 'name="NVIDIA H100 80GB HBM3",'),
        recorded("instance_gpu_name:gpu_busy:last5m", 0.95, 0.0, 'name="NVIDIA H100 80GB HBM3",'),
        recorded("instance_gpu:gpu_allocated_idle:active", 0.0, 0.0),
        recorded("instance_gpu:gpu_energy_joules:last5m", 5e7, 500.0),
        recorded("instance_gpu_reason:gpu_throttle_seconds:max5m", 9e3, 0.1, 'reason="sw_power_cap",'),
        *(recorded(COPIES, MET_SECONDS, MET_SHARE, f'class="{name}",') for name in MET),
    ]


def backfill(pasts: list[Past], hosts: int, data: Path, end: int) -> int:
    """Fill a data folder with the fleet's past, which ends at a Unix time; returns the number of samples."""
    count = 0
    begin = (end - max(past.seconds for past in pasts)) // BLOCK_SECONDS * BLOCK_SECONDS
    for since in range(begin, end, BLOCK_SECONDS):
        text = data.parent / "past.om"
        with text.open("w", encoding="utf-8") as out:
            written = write_past(pasts, hosts, range(since, min(end, since + BLOCK_SECONDS)), end, out)
        if written:
            command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(data)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        count += written
    return count


def write_past(pasts: list[Past], hosts: int, part: range, end: int, out: TextIO) -> int:
    """Write a part of the past as OpenMetrics with timestamps; returns how many samples."""
    count = 0
    for past in pasts:
        kind = "counter" if past.name.endswith("_total") else "gauge"
        out.write(f"# TYPE {past.name.removesuffix('_total')} {kind}\n")
        begin = max(part.start, end - past.seconds)
        # On full minutes, as rules are evaluated.
        times = range(-(-begin // past.step_seconds) * past.step_seconds, part.stop, past.step_seconds)
        for host in range(hosts):
            target = f'instance="{host_name(host)}",job="{JOB}"'
            for series in past.series:
                labels = ",".join(filter(None, (target, of_host(series.labels, host))))
                samples = _samples(series.value, series.slope, times, end)
                out.write("".join(f"{past.name}{{{labels}}} {sample}" for sample in samples))
                count += len(times)
    out.write("# EOF\n")
    return count


@lru_cache(maxsize=256)
def _samples(value: float, slope: float, times: range, end: int) -> list[str]:
    """Value and time of each sample; a counter grows into its value at the end."""
    return [f"{max(0.0, value - slope * (end - at)):g} {at}\n" for at in times]


def phase_of(left: float, counted: float) -> str:
    """What counts is the last `counted` of the seconds: half of it calm, half of it hot."""
    if left > counted:
        return SETTLING
    return CALM if left > counted / 2 else HOT


def group_row(name: str, seen: Seen, hosts: int) -> dict[str, str]:
    row = {
        "group<": name,
        "rules": str(seen.rules),
        "interval": f"{seen.interval:.0f} s",
        "first": f"{seen.first:.2f} s",
    }
    for phase in ALLOWED_SHARE:
        times = seen.times[phase]
        row[f"{phase}: longest"] = f"{max(times):.2f} s" if times else "-"
        row[f"{phase}: scaled"] = f"{seen.scaled(phase, hosts):.1%}" if times else "-"
    return row


def measured(hosts: int, scrape_seconds: int, minutes: float, directory: Path) -> tuple[list[str], bool]:
    """The lines of the section, and whether the figures are as good as is aimed for."""
    start, counted = time.time(), minutes * 60 * (1 - NOT_COUNTED)
    history = history_of_host(minutes * 60 + 900, scrape_seconds, start)
    played = PlayedPages(history, start)
    samples = backfill(past_of(played, scrape_seconds), hosts, directory / "tsdb", int(start))
    groups: dict[str, Seen] = {}
    pages = HotPages(played, round(hosts * HOT_SHARE))
    with served(pages) as address, prometheus(directory, address, hosts, scrape_seconds) as server:
        limit = time.monotonic() + minutes * 60
        while (left := limit - time.monotonic()) > 0:
            time.sleep(min(LOOK_SECONDS, left))
            look(server, groups, phase_of(left, counted))
            pages.hot = left <= counted / 2
        process = psutil.Process(server.pid)
        used, complete = process.cpu_times(), all_scraped(server, hosts, counted, scrape_seconds)
        series = server.ask("status/tsdb")["headStats"]["numSeries"]
        facts = (
            f"{samples:,} samples of the past, {series:,} series in memory, "
            f"{number(server, RECORDED) / hosts:.0f} recorded per host, {process.memory_info().rss / 2**30:.1f} GiB, "
            f"{(used.user + used.system) / (minutes * 60):.2f} cores, {number(server, FIRING):.0f} alerts of hot GPUs, "
            f"scrapes {'complete' if complete else '**missed: the figures are not valid**'}"
        )
    rows = (group_row(name, seen, hosts) for name, seen in groups.items() if any(seen.times.values()))
    slow = [name for name, seen in groups.items() if seen.too_slow(hosts)]
    click.echo(f"too slow at {SCALED_HOSTS:,} hosts: {', '.join(slow) or 'no group'}", err=True)
    return [conditions(), "", *table(rows), "", facts], complete and not slow


@click.command(help=__doc__)
@click.option("--hosts", default=500, show_default=True, help="Hosts of eight GPUs; as many as the machine sustains.")
@click.option("--scrape", "scrape_seconds", default=15, show_default=True, help="Seconds between scrapes of a host.")
@click.option("--minutes", default=25.0, show_default=True, help="How long to watch; the first part does not count.")
@TO_SCREEN
def main(hosts: int, scrape_seconds: int, minutes: float, *, to_screen: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="gpu-triage-rules-") as folder:
        lines, good = measured(hosts, scrape_seconds, minutes, Path(folder))
    report("rules", lines, to_screen=to_screen)
    sys.exit(0 if good else 1)
