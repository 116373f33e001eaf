"""One run of a fleet: hosts that are played, a real Prometheus with the rules, and where it sends its remote write."""

from __future__ import annotations

import os
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
import psutil
from tests.bench.fleet import served
from tests.bench.fleet_figures import CHOSEN, EVERYTHING, PLAIN, RECORDED, Cost, Victoria, Write, sent
from tests.bench.fleet_played import PlayedPages
from tests.bench.rules import configuration, look, scrapes
from tests.bench.rules_page import Phase, Seen
from tests.bench.servers import Counters, ask, own_metrics, prometheus, summed, victoria_metrics
from tests.bench.sink import Sink, sink

from gpu_triage_simulator.history import History

LOOK_SECONDS = 15.0
BLOCK_WITHIN_SECONDS = 1800
APPENDED = "prometheus_tsdb_head_samples_appended_total"
SENT = "prometheus_remote_storage"


class TooLarge(Exception):
    """A run left less memory to others than it must."""


class Stopped(click.ClickException):
    """The benchmark was told to end."""


@dataclass(frozen=True, slots=True)
class Run:
    """What is run."""

    hosts: int  # of eight GPUs
    profile: str  # of the metrics that they serve
    history: History  # that they play
    scrape_seconds: int  # between two scrapes of one
    settle_seconds: float  # before anything counts
    seconds: float  # that count
    keep_free_bytes: int  # of memory; with less the run ends
    everything: bool = False  # whether every series is sent too, to VictoriaMetrics

    @property
    def name(self) -> str:
        sent = ", everything sent to VictoriaMetrics" if self.everything else ""
        return f"{self.hosts:,} hosts with profile {self.profile}{sent}"


@dataclass(frozen=True, slots=True)
class _Reading:
    at: float
    own: Counters
    cpu_seconds: float
    body_bytes: dict[str, int]


def measured(run: Run, directory: Path, stop: threading.Event) -> Cost:
    """Runs it and returns what it cost.

    Raises:
        TooLarge: memory ran short.
        Stopped: `stop` was set.
    """
    pages = PlayedPages(run.history, time.time())
    with ExitStack() as stack:
        arrived = stack.enter_context(sink())
        victoria = stack.enter_context(victoria_metrics(directory)) if run.everything else None
        address = stack.enter_context(served(lambda host: pages.page(host, time.time())))
        config = configuration(address, run.hosts, run.scrape_seconds)
        config["remote_write"] = remote_writes(arrived.address, victoria and victoria[0])
        url, process = stack.enter_context(prometheus(directory, config, "--web.enable-admin-api"))
        groups: dict[str, Seen] = {}
        _let_run(run, run.settle_seconds, stop)
        before = _read(url, process, arrived)
        resident = [_resident(process) for _ in _looks(run, url, groups, stop)]
        after = _read(url, process, arrived)
        series = ask(url, "status/tsdb")["headStats"]["numSeries"]
        went = scrapes(url, run.seconds, run.scrape_seconds)
        _write_block(url)
        span = after.at - before.at
        return Cost(
            hosts=run.hosts,
            profile=run.profile,
            kind=EVERYTHING if run.everything else PLAIN,
            page_series=pages.series,
            series=series,
            samples_per_second=_grown(before, after, APPENDED) / span,
            memory_bytes=max(resident),
            peak_bytes=_peak(process),
            cores=(after.cpu_seconds - before.cpu_seconds) / span,
            evaluation=longest(groups),
            scrapes=went,
            writes=tuple(_writes(before, after, span)),
            load=os.getloadavg()[0],
            victoria=_victoria(*victoria) if victoria else None,
        )


def remote_writes(sink_address: str, victoria_url: str | None) -> list[dict[str, object]]:
    """Remote write of the recorded series and of chosen raw ones; with a VictoriaMetrics, of more and of everything.

    Each queue reads all that is scraped, which costs CPU: runs that are compared with each other have two.
    """
    found: list[dict[str, object]] = [
        {
            "name": name,
            "url": f"http://{sink_address}/{name}",
            "write_relabel_configs": [{"source_labels": ["__name__"], "regex": pattern, "action": "keep"}],
        }
        for name, pattern in sent().items()
        if victoria_url or name in {RECORDED, CHOSEN}
    ]
    if victoria_url:
        found.append({"name": EVERYTHING, "url": f"{victoria_url}/api/v1/write"})
    return found


def longest(groups: dict[str, Seen]) -> tuple[float, str]:
    """The longest evaluation as a share of its group's interval, and the group; 0 where none was evaluated."""
    shares = (
        (max([*seen.times.get(Phase.CALM, []), seen.first]) / seen.interval, name) for name, seen in groups.items()
    )
    return max(shares, default=(0.0, ""))


def _let_run(run: Run, seconds: float, stop: threading.Event) -> None:
    limit = time.monotonic() + seconds
    while (left := limit - time.monotonic()) > 0:
        if stop.wait(min(1.0, left)):
            raise Stopped("ended early; nothing was written")
        free = psutil.virtual_memory().available
        if free < run.keep_free_bytes:
            raise TooLarge(f"ended it: it left {free / 2**30:.1f} GiB of memory")


def _looks(run: Run, url: str, groups: dict[str, Seen], stop: threading.Event) -> Iterator[None]:
    """One look at the rules after the other, for as long as the run counts."""
    limit = time.monotonic() + run.seconds
    while (left := limit - time.monotonic()) > 0:
        _let_run(run, min(LOOK_SECONDS, left), stop)
        look(url, groups, {}, Phase.CALM)
        yield


def _read(url: str, process: psutil.Process, arrived: Sink) -> _Reading:
    used = process.cpu_times()
    return _Reading(time.monotonic(), own_metrics(url), used.user + used.system, dict(arrived.body_bytes))


def _grown(before: _Reading, after: _Reading, metric: str, **labels: str) -> float:
    return summed(after.own, metric, **labels) - summed(before.own, metric, **labels)


def _writes(before: _Reading, after: _Reading, seconds: float) -> Iterator[Write]:
    """What each queue sent; where our own sink took it, its count of bytes is the one that counts."""
    appended = _grown(before, after, APPENDED)
    for name in (*sent(), EVERYTHING):
        samples = _grown(before, after, f"{SENT}_samples_total", remote_name=name)
        if not samples:
            continue
        path = f"/{name}"
        arrived = after.body_bytes.get(path, 0) - before.body_bytes.get(path, 0)
        yield Write(
            name=name,
            samples_per_second=samples / seconds,
            bytes_per_second=(arrived or _grown(before, after, f"{SENT}_bytes_total", remote_name=name)) / seconds,
            failed=round(_grown(before, after, f"{SENT}_samples_failed_total", remote_name=name)),
            read_share=(samples + _grown(before, after, f"{SENT}_samples_dropped_total", remote_name=name)) / appended,
        )


def _resident(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


def _write_block(url: str) -> None:
    """Lets Prometheus write what it holds as a block, as it does every two hours."""
    request = urllib.request.Request(f"{url}/api/v1/admin/tsdb/snapshot", method="POST")
    with urllib.request.urlopen(request, timeout=BLOCK_WITHIN_SECONDS) as answer:
        answer.read()


def _peak(process: psutil.Process) -> int:
    """The most memory that was ever resident, in bytes."""
    for line in Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return _resident(process)


def _victoria(url: str, process: psutil.Process) -> Victoria:
    return Victoria(_resident(process), round(summed(own_metrics(url), "vm_rows_inserted_total")))
