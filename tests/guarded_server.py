"""A server on this machine behind a web configuration file, for tests of what guards it."""

import base64
import dataclasses
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple, cast

from tests.web_sources import Host

from gpu_triage.options.config import Config
from gpu_triage.read.exporter.exporter_health import WebConfigHealth
from gpu_triage.serve.app import ExporterBackend
from gpu_triage.serve.connection import Limits
from gpu_triage.serve.passwords import hashed
from gpu_triage.serve.security import SecuritySource
from gpu_triage.serve.server import WebServer

DEFAULTS = Config()
REQUEST = b"GET /-/healthy HTTP/1.1\r\nHost: h\r\n\r\n"
MTLS = ("client_auth_type: RequireAndVerifyClientCert", "client_ca_file: ca.pem")
PASSWORDS = f"basic_auth_users:\n  prometheus: {hashed(b'scrape', 4)}\n"


class Running(NamedTuple):
    port: int
    source: SecuritySource
    health: list[WebConfigHealth]
    file: Path

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def shake(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        return context.wrap_socket(self.connect(), server_hostname="127.0.0.1")

    def get(self, path: str = "/metrics", context: ssl.SSLContext | None = None, **headers: str) -> HTTPResponse:
        client = (
            HTTPConnection("127.0.0.1", self.port, timeout=5)
            if context is None
            else HTTPSConnection("127.0.0.1", self.port, timeout=5, context=context)
        )
        with closing(client):
            client.request("GET", path, headers=headers)
            answer = client.getresponse()
            answer.read()
            return answer


def served(host: Host | None = None) -> ExporterBackend:
    return cast("ExporterBackend", host or Host())


def bound(
    host: Host | None = None, *, count: int = 1, config: Config = DEFAULTS, **options: Any
) -> tuple[WebServer, list[int]]:
    """A server with options of `WebServer` that has its sockets, and their ports."""
    config = dataclasses.replace(config, web_listen_addresses=("127.0.0.1:0",) * count)
    server = WebServer(served(host), config, **options)
    return server, [int(url.rpartition(":")[2]) for url in server.bind()]


@contextmanager
def run(server: WebServer) -> Iterator[None]:
    """Run a server in a thread for the length of a ``with`` block."""
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()


@contextmanager
def port_of(host: Host | None = None, **options: Any) -> Iterator[int]:
    """The port of a server with these options of `bound`, which runs for the length of a ``with`` block."""
    server, (port,) = bound(host, **options)
    with run(server):
        yield port


@contextmanager
def serving(
    folder: Path, content: str, limits: Limits | None = None, reload_seconds: float = 600.0, host: Host | None = None
) -> Iterator[Running]:
    file = folder / "web.yml"
    file.write_text(content)
    health: list[WebConfigHealth] = []
    source = SecuritySource(str(file), health.append, wall=lambda: 1000.0 + len(health), reload_seconds=reload_seconds)
    server, (port,) = bound(host, security=source, limits=limits)
    with run(server):
        yield Running(port, source, health, file)


def read_all(client: socket.socket) -> bytes:
    """What the server sends until it closes."""
    received = bytearray()
    with suppress(ConnectionError):
        while chunk := client.recv(1 << 20):
            received += chunk
    return bytes(received)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def send_on(client: socket.socket) -> None:
    """Drip bytes until the server has cut the connection."""
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        client.sendall(b"x")
        time.sleep(0.005)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def replace(path: Path, content: bytes) -> None:
    """Put a file in another's place, as Kubernetes and certificate tools do."""
    fresh = path.with_name("fresh")
    fresh.write_bytes(content)
    fresh.rename(path)
