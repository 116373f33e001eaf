"""A scraper as Prometheus is one: GET /metrics over a connection it keeps, at a pace or as fast as it gets answers."""

from __future__ import annotations

import gzip
import http
import itertools
import socket
import time
from dataclasses import dataclass

import httptools

HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": "Prometheus/bench",
    "X-Prometheus-Scrape-Timeout-Seconds": "10",
}
_AT_ONCE_BYTES = 1 << 18
TIMEOUT_SECONDS = 10.0
GOLDEN_RATIO = 0.6180339887


@dataclass(frozen=True, slots=True)
class Scrapes:
    """What one or several scrapers met."""

    # from before the request is sent until the whole body is read, of each answered scrape
    latencies_ms: tuple[float, ...]
    failures: int  # scrapes that got no answer, or another one than 200
    seconds: float  # how long it went on

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
    """One page of metrics."""

    series: int  # samples on it, those of the exporter about itself included
    process_series: int  # those of them that are about one process (label `pid`)
    # plain_bytes, gzip_bytes: of the body as the server sends it
    plain_bytes: int
    gzip_bytes: int


class Connection:
    """Asks 127.0.0.1 for /metrics, over one connection for as long as the server keeps it.

    It does little more than Prometheus does in Go, because the C of httptools parses the answers: the server is what is
    measured.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._complete = False
        self._kept = False

    def get(self, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and body of an answer.

        Raises:
            OSError: nobody answers, not in time, or not in HTTP; the next call connects anew.
        """
        self._body, self._complete, self._kept = [], False, False
        self._parser = httptools.HttpResponseParser(self)
        try:
            status = self._ask(headers)
        except httptools.HttpParserError as error:
            raise OSError(f"port {self._port}: {error}") from error
        finally:
            if not self._kept:
                self.close()
        return status, b"".join(self._body)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        """Called by the parser, which forgets with the message whether the connection is kept."""
        self._complete, self._kept = True, self._parser.should_keep_alive()

    def _ask(self, headers: dict[str, str]) -> int:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = (f"{name}: {value}\r\n" for name, value in headers.items())
        self._socket.sendall(f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n{''.join(lines)}\r\n".encode())
        while not self._complete:
            received = self._socket.recv(_AT_ONCE_BYTES)
            if not received:
                # Without a length, the end of the connection is that of the body.
                if self._parser.get_status_code() and self._body:
                    return self._parser.get_status_code()
                raise OSError(f"port {self._port} closed the connection")
            self._parser.feed_data(received)
        return self._parser.get_status_code()


def scrape_for(port: int, seconds: float, interval: float, begin: float | None = None) -> Scrapes:
    """Scrape for a time.

    Args:
        port: on 127.0.0.1.
        interval: seconds from the start of a scrape to that of the next, on average: each is put off by a share of it,
            so that over time they meet the exporter at every phase of its second. 0 for no pause at all.
        begin: when, on the monotonic clock that processes share; at once if None.
    """
    connection = Connection(port)
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
            status, _ = connection.get(HEADERS)
        except OSError:
            status = 0
        if status == http.HTTPStatus.OK:
            latencies.append((time.perf_counter() - sent) * 1000.0)
        else:
            failures += 1
    connection.close()
    return Scrapes(tuple(latencies), failures, time.monotonic() - started)


def merged(parts: list[Scrapes]) -> Scrapes:
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
    connection = Connection(port)
    try:
        status, body = connection.get(headers)
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise OSError(f"port {port} answers {status}")
    return body
