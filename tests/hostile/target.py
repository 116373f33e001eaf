"""The daemon of a simulated host as a process of its own, what it takes of its machine, and one who scrapes it."""

from __future__ import annotations

import base64
import http.client
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.certificates import Authority, trusting_context
from tests.e2e.processes import PROGRAM, started, wait_for

from gpu_triage.serve.passwords import hashed

USER, NEWCOMER, PASSWORD = "prometheus", "newcomer", "a password nobody guesses"
TIMEOUT_SECONDS = 30.0
COST = 10  # of the hash: what an operator would choose, some fifty milliseconds a check


class Figures(NamedTuple):
    resident_bytes: int
    threads: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Target:
    """A running daemon, as those see it who connect."""

    port: int  # on 127.0.0.1
    pid: int  # of its process
    folder: Path  # with its certificates, web configuration and log
    guarded: bool  # whether it wants TLS and a password
    source: str = "127.0.0.1"  # the loopback address that is connected from
    user: str = USER  # who scrapes where a password is wanted

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def context(self) -> ssl.SSLContext | None:
        """How to shake hands with it; None without TLS."""
        return trusting_context(self.folder) if self.guarded else None

    @property
    def authorization(self) -> dict[str, str]:
        claim = base64.b64encode(f"{self.user}:{PASSWORD}".encode()).decode()
        return {"Authorization": f"Basic {claim}"} if self.guarded else {}

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), TIMEOUT_SECONDS, (self.source, 0))

    def client(self) -> http.client.HTTPConnection:
        if self.context is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS, context=self.context)

    def ask(self, request: bytes) -> bytes:
        """Everything that is answered to these bytes, until the daemon closes; b"" where it just does."""
        received = b""
        with self.connect() as client:
            try:
                client.sendall(request)
                while chunk := client.recv(1 << 16):
                    received += chunk
            except ConnectionError:
                pass
        return received

    def figures(self) -> Figures:
        status = Path(f"/proc/{self.pid}/status").read_text()
        taken = dict(re.findall(r"^(VmRSS|Threads):\s+([0-9]+)", status, re.MULTILINE))
        descriptors = len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208 - procfs, and only counted
        return Figures(int(taken["VmRSS"]) * 1024, int(taken["Threads"]), descriptors)


@contextmanager
def target(folder: Path, *, guarded: bool = False, most_descriptors: int = 1024) -> Iterator[Target]:
    """A daemon that has taken its first samples, for the length of a ``with`` block."""
    flags = ["--simulate", "h100-8", "--log.level", "debug"]
    if guarded:
        users = "".join(f"  {name}: {hashed(PASSWORD.encode(), COST)}\n" for name in (USER, NEWCOMER))
        (folder / "web.yml").write_text(f"{Authority(folder).server()}basic_auth_users:\n{users}")
        flags += ["--web.config.file", str(folder / "web.yml")]
    bounded = ["sh", "-c", f'ulimit -n {most_descriptors} && exec "$@"', "sh"]
    with started(folder / "log", *flags, program=[*bounded, *PROGRAM]) as daemon:
        running = Target(int(daemon.address.rpartition(":")[2]), daemon.process.pid, folder, guarded)
        wait_for(lambda: probe(running) == http.HTTPStatus.OK)
        yield running


def probe(running: Target) -> int:
    with closing(running.client()) as client:
        return scrape(client, running, "/-/ready")


def scrape(client: http.client.HTTPConnection, running: Target, path: str = "/metrics") -> int:
    client.request("GET", path, headers={"Accept-Encoding": "gzip", **running.authorization})
    response = client.getresponse()
    response.read()
    return response.status


class Scraper:
    """One who scrapes as Prometheus does, over a connection that is kept, and over a new one where that is gone."""

    def __init__(self, running: Target, pause_seconds: float = 0.02) -> None:
        self.statuses: list[int] = []  # of every scrape so far; 0 where there was no answer
        self.latencies_ms: list[float] = []  # from before the request until the whole answer, reconnecting included
        self.reconnects = 0  # connections that were found closed
        self.most = running.figures()  # the most that the daemon was seen to take
        self._running = running
        self._pause_seconds = pause_seconds
        self._client = running.client()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scraper")

    @contextmanager
    def scraping(self) -> Iterator[Scraper]:
        """Scrape for the length of a ``with`` block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()
            self._client.close()

    def wait_for(self, scrapes: int) -> None:
        enough = len(self.statuses) + scrapes
        wait_for(lambda: len(self.statuses) >= enough)

    def _run(self) -> None:
        while not self._stop.wait(self._pause_seconds):
            began = time.perf_counter()
            status = self._scrape()
            self.latencies_ms.append((time.perf_counter() - began) * 1000.0)
            self.statuses.append(status)
            self.most = Figures(*map(max, self.most, self._running.figures()))

    def _scrape(self) -> int:
        for _ in range(2):
            try:
                return scrape(self._client, self._running)
            except (OSError, http.client.HTTPException):
                self._client.close()
                self.reconnects += 1
        return 0
