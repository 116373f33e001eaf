"""Where a Prometheus sends its remote write: counts what arrives and keeps nothing."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.listening import listening


@dataclass
class Sink:
    """What arrived, by path."""

    address: str = ""  # ``host:port`` it listens on
    body_bytes: Counter[str] = field(default_factory=Counter)  # of the requests as sent, which is after compression


@contextmanager
def sink() -> Iterator[Sink]:
    """Accepts every POST for the length of a ``with`` block."""
    found = Sink()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                found.body_bytes[self.path] += len(body)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing: thousands of requests arrive per minute."""

    with listening(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as found.address:
        yield found
