"""The client connections of a server: HTTP/1.1 over h11, with limits on time, bytes and the number of connections."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import unquote

import h11

from gpu_triage.serve.messages import Answer, Request, text

logger = logging.getLogger(__name__)

_COPIED_BYTES: Final = 64 * 1024
"""Up to this size, headers and body are sent in one write: two would wake the client twice. A larger page isn't copied:
clients that are slow to read share one copy."""


def http_date(wall: float) -> bytes:
    """Format a time as an HTTP date (RFC 9110, 5.6.7); the function of the email package would import all of that.

    >>> http_date(784111777)
    b'Sun, 06 Nov 1994 08:49:37 GMT'
    """
    # In English, because this program sets no locale.
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(wall)).encode("ascii")


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


class Clients:
    """All connections of one server."""

    def __init__(self, limits: Limits, wall: Callable[[], float], *, tls: bool = False) -> None:
        self.limits = limits
        self.connections: set[Connection] = set()  # all of them, including those in a TLS handshake
        # Those waiting for their client to send something, longest first (an ordered set).
        self.waiting: dict[Connection, None] = {}
        self.unread: dict[Connection, None] = {}  # those with a client that isn't reading its response, longest first
        self._tls = tls
        self._most = limits.tls_connections if tls else limits.connections
        # The sampler opens files, too, and must not run out of file descriptors.
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors != resource.RLIM_INFINITY:
            self._most = min(self._most, max(1, descriptors // 2))
        self.wall = wall  # Unix seconds
        self._emptied = asyncio.Event()

    @property
    def full(self) -> bool:
        return len(self.connections) >= self._most

    def enter(self, connection: Connection) -> None:
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

    def stall(self, connection: Connection) -> None:
        """Record that a client isn't reading its response; above the limit, the one stalled longest is cut."""
        self.unread.setdefault(connection)
        if len(self.unread) > self.limits.unread:
            victim = next(iter(self.unread))
            del self.unread[victim]
            victim.cut()

    def leave(self, connection: Connection) -> None:
        self.waiting.pop(connection, None)
        self.unread.pop(connection, None)
        self.connections.discard(connection)
        if not self.connections:
            self._emptied.set()

    def recycle(self) -> None:
        """Close every TLS connection after its current response, so that clients reconnect with the new TLS settings.

        Plain HTTP needs no reconnect: every request is checked with the current settings, and closing a connection
        could race with an incoming request.
        """
        if self._tls:
            self._shut_down()

    async def close_all(self) -> None:
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


class Connection(asyncio.Protocol):
    """One client and its requests, one at a time, with timeouts. Before use, add it to `clients`, the set of all."""

    def __init__(self, clients: Clients, respond: Callable[[Request], Awaitable[Answer]]) -> None:
        self._clients = clients
        self._limits = clients.limits
        self._respond = respond
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=clients.limits.head_bytes)
        self._transport: asyncio.Transport | None = None
        self.address = ""  # of the client; "" over a Unix socket
        self._heads_read = 0
        self._method = b""
        self._answering: asyncio.Task[None] | None = None
        self._answer_written = False
        self._stalled = False
        self._client_finished = False
        self._ends_after_answer = False
        self._ignores_input = False
        self._was_cut = False
        self._stage: tuple[object, ...] | None = None
        self._deadlines: dict[str, asyncio.TimerHandle] = {}

    @property
    def transport(self) -> asyncio.Transport:
        """The transport; not available before `connection_made`."""
        assert self._transport is not None  # noqa: S101 - set before any data is received or sent
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start waiting for the first request, or with TLS for the handshake before it."""
        self._transport = cast("asyncio.Transport", transport)
        if self._was_cut:
            self.transport.abort()
            return
        peer = self.transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        # Pause as soon as the kernel's send buffer is full: then `pause_writing` marks exactly when a client stops
        # reading, and a response counts as complete only once it has left this process.
        self.transport.set_write_buffer_limits(high=1)
        self._watch()

    def handshake_done(self) -> None:
        """Restart the timeout for the first request, and queue behind connections still in their handshake."""
        self._stage = None
        self._clients.waiting.pop(self, None)
        self._watch()

    def connection_lost(self, _error: Exception | None) -> None:
        """Remove the connection, and cancel the timers that would keep it in memory."""
        self._set_deadline("read", None)
        self._set_deadline("write", None)
        self._clients.leave(self)

    def data_received(self, data: bytes) -> None:
        if self._ignores_input or self.transport.is_closing():
            return
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        """Whether to keep the connection: a client may half-close it and still read its response."""
        self._client_finished = True
        return self._answering is not None

    def pause_writing(self) -> None:
        """Set a write timeout, since the client isn't reading."""
        self._stalled = True
        self._clients.stall(self)
        if "write" not in self._deadlines:
            self._set_deadline("write", self._limits.write_seconds)

    def resume_writing(self) -> None:
        """Cancel the write timeout once the client has read everything."""
        self._stalled = False
        self._set_deadline("write", None)
        self._clients.unread.pop(self, None)
        if self._answer_written:
            self._finish_answer()

    def cut(self) -> None:
        self._was_cut = True
        if self._transport is not None:
            self._transport.abort()

    def shutdown(self) -> None:
        if self._transport is None:
            self.cut()
        elif self._answering is None:
            self._transport.close()
        else:
            self._ends_after_answer = True

    def linger(self) -> None:
        """Close after what was written, but read on: with unread bytes, a reset may cost the client the response."""
        self._ignores_input = True
        self.transport.write_eof()
        self._set_deadline("read", self._limits.linger_seconds)

    def _advance(self) -> None:
        try:
            # Data after a request with "Connection: close" is ignored; h11 would treat it as an error.
            while self._http.their_state is not h11.MUST_CLOSE:
                if self._answering is None and self._http.our_state is self._http.their_state is h11.DONE:
                    self._http.start_next_cycle()
                    self._method = b""
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    self._begin_answer(event)
                elif event is h11.NEED_DATA or event is h11.PAUSED:
                    break
        except h11.RemoteProtocolError as refusal:
            self._refuse(refusal)
        else:
            self._watch()

    def _begin_answer(self, head: h11.Request) -> None:
        self._heads_read += 1
        self._method = head.method
        request = _read_request(head, self.address, self._limits)
        self._answering = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        try:
            answer = await self._respond(request)
            if self.transport.is_closing():
                return
            self._write(answer)
        except Exception:
            logger.exception("cannot answer a request")
            self.transport.abort()
            return
        self._answer_written = True
        if not self._stalled:
            self._finish_answer()

    def _write(self, answer: Answer) -> None:
        headers = {
            b"date": http_date(self._clients.wall()),
            b"content-type": answer.content_type.encode("latin-1"),
            b"content-length": str(len(answer.body)).encode("ascii"),
            b"x-content-type-options": b"nosniff",
            b"cache-control": b"no-store",
            **dict(answer.headers),
        }
        if self._ends_after_answer:
            headers[b"connection"] = b"close"
        reason = HTTPStatus(answer.status).phrase.encode("ascii")
        body = b"" if self._method == b"HEAD" else answer.body
        events = (
            h11.Response(status_code=answer.status, headers=list(headers.items()), reason=reason),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        parts = [part for event in events if (part := self._http.send(event))]
        if len(body) <= _COPIED_BYTES:
            parts = [b"".join(parts)]
        # Not writelines: up to Python 3.12.8 it doesn't call pause_writing.
        for part in parts:
            self.transport.write(part)

    def _finish_answer(self) -> None:
        self._answering, self._answer_written = None, False
        if self.transport.is_closing():
            return
        if self._http.our_state is h11.DONE and not self._ends_after_answer:
            self._advance()
            if self._answering is not None or not self._client_finished:
                return
        self.transport.close()

    def _refuse(self, refusal: h11.RemoteProtocolError) -> None:
        status = HTTPStatus(refusal.error_status_hint)
        logger.debug("refused %s: %d, %s", self.address, status, refusal)
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        self._ends_after_answer = True
        self._write(text(status, status.phrase.lower()))
        self.linger()

    def _watch(self) -> None:
        """Set the timeout for what is expected from the client: a request, its body, or nothing during a response."""
        if self.transport.is_closing() or self._ignores_input:
            return
        unread = len(self._http.trailing_data[0])
        if self._http.their_state is h11.SEND_BODY:
            seconds: float | None = self._limits.request_seconds
        elif self._http.their_state is not h11.IDLE:
            seconds = None
        elif self._heads_read == 0 or unread:
            seconds = self._limits.request_seconds
        else:
            seconds = self._limits.idle_seconds
        if seconds is None and unread > self._limits.head_bytes:
            self.transport.abort()  # pipelined requests would pile up in memory
            return
        stage = (self._http.their_state, seconds, self._heads_read)
        if stage == self._stage:
            return  # more bytes of the same request don't extend its deadline
        self._stage = stage
        self._set_deadline("read", seconds)
        if seconds is None:
            self._clients.waiting.pop(self, None)
        else:
            self._clients.waiting.setdefault(self)

    def _set_deadline(self, owed: str, seconds: float | None) -> None:
        if owed in self._deadlines:
            self._deadlines.pop(owed).cancel()
        if seconds is not None:
            self._deadlines[owed] = asyncio.get_running_loop().call_later(seconds, self.transport.abort)


def _read_request(head: h11.Request, address: str, limits: Limits) -> Request:
    """Convert a head from h11, unless refused. Raises RemoteProtocolError with the status in `error_status_hint`."""
    # h11 accepts any two digits, and would answer HTTP/3 with HTTP/1.1.
    if not head.http_version.startswith(b"1."):
        raise h11.RemoteProtocolError("not HTTP/1", error_status_hint=505)
    # Checked before decoding: "%2fmetrics" is not a path.
    if not head.target.startswith(b"/"):
        raise h11.RemoteProtocolError("target is not a path", error_status_hint=400)
    headers = tuple(head.headers)
    # h11 limits only incomplete heads; one that arrives in a single read may be longer.
    if len(head.target) + sum(len(name) + len(value) for name, value in headers) > limits.head_bytes:
        raise h11.RemoteProtocolError("head too long", error_status_hint=431)
    values = dict(headers)
    if b"transfer-encoding" in values:
        raise h11.RemoteProtocolError("body of undeclared length", error_status_hint=411)
    if int(values.get(b"content-length", b"0")) > limits.body_bytes:
        raise h11.RemoteProtocolError("body too long", error_status_hint=413)
    path, _, query = head.target.partition(b"?")
    return Request(head.method.decode("ascii"), unquote(path.decode("ascii")), query, headers, address)
