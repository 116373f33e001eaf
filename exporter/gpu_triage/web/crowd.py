"""All clients of one server together: what each may take, and who gives way when there are too many."""

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
    """A time of day as HTTP writes it (RFC 9110, 5.6.7); Python's own function is part of its email package.

    >>> http_date(784111777)
    b'Sun, 06 Nov 1994 08:49:37 GMT'
    """
    at = time.gmtime(wall)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    return f"{day}, {at.tm_mday:02} {month} {at.tm_year} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT".encode()


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client, and all of them together, may take.

    Attributes:
        request_seconds: from connecting, or from the first byte of a later request, to the end of its head;
            then again to the end of its body. Also the bound of a TLS handshake.
        idle_seconds: a connection between two requests; outlasts a scrape interval of two minutes, so that
            Prometheus keeps its connection.
        write_seconds: for taking an answer.
        linger_seconds: how long a refused client may go on sending, so that it gets to read why.
        stop_seconds: how long answers in progress may take when the server is told to stop.
        connections: open at one time; never more than half the file descriptors that the process may have.
        tls_connections: the same over TLS, which takes more memory and time for each.
        unread: answers at one time that their clients do not take; it bounds the memory they hold.
        head_bytes: request line and headers.
        body_bytes: request body; no page here takes one.
    """

    request_seconds: float = 10.0
    idle_seconds: int = 130
    write_seconds: float = 30.0
    linger_seconds: float = 1.0
    stop_seconds: float = 0.5
    connections: int = 512
    tls_connections: int = 128
    unread: int = 40
    head_bytes: int = 16 * 1024
    body_bytes: int = 1024


class Closable(Protocol):
    """A connection, as far as it matters here: one that can be ended."""

    def cut(self) -> None:
        """End it now."""

    def shutdown(self) -> None:
        """End it once what is being answered is answered."""


class Crowd:
    """All connections of one server.

    Attributes:
        connections: all of them, those in the middle of a TLS handshake included.
        waiting: those on whose client it is to send something, the longest-waiting first (an ordered set).
        unread: those whose client does not take its answer, in the same order.
    """

    def __init__(self, limits: Limits, wall: Callable[[], float], *, tls: bool = False) -> None:
        self.limits = limits
        self.connections: set[Closable] = set()
        self.waiting: dict[Closable, None] = {}
        self.unread: dict[Closable, None] = {}
        self._tls = tls
        self._most = limits.tls_connections if tls else limits.connections
        # The sampler opens files, too: a crowd must not leave it without.
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors != resource.RLIM_INFINITY:
            self._most = min(self._most, max(1, descriptors // 2))
        self._wall = wall
        self._emptied = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether a newcomer costs another its place."""
        return len(self.connections) >= self._most

    @property
    def date(self) -> bytes:
        """The Date header."""
        return http_date(self._wall())

    def enter(self, connection: Closable) -> None:
        """Count a connection from the moment it is accepted, before any TLS handshake, and keep within the limit.

        Where there are too many, the one is cut that has kept the server waiting longest: an idle one or one that
        dawdles over its request gives way before one that asks at once, so a scraper gets in through a crowd of silent
        connections. Where all others are being answered, the newcomer is the only one waiting and is cut itself.
        """
        self.connections.add(connection)
        self.waiting[connection] = None
        if len(self.connections) > self._most:
            victim = next(iter(self.waiting))
            del self.waiting[victim]
            # Now, not when the transport gets to it: the next newcomer must not pay for this one again.
            self.connections.discard(victim)
            victim.cut()

    def stall(self, connection: Closable) -> None:
        """Note that a client does not take its answer; of too many, the one that has held out longest is cut."""
        self.unread.setdefault(connection)
        if len(self.unread) > self.limits.unread:
            victim = next(iter(self.unread))
            del self.unread[victim]
            victim.cut()

    def leave(self, connection: Closable) -> None:
        """Forget a connection that has ended."""
        self.waiting.pop(connection, None)
        self.unread.pop(connection, None)
        self.connections.discard(connection)
        if not self.connections:
            self._emptied.set()

    def recycle(self) -> None:
        """End every TLS connection once it is not being answered: clients shake hands under the rules of now.

        Over plain HTTP the `Gate` checks every request by the rules of now, and an end could meet a request on its way.
        """
        if self._tls:
            self._shut_down()

    async def disperse(self) -> None:
        """End every connection: those in the middle of an answer within `stop_seconds`, then by force."""
        self._shut_down()
        await self._empty(self.limits.stop_seconds)
        for connection in list(self.connections):
            connection.cut()
        # The transports tell their protocols in the loop's next round; wait for that, so that no answer is
        # still being written when the loop closes.
        await self._empty(self.limits.stop_seconds)

    def _shut_down(self) -> None:
        for connection in list(self.connections):
            connection.shutdown()

    async def _empty(self, seconds: float) -> None:
        if self.connections:
            self._emptied.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), seconds)
