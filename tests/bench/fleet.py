"""A fleet of simulated hosts for a Prometheus: one host's page, served as if by hundreds."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client.parser import text_string_to_metric_families
from tests.listening import listening
from tests.rig import rig

from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK_SECONDS_TOTAL
from gpu_triage_simulator import load_scenario

JOB = "gpu-triage"
HOST = "@host@"
"""Stands in UUIDs for the number of the host, so that no two hosts share one."""
WORK = "@work@"
"""Stands in the names of pods for the number of the job, or all hosts of the fleet would be one job."""
JOB_HOSTS = 4
"""Hosts of a job."""

SETTLE_SECONDS = 120
SLOPE_SECONDS = 60

MET = ("storage", "cpu", "unattributed")
"""Classes that every GPU of the fleet is in now and then: what a GPU never met costs the rules nothing."""
MET_SHARE = 0.02
MET_SECONDS = 5000.0


@dataclass(frozen=True, slots=True)
class FleetSeries:
    """One series of the host that every host of the fleet is like."""

    name: str  # of the metric
    labels: str  # as written between the braces, with HOST in the UUIDs and WORK in the names of pods
    value: float  # at the fleet's start
    slope: float  # growth a second; 0 for gauges


def host_series(scenario: str) -> list[FleetSeries]:
    """The series that the exporter serves for a scenario, with what they grow in a second."""
    with rig(load_scenario(scenario)) as running:
        running.run(SETTLE_SECONDS)
        before = _samples(running.page())
        running.run(SLOPE_SECONDS)
        after = _samples(running.page())
    return [
        _met(FleetSeries(name, labels, value, max(0.0, value - before.get((name, labels), value)) / SLOPE_SECONDS))
        if name.endswith("_total")
        else FleetSeries(name, labels, value, 0.0)
        for (name, labels), value in after.items()
    ]


def _met(series: FleetSeries) -> FleetSeries:
    return replace(series, value=MET_SECONDS, slope=MET_SHARE) if is_met(series.name, series.labels) else series


def is_met(name: str, labels: str) -> bool:
    """Whether a series counts the seconds of a class that every GPU of the fleet is in now and then."""
    return name == GPU_BOTTLENECK_SECONDS_TOTAL.name and any(f'class="{each}"' in labels for each in MET)


def _samples(page: str) -> Mapping[tuple[str, str], float]:
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found[sample.name, written(sample.labels)] = sample.value
    return found


def written(labels: Mapping[str, str]) -> str:
    """Labels as between the braces of a page, with HOST in the UUIDs and WORK in the names of pods."""
    return ",".join(f'{key}="{_token(key, value)}"' for key, value in sorted(labels.items()))


def _token(key: str, value: str) -> str:
    if key == "workload_pod":
        return re.sub(r"^train-", f"train-{WORK}-", value)
    return re.sub(r"^GPU-[0-9a-f]{4}", f"GPU-{HOST}", value) if key.endswith("uuid") else value


def of_host(text: str, number: int) -> str:
    """Labels, or a page, of one host of the fleet."""
    return text.replace(HOST, f"{number:04x}").replace(WORK, f"job{number // JOB_HOSTS:04d}")


def host_name(number: int) -> str:
    return f"host-{number:04d}"


@contextmanager
def served(page_of: Callable[[int], bytes]) -> Iterator[str]:
    """Serves the page of every host under ``/NUMBER`` for the length of a ``with`` block; yields ``host:port``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = page_of(int(self.path.strip("/")))
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing of thousands of scrapes a minute."""

    with listening(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


def scrape_configs(address: str, hosts: int) -> list[dict[str, object]]:
    """The scrape job of a Prometheus for every host that `served` serves."""
    targets = [
        {"targets": [address], "labels": {"__metrics_path__": f"/{number}", "instance": host_name(number)}}
        for number in range(hosts)
    ]
    return [{"job_name": JOB, "static_configs": targets}]


class LinearPages:
    """Pages whose counters grow evenly.

    Args:
        clock_seconds: ``start``, and ``now`` as whoever drives it says: the page is rendered once for each.
    """

    def __init__(self, series: list[FleetSeries], clock_seconds: Mapping[str, float]) -> None:
        self._series = series
        self._clock_seconds = clock_seconds
        self._lock = threading.Lock()
        self._rendered: tuple[float, str] | None = None

    def __call__(self, host: int) -> bytes:
        with self._lock:
            now = self._clock_seconds["now"]
            if self._rendered is None or self._rendered[0] != now:
                self._rendered = (now, self._render(now - self._clock_seconds["start"]))
            page = self._rendered[1]
        return of_host(page, host).encode()

    def _render(self, elapsed: float) -> str:
        lines = [f"{s.name}{{{s.labels}}} {_value(s, elapsed, self._clock_seconds['now'])}\n" for s in self._series]
        return "".join(lines)


def _value(series: FleetSeries, elapsed: float, now: float) -> float:
    # Times that the host tells of stay recent, or a day of history would call the whole fleet stale.
    return now if series.name.endswith("_timestamp_seconds") else series.value + series.slope * elapsed
