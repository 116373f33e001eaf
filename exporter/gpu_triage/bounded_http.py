"""HTTP of clients within bounds: an end in time whatever the server does, and answers of a bounded size."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_AT_ONCE_BYTES: Final = 64 * 1024


@contextmanager
def ended_after(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """Ends a connection on time, also while its server sends a byte now and then; TimeoutError: it did."""
    ends_at = time.monotonic() + seconds

    def end() -> None:
        sock = connection.sock
        if sock is not None:  # connected: until then its own timeout ends it
            with suppress(OSError):
                # The plain socket's: OpenSSL must not be used from two threads.
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
    """The body; OSError with the message `too_long`: it is longer than so many bytes."""
    parts, size = [], 0
    while part := answer.read1(_AT_ONCE_BYTES):
        parts.append(part)
        size += len(part)
        if size > most_bytes:
            raise OSError(too_long)
    return b"".join(parts)
