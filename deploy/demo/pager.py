"""A pager: receives Alertmanager's notifications over HTTP and passes them on one by one."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_LONGEST_BODY_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of a notification, with templates expanded."""

    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Notification:
    """One Alertmanager notification: the alerts of one group that fire or have just been resolved.

    It is firing while any of them fires. A pager opens one incident for each `group`, and closes it when that is
    resolved.
    """

    receiver: str
    status: str
    group: str
    alerts: tuple[Alert, ...]


@contextmanager
def pager(show: Callable[[Notification], None]) -> Iterator[str]:
    """A pager inside a ``with`` block; yields the URL for the webhook, and shows one notification at a time."""
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
                show(_notification(body))

        def log_message(self, *_: object) -> None: ...

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


def _notification(body: Mapping[str, Any]) -> Notification:
    alerts = tuple(Alert(each["status"], each["labels"], each["annotations"]) for each in body["alerts"])
    return Notification(str(body["receiver"]), str(body["status"]), str(body["groupKey"]), alerts)
