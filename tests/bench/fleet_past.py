"""What a Prometheus of a fleet already knows when its rules are measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click
import yaml
from tests.bench.fleet import FleetSeries, Past, write_past

ROOT = Path(__file__).resolve().parents[2]
HOSTS_A_FILE = 250
HOUR, DAY = 3600, 86400


def past_of(series: list[FleetSeries]) -> list[Past]:
    """What the rules' longest windows look back on: raw series, and those that the rules themselves record."""
    by_name: dict[str, list[FleetSeries]] = {}
    for one in series:
        by_name.setdefault(one.name, []).append(one)
    gpus = by_name["gpu_up"]

    def recorded(name: str, seconds: int, step: int, value: float, /, **more: list[str]) -> Past:
        labels = [""]
        for key, choices in more.items():
            labels = [f'{had}{key}="{choice}",' for had in labels for choice in choices]
        return Past(
            name,
            [FleetSeries(name, f"{extra}{gpu.labels}", value, 0.0) for gpu in gpus for extra in labels],
            seconds,
            step,
        )

    classes = [
        rule["labels"]["class"]
        for group in yaml.safe_load((ROOT / "rules" / "recording.yml").read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
        if rule["record"] == "instance_gpu:gpu_bottleneck:active"
    ]
    met = ["compute", "cpu", "idle", "storage", "unattributed"]
    reasons = sorted({one.labels.split('reason="')[1].split('"')[0] for one in by_name["gpu_throttle_seconds_total"]})
    raw = [
        Past(name, by_name[name], seconds, step)
        for name, seconds, step in (
            ("gpu_devices", 6 * HOUR, 60),
            ("gpu_memory_used_bytes", HOUR, 60),
            ("gpu_ecc_volatile_errors_total", DAY, 300),
            ("gpu_sm_utilization_ratio", DAY, 300),
        )
    ]
    return [
        *raw,
        recorded("instance_gpu:gpu_busy:ratio5m", 2 * HOUR, 60, 0.95),
        recorded("instance_gpu:gpu_busy:ratio15m", 2 * HOUR, 60, 0.95),
        recorded("instance_gpu:gpu_compute_processes:sum", 2 * HOUR, 60, 8.0),
        recorded("instance_gpu:gpu_allocated_idle:active", HOUR, 60, 0.0),
        recorded("instance_gpu:gpu_bottleneck:active", HOUR, 60, 0.0, **{"class": classes}),
        recorded("instance_gpu:gpu_busy_seconds:increase1h", DAY, HOUR, 3420.0),
        recorded("instance_gpu:gpu_observed_seconds:increase1h", DAY, HOUR, 3600.0),
        recorded("instance_gpu_name:gpu_info:present", DAY, 300, 1.0, name=["NVIDIA H100 80GB HBM3"]),
        recorded("instance_gpu:gpu_memory_used:max1h", DAY, HOUR, 6e10),
        recorded("instance_gpu:gpu_energy_joules:last5m", DAY, 300, 2e6),
        recorded("instance_gpu:gpu_allocated_idle_seconds:increase1h", DAY, HOUR, 0.0),
        recorded("instance_gpu_class:gpu_bottleneck_seconds:increase1h", DAY, HOUR, 3600 / len(met), **{"class": met}),
        recorded("instance_gpu_reason:gpu_throttle_seconds:last5m", DAY, 300, 0.0, reason=reasons),
    ]


def past_of_fleet() -> list[Past]:
    """A month of what the rules sum over all hosts, as the capacity review draws it."""
    names = {
        "name:gpu_busy:avg1d": ['name="NVIDIA H100 80GB HBM3"'],
        "name:gpu_hours_lost:sum1d": [
            f'class="{each}",name="NVIDIA H100 80GB HBM3"' for each in ("storage", "cpu", "sick")
        ],
        "cluster:gpu_devices:sum": [""],
        "workload:gpu_busy:avg1d": ["", 'workload="serving"'],
        "workload:gpu_allocated_idle_seconds:sum1d": ["", 'workload="serving"'],
        "workload:gpu_energy_joules:sum1d": ["", 'workload="serving"'],
    }
    return [
        Past(name, [FleetSeries(name, labels, 1.0, 0.0) for labels in each], 30 * DAY, 300, of_fleet=True)
        for name, each in names.items()
    ]


def backfill(pasts: list[Past], hosts: int, data: Path, end_seconds: int) -> int:
    """Fills a data folder with the fleet's past; returns the number of samples."""
    # promtool reads a file once for every two hours that it spans: the month stands in a file of its own.
    count = _import(past_of_fleet(), range(1), data, end_seconds)
    for first in range(0, hosts, HOSTS_A_FILE):
        part = range(first, min(hosts, first + HOSTS_A_FILE))
        count += _import(pasts, part, data, end_seconds)
        click.echo(f"  {part.stop} of {hosts} hosts have a past: {count:,} samples", err=True)
    return count


def _import(pasts: list[Past], hosts: range, data: Path, end_seconds: int) -> int:
    text = data.parent / "past.om"
    with text.open("w", encoding="utf-8") as out:
        count = write_past(pasts, hosts, end_seconds, out)
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(data)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    text.unlink()
    return count
