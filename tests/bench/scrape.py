"""A scraper as Prometheus is one: GET /metrics over a connection it keeps, at a pace or as fast as it gets answers."""

from __future__ import annotations

import gzip
import http.client
import itertools
import time
from dataclasses import dataclass

HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": "Prometheus/bench",
    "X-Prometheus-Scrape-Timeout-Seconds": "10",
}
TIMEOUT_SECONDS = 10.0
GOLDEN_RATIO = 0.6180339887


@dataclass(frozen=True, slots=True)
class Scrapes:
    """What one or several scrapers met.

    Attributes:
        latencies_ms: from before the request is sent until the whole body is read, of each answered scrape.
        failures: scrapes that got no answer, or another one than 200.
        seconds: how long it went on.
    """

    latencies_ms: tuple[float, ...]
    failures: int
    seconds: float

    def percentile_ms(self, percent: float) -> float:
        """The latency that `percent` of the scrapes did not exceed (nearest rank); infinite without a scrape."""
        ordered = sorted(self.latencies_ms)
        if not ordered:
            return float("inf")
        rank = max(0, -(-len(ordered) * percent // 100) - 1)
        return ordered[int(rank)]

    @property
    def per_second(self) -> float:
        """Answered scrapes a second."""
        return len(self.latencies_ms) / self.seconds


@dataclass(frozen=True, slots=True)
class PageSize:
    """One page of metrics.

    Attributes:
        series: samples on it, those of the exporter about itself included.
        process_series: those of them that are about one process (label `pid`).
        plain_bytes, gzip_bytes: of the body as the server sends it.
    """

    series: int
    process_series: int
    plain_bytes: int
    gzip_bytes: int


def scrape_for(port: int, seconds: float, interval: float, begin: float | None = None) -> Scrapes:
    """Scrape for a time.

    Args:
        port: on 127.0.0.1.
        seconds: for how long.
        interval: seconds from the start of a scrape to that of the next, on average: each is put off by a share of
            it, so that over time they meet the exporter at every phase of its second. 0 for no pause at all.
        begin: when, on the monotonic clock that processes share; at once if None.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    started = time.monotonic() if begin is None else begin
    latencies: list[float] = []
    failures = 0
    for turn in itertools.count():
        due = started + interval * (turn + turn * GOLDEN_RATIO % 1)
        now = time.monotonic()
        if max(due, now) >= started + seconds:
            break
        time.sleep(max(0.0, due - now))
        sent = time.perf_counter()
        try:
            status, _ = _get(connection, HEADERS)
        except (OSError, http.client.HTTPException):
            connection.close()
            status = 0
        if status == http.HTTPStatus.OK:
            latencies.append((time.perf_counter() - sent) * 1000.0)
        else:
            failures += 1
    connection.close()
    return Scrapes(tuple(latencies), failures, time.monotonic() - started)


def merged(parts: list[Scrapes]) -> Scrapes:
    """Scrapers that ran side by side, as one."""
    return Scrapes(
        tuple(latency for part in parts for latency in part.latencies_ms),
        sum(part.failures for part in parts),
        max(part.seconds for part in parts),
    )


def page(port: int) -> str:
    """The page in the plain text format.

    Raises:
        OSError: nobody answers there yet.
    """
    return _body(port, {"Accept": "text/plain;version=0.0.4"}).decode()


def page_size(port: int) -> PageSize:
    """How large the page is that Prometheus gets."""
    plain = _body(port, HEADERS | {"Accept-Encoding": "identity"})
    packed = _body(port, HEADERS)
    if gzip.decompress(packed).count(b"\n") < plain.count(b"\n") // 2:
        raise RuntimeError(f"port {port}: the gzip page is not the plain page")
    series = [line for line in plain.decode().splitlines() if line and not line.startswith("#")]
    return PageSize(
        series=len(series),
        process_series=sum('pid="' in line for line in series),
        plain_bytes=len(plain),
        gzip_bytes=len(packed),
    )


def _body(port: int, headers: dict[str, str]) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        status, body = _get(connection, headers)
    except http.client.HTTPException as error:
        raise OSError(f"port {port}: {error}") from error
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise OSError(f"port {port} answers {status}")
    return body


def _get(connection: http.client.HTTPConnection, headers: dict[str, str]) -> tuple[int, bytes]:
    connection.request("GET", "/metrics", headers=headers)
    response = connection.getresponse()
    return response.status, response.read()
