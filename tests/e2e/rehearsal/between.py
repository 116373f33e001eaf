"""The network between a Prometheus and its Alertmanager, which can be cut."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.listening import listening


@dataclass(slots=True)
class Network:
    address: str  # to which Prometheus sends
    alertmanager: str = ""  # URL that it passes alerts on to
    cut: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        self.cut.set()

    def start(self) -> None:
        self.cut.clear()


@contextmanager
def between() -> Iterator[Network]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                if network.cut.is_set():
                    raise ConnectionError
                request = urllib.request.Request(network.alertmanager + self.path, body, dict(self.headers.items()))
                with urllib.request.urlopen(request, timeout=5) as answer:
                    status = answer.status
            except OSError:
                status = 502
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep no log."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A Prometheus that ends drops its connections."""

    server = Server(("127.0.0.1", 0), Handler)
    network = Network(f"127.0.0.1:{server.server_port}")
    with listening(server):
        yield network
