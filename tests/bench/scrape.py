"""A scraper as Prometheus is one: GET /metrics over a connection it keeps, at a pace."""

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
}
TIMEOUT_SECONDS = 10.0
GOLDEN_RATIO = 0.6180339887


@dataclass(frozen=True, slots=True)
class Scrapes:
    """What one or several scrapers met."""

    latencies_ms: tuple[float, ...]  # from before the request is sent until the whole body is read
    failures: int  # scrapes that got no answer, or another one than 200

    @property
    def latencies(self) -> str:
        """p50 / p99 / slowest in milliseconds, and how many failed."""
        p50, p99, slowest = (self.percentile_ms(percent) for percent in (50, 99, 100))
        return f"{p50:.1f} / {p99:.1f} / {slowest:.1f} ms" + (f", {self.failures} failed" if self.failures else "")

    def percentile_ms(self, percent: float) -> float:
        """The latency that `percent` of the scrapes did not exceed (nearest rank); infinite without a scrape."""
        ordered = sorted(self.latencies_ms)
        return ordered[int(max(0, -(-len(ordered) * percent // 100) - 1))] if ordered else float("inf")


class Connection:
    """Asks 127.0.0.1 for /metrics, over one connection for as long as the server keeps it.

    It does little more than Prometheus does in Go, because the C of httptools parses the answers: the server is what is
    measured.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._body: list[bytes] = []
        self._complete = self._kept = False

    def get(self, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and body of an answer.

        Raises:
            OSError: nobody answers, not in time, or not in HTTP; the next call connects again.
        """
        self._body, self._complete, self._kept = [], False, False
        self._parser = httptools.HttpResponseParser(self)
        try:
            self._ask(headers)
        except httptools.HttpParserError as error:
            raise OSError(f"port {self._port}: {error}") from error
        finally:
            if not self._kept:
                self.close()
        return self._parser.get_status_code(), b"".join(self._body)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        """Called by the parser, which forgets with the message whether the connection is kept."""
        self._complete, self._kept = True, self._parser.should_keep_alive()

    def _ask(self, headers: dict[str, str]) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = (f"{name}: {value}\r\n" for name, value in headers.items())
        self._socket.sendall(f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n{''.join(lines)}\r\n".encode())
        while not self._complete:
            received = self._socket.recv(1 << 18)
            if received:
                self._parser.feed_data(received)
            elif self._body:
                return  # without a length, the end of the connection is that of the body
            else:
                raise OSError(f"port {self._port} closed the connection")


def scrape_for(port: int, seconds: float, interval: float, begin: float | None = None) -> Scrapes:
    """Scrape a port of 127.0.0.1 for a time.

    Args:
        port: its number.
        seconds: how long.
        interval: seconds from the start of a scrape to that of the next, on average: each is put off by a share of it,
            so that over time they meet the exporter at every phase of its second.
        begin: when, on the monotonic clock that processes share; at once if None.
    """
    connection = Connection(port)
    started = time.monotonic() if begin is None else begin
    latencies: list[float] = []
    failures = 0
    for turn in itertools.count():
        due = started + interval * (turn + turn * GOLDEN_RATIO % 1)
        if max(due, time.monotonic()) >= started + seconds:
            break
        time.sleep(max(0.0, due - time.monotonic()))
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
    return Scrapes(tuple(latencies), failures)


def merged(parts: list[Scrapes]) -> Scrapes:
    return Scrapes(tuple(itertools.chain(*(part.latencies_ms for part in parts))), sum(part.failures for part in parts))


def page(port: int, **headers: str) -> bytes:
    """The page, in the plain text format unless headers say otherwise.

    Raises:
        OSError: nobody answers there yet, or not with a page.
    """
    connection = Connection(port)
    status, body = connection.get({"Accept": "text/plain;version=0.0.4", **headers})
    connection.close()
    if status != http.HTTPStatus.OK:
        raise OSError(f"port {port} answers {status}")
    return body
