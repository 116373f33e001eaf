"""What a Prometheus of a fleet already knows when its rules are measured."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TextIO

import click
from tests.bench.fleet import JOB, MET, MET_SECONDS, MET_SHARE, FleetSeries, host_name, of_host

BLOCK_SECONDS = 7200
"""promtool reads its input once for each block that it spans: each block gets a file of its own."""
MINUTE, HOUR, DAY = 60, 3600, 86400

SCRAPED: dict[str, int] = {
    "gpu_info": 15 * MINUTE,
    "gpu_process_owner_info": 15 * MINUTE,
}
"""Series of a healthy host that the rules look back on for longer than the benchmark lets them settle, and how far."""
TARGET = "instance:gpu_exporter_target:up"
COPIES = "instance_gpu_class:gpu_bottleneck_seconds:max5m"


@dataclass(frozen=True, slots=True)
class Past:
    """What Prometheus shall already know of a metric."""

    name: str  # of the metric or recorded series
    series: list[FleetSeries]  # of one host
    seconds: int  # how far back it goes
    step_seconds: int  # between its samples
    of_fleet: bool = False  # whether the series are of all hosts together, not of each


def past_of(series: list[FleetSeries], scrape_seconds: int) -> list[Past]:
    """What the rules' longest windows look back on: scraped series, and those that the rules themselves record."""
    by_name: dict[str, list[FleetSeries]] = {}
    for one in series:
        by_name.setdefault(one.name, []).append(one)
    gpus = by_name["gpu_up"]

    def recorded(name: str, seconds: int, step: int, value: tuple[float, float], extra: str = "") -> Past:
        each = [FleetSeries(name, f"{extra}{gpu.labels}", *value) for gpu in gpus]
        return Past(name, each, seconds, step)

    return [
        *(Past(name, by_name[name], seconds, scrape_seconds) for name, seconds in SCRAPED.items()),
        Past("up", [FleetSeries("up", "", 1.0, 0.0)], 20 * MINUTE, scrape_seconds),
        Past(TARGET, [FleetSeries(TARGET, "", 1.0, 0.0)], HOUR, MINUTE),
        recorded("instance_gpu_name:gpu_busy:last5m", DAY, 300, (0.95, 0.0), 'name="NVIDIA H100 80GB HBM3",'),
        recorded("instance_gpu:gpu_allocated_idle:active", DAY, 300, (0.0, 0.0)),
        recorded("instance_gpu:gpu_energy_joules:last5m", DAY, 300, (5e7, 500.0)),
        recorded("instance_gpu_reason:gpu_throttle_seconds:max5m", DAY, 300, (9e3, 0.1), 'reason="sw_power_cap",'),
        *(recorded(COPIES, DAY, 300, (MET_SECONDS, MET_SHARE), f'class="{name}",') for name in MET),
    ]


def past_of_fleet() -> list[Past]:
    """A month of what the rules sum over all hosts, as the capacity review draws it."""
    names = {
        "name:gpu_observed_seconds:sum1d": ['name="NVIDIA H100 80GB HBM3"'],
        "name:gpu_busy:avg1d": ['name="NVIDIA H100 80GB HBM3"'],
        "name:gpu_hours_lost:sum1d": [
            f'class="{each}",name="NVIDIA H100 80GB HBM3"' for each in ("storage", "cpu", "sick")
        ],
        "cluster:gpu_devices:sum": [""],
        "owner:gpu_allocated:sum": ['workload_namespace="research"', 'user="alice",account="physics"'],
        "owner:gpu_busy:sum": ['workload_namespace="research"', 'user="alice",account="physics"'],
        "workload:gpu_observed_seconds:sum1d": ["", 'workload="serving"'],
        "workload:gpu_busy:avg1d": ["", 'workload="serving"'],
        "workload:gpu_allocated_idle_seconds:sum1d": ["", 'workload="serving"'],
        "workload:gpu_energy_joules:sum1d": ["", 'workload="serving"'],
        "owner:gpu_allocated_hours:sum1d": ['workload_namespace="research"', 'user="alice",account="physics"'],
        "owner:gpu_busy_hours:sum1d": ['workload_namespace="research"', 'user="alice",account="physics"'],
    }
    return [
        Past(name, [FleetSeries(name, labels, 1.0, 0.0) for labels in each], 30 * DAY, 300, of_fleet=True)
        for name, each in names.items()
    ]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a past, in Unix seconds."""

    since: int  # its begin
    until: int  # before which it ends
    end: int  # of the whole past, at which each series has its value


def backfill(pasts: list[Past], hosts: int, data: Path, end_seconds: int) -> int:
    """Fills a data folder with the fleet's past; returns the number of samples."""
    month = Part(end_seconds - 30 * DAY, end_seconds, end_seconds)
    count = _import(past_of_fleet(), range(1), month, data)
    longest = max(past.seconds for past in pasts)
    begin = (end_seconds - longest) // BLOCK_SECONDS * BLOCK_SECONDS
    for since in range(begin, end_seconds, BLOCK_SECONDS):
        part = Part(since, min(end_seconds, since + BLOCK_SECONDS), end_seconds)
        count += _import(pasts, range(hosts), part, data)
        click.echo(f"  a past of up to {(end_seconds - part.until) / HOUR:.0f} h ago: {count:,} samples", err=True)
    return count


def _import(pasts: list[Past], hosts: range, part: Part, data: Path) -> int:
    text = data.parent / "past.om"
    with text.open("w", encoding="utf-8") as out:
        count = write_past(pasts, hosts, part, out)
    if count:
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(data)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    text.unlink()
    return count


def write_past(pasts: list[Past], hosts: range, part: Part, out: TextIO) -> int:
    """Writes a part of the past of some hosts, by number, as OpenMetrics with timestamps; returns how many samples."""
    count = 0
    for past in pasts:
        kind = "counter" if past.name.endswith("_total") else "gauge"
        out.write(f"# TYPE {past.name.removesuffix('_total')} {kind}\n")
        begin = max(part.since, part.end - past.seconds)
        # On full minutes, as rules are evaluated.
        times = range(-(-begin // past.step_seconds) * past.step_seconds, part.until, past.step_seconds)
        for target, host in _targets(past, hosts):
            for series in past.series:
                labels = of_host(series.labels, host)
                head = f"{past.name}{{{','.join(filter(None, (target, labels)))}}} "
                out.write("".join(head + tail for tail in _tails(series.value, series.slope, times, part.end)))
                count += len(times)
    out.write("# EOF\n")
    return count


def _targets(past: Past, hosts: range) -> Iterator[tuple[str, int]]:
    if past.of_fleet:
        yield "", 0
    else:
        yield from ((f'instance="{host_name(host)}",job="{JOB}"', host) for host in hosts)


@lru_cache(maxsize=256)
def _tails(value: float, slope: float, times: range, end_seconds: int) -> list[str]:
    """Value and time of each sample; a counter grows into its value at the end."""
    return [f"{max(0.0, value - slope * (end_seconds - at)):g} {at}\n" for at in times]
