"""All client connections of a server: their limits, and which one is closed when there are too many."""

from __future__ import annotations

import asyncio
import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def http_date(wall: float) -> bytes:
    """Format a time as an HTTP date (RFC 9110, 5.6.7); Python's own function would import its email package.

    >>> http_date(784111777)
    b'Sun, 06 Nov 1994 08:49:37 GMT'
    """
    at = time.gmtime(wall)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    return f"{day}, {at.tm_mday:02} {month} {at.tm_year} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT".encode()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for one client and for all of them together."""

    # timeout from connecting, or from the first byte of a later request, to the end of its headers, and again to the
    # end of its body. Also the timeout for a TLS handshake.
    request_seconds: float = 10.0
    # timeout between two requests; exceeds a scrape interval of two minutes, so that Prometheus keeps its connection
    idle_seconds: int = 130
    write_seconds: float = 30.0  # timeout for reading a response
    linger_seconds: float = 1.0  # how long a rejected client may keep sending, so that it gets to read the reason
    stop_seconds: float = 0.5  # how long responses in progress may take at shutdown
    connections: int = 512  # most open connections; never more than half the process's file descriptor limit
    tls_connections: int = 128  # the same with TLS, where each takes more memory and time
    unread: int = 40  # most responses that clients aren't reading; limits the memory they hold
    head_bytes: int = 16 * 1024  # size of request line and headers
    body_bytes: int = 1024  # size of a request body; no page here needs one


class Closable(Protocol):
    def cut(self) -> None: ...

    def shutdown(self) -> None: ...


class Clients:
    """All connections of one server.

    Attributes:
        connections: all of them, including those in a TLS handshake.
        waiting: those waiting for their client to send something, longest first (an ordered set).
        unread: those with a client that isn't reading its response, longest first.
    """

    def __init__(self, limits: Limits, wall: Callable[[], float], *, tls: bool = False) -> None:
        self.limits = limits
        self.connections: set[Closable] = set()
        self.waiting: dict[Closable, None] = {}
        self.unread: dict[Closable, None] = {}
        self._tls = tls
        self._most = limits.tls_connections if tls else limits.connections
        # The sampler opens files, too, and must not run out of file descriptors.
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors != resource.RLIM_INFINITY:
            self._most = min(self._most, max(1, descriptors // 2))
        self._wall = wall
        self._emptied = asyncio.Event()

    @property
    def full(self) -> bool:
        return len(self.connections) >= self._most

    @property
    def date(self) -> bytes:
        return http_date(self._wall())

    def enter(self, connection: Closable) -> None:
        """Add a connection as soon as it is accepted, before any TLS handshake, and enforce the limit.

        Above the limit, the connection that has kept the server waiting longest is cut: idle and slow clients are
        evicted before prompt ones, so a scraper gets through even if silent connections fill the server. If all others
        are being answered, the new connection is the only one waiting, and is cut itself.
        """
        self.connections.add(connection)
        self.waiting[connection] = None
        if len(self.connections) > self._most:
            victim = next(iter(self.waiting))
            del self.waiting[victim]
            # Remove it here rather than in connection_lost: the next connection must not evict another one for it.
            self.connections.discard(victim)
            victim.cut()

    def stall(self, connection: Closable) -> None:
        """Record that a client isn't reading its response; above the limit, the one stalled longest is cut."""
        self.unread.setdefault(connection)
        if len(self.unread) > self.limits.unread:
            victim = next(iter(self.unread))
            del self.unread[victim]
            victim.cut()

    def leave(self, connection: Closable) -> None:
        self.waiting.pop(connection, None)
        self.unread.pop(connection, None)
        self.connections.discard(connection)
        if not self.connections:
            self._emptied.set()

    def recycle(self) -> None:
        """Close every TLS connection after its current response, so that clients reconnect with the new TLS settings.

        Plain HTTP needs no reconnect: `AccessCheck` checks every request with the current settings, and closing a
        connection could race with an incoming request.
        """
        if self._tls:
            self._shut_down()

    async def disperse(self) -> None:
        """Close every connection: wait `stop_seconds` for responses in progress, then abort."""
        self._shut_down()
        await self._empty(self.limits.stop_seconds)
        for connection in list(self.connections):
            connection.cut()
        # Transports notify their protocols in the next loop iteration; wait for that, so that no response is still
        # being written when the loop closes.
        await self._empty(self.limits.stop_seconds)

    def _shut_down(self) -> None:
        for connection in list(self.connections):
            connection.shutdown()

    async def _empty(self, seconds: float) -> None:
        if self.connections:
            self._emptied.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), seconds)
