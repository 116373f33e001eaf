"""A pager: takes Alertmanager's notifications over HTTP and hands them on one by one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_LONGEST_BODY_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Notification:
    """One alert of one notification.

    Attributes:
        receiver: the receiver of the route that it took.
        status: firing or resolved.
        labels: of the alert.
        annotations: of the alert, filled in.
    """

    receiver: str
    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@contextmanager
def pager(show: Callable[[Notification], None]) -> Iterator[str]:
    """A pager for the length of a ``with`` block; yields the URL that Alertmanager's webhook shall call.

    Args:
        show: called with each alert, one at a time.
    """
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 < length <= _LONGEST_BODY_BYTES:
                self.send_error(413)
                return
            body = json.loads(self.rfile.read(length))
            self.send_response(200)
            self.end_headers()
            with lock:
                for notification in _notifications(body):
                    show(notification)

        def log_message(self, *_: object) -> None:
            """Say nothing: the terminal is for pages."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="pager", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _notifications(body: Mapping[str, Any]) -> Iterator[Notification]:
    for alert in body["alerts"]:
        yield Notification(str(body["receiver"]), alert["status"], alert["labels"], alert["annotations"])
