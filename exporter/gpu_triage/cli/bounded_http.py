"""Bounded HTTP client operations: a hard deadline whatever the server does, and a limit on the response size."""

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def ended_after(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """Shut down a connection at the deadline, even if its server keeps sending single bytes; raises TimeoutError."""
    ends_at = time.monotonic() + seconds

    def end() -> None:
        sock = connection.sock
        if sock is not None:  # connected; before that, the socket's own timeout applies
            with suppress(OSError):
                # Shut down the plain socket, because OpenSSL must not be used from two threads.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() >= ends_at:
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
    if time.monotonic() >= ends_at:
        raise TimeoutError


def read_body(answer: http.client.HTTPResponse, most_bytes: int, too_long: str) -> bytes:
    """The body; raises OSError with the message `too_long` if it exceeds `most_bytes`."""
    body = answer.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise OSError(too_long)
    return body
