"""HTTP servers that listen for the length of a ``with`` block, and a handler for them."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps no log; `respond` takes every request."""

    def respond(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def answer(self, status: int, body: bytes = b"", content_type: str = "text/plain") -> None:
        """Send a whole response."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> bytes:
        """What the request carries."""
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def log_message(self, *_: object) -> None:
        """Nothing."""


class QuietServer(ThreadingHTTPServer):
    """Takes a crowd of clients, of which some end in the middle."""

    # All targets are scraped at once. Where five connections may wait, as by default, the others try again seconds
    # later, and each scrape that came too late connects anew.
    request_queue_size = 512

    def handle_error(self, *_: object) -> None:
        """A Prometheus that ends drops its connections."""


@contextmanager
def listening(http: ThreadingHTTPServer) -> Iterator[str]:
    """Run an HTTP server in threads; yields ``host:port``."""
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


PAGE_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of a page of metrics, as a Prometheus is told it."""


@contextmanager
def serving(answer: Callable[[str, bytes], tuple[int, bytes, str]]) -> Iterator[str]:
    """Answer each request with the status, body and type for its path and body; yields ``host:port``."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            self.answer(*answer(self.path, self.body()))

    with listening(QuietServer(("127.0.0.1", 0), Handler)) as address:
        yield address


@contextmanager
def answering(reply: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """The URL of a server that gives everybody this reply, and what it was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    with connection.makefile("rb") as request:
                        asked.append(b"".join(iter(request.readline, b"\r\n")))
                    connection.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", asked
        server.shutdown(socket.SHUT_RDWR)
