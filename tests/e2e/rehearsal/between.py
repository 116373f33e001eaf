"""The network between a Prometheus and its Alertmanager, which can be cut."""

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.listening import QuietHandler, QuietServer, listening


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
    class Handler(QuietHandler):
        def respond(self) -> None:
            body = self.body()
            try:
                if network.cut.is_set():
                    raise ConnectionError
                request = urllib.request.Request(network.alertmanager + self.path, body, dict(self.headers.items()))
                with urllib.request.urlopen(request, timeout=5) as answer:
                    self.answer(answer.status)
            except OSError:
                self.answer(502)

    server = QuietServer(("127.0.0.1", 0), Handler)
    network = Network(f"127.0.0.1:{server.server_port}")
    with listening(server):
        yield network
