"""One client connection: HTTP/1.1 over h11, with bounds on time, bytes and company."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import unquote

import h11

from gpu_triage.web.crowd import Crowd, Limits
from gpu_triage.web.messages import Answer, Request, text

logger = logging.getLogger(__name__)

_COPIED_BYTES: Final = 64 * 1024
"""Up to this size, head and body are sent as one: apart, they wake the client twice. A larger page is not copied: all
who do not read it share it."""

Responder = Callable[[Request], Awaitable[Answer]]


class Connection(asyncio.Protocol):
    """One client: its requests are answered one after the other, and it is held to deadlines.

    Args:
        crowd: all connections; this one is entered there before it is used.
        respond: makes the answer to a request.
    """

    def __init__(self, crowd: Crowd, respond: Responder) -> None:
        self._crowd = crowd
        self._limits = crowd.limits
        self._respond = respond
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=crowd.limits.head_bytes)
        self._transport: asyncio.Transport | None = None
        self._address = ""
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
        """Where bytes go; there is none before `connection_made`."""
        assert self._transport is not None  # noqa: S101 - nothing is received or answered before
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start waiting for the first request; over TLS, for the handshake before it."""
        self._transport = cast("asyncio.Transport", transport)
        if self._was_cut:
            self.transport.abort()
            return
        peer = self.transport.get_extra_info("peername")
        self._address = str(peer[0]) if isinstance(peer, tuple) else ""
        # Pause at the first byte that the kernel does not take: then `pause_writing` says exactly when a client
        # stops reading, and an answer is complete only once it has left this process.
        self.transport.set_write_buffer_limits(high=1)
        self._watch()

    def handshake_done(self) -> None:
        """Give the client its full time for the first request, and a place behind those that have not come this far."""
        self._stage = None
        self._crowd.waiting.pop(self, None)
        self._watch()

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection and every timer that would keep it in memory."""
        self._set_deadline("read", None)
        self._set_deadline("write", None)
        self._crowd.leave(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client; after a refusal they are dropped."""
        if self._ignores_input or self.transport.is_closing():
            return
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        """Whether to stay: a client may close its sending side and still read what it asked for."""
        self._client_finished = True
        return self._answering is not None

    def pause_writing(self) -> None:
        """The client does not read: set a deadline."""
        self._stalled = True
        self._crowd.stall(self)
        if "write" not in self._deadlines:
            self._set_deadline("write", self._limits.write_seconds)

    def resume_writing(self) -> None:
        """The client took everything."""
        self._stalled = False
        self._set_deadline("write", None)
        self._crowd.unread.pop(self, None)
        if self._answer_written:
            self._finish_answer()

    def cut(self) -> None:
        """End the connection now, whatever state it is in."""
        self._was_cut = True
        if self._transport is not None:
            self._transport.abort()

    def shutdown(self) -> None:
        """End the connection once what is being answered is answered."""
        if self._transport is None:
            self.cut()
        elif self._answering is None:
            self._transport.close()
        else:
            self._ends_after_answer = True

    def linger(self) -> None:
        """End the connection after what was written, and read on for a moment.

        Closing with bytes unread makes the kernel reset the connection: the client may lose what it was told.
        """
        self._ignores_input = True
        self.transport.write_eof()
        self._set_deadline("read", self._limits.linger_seconds)

    def _advance(self) -> None:
        try:
            # What comes after a request that asked to close is not read: to h11 it would be an error.
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
        request = _read_request(head, self._address, self._limits)
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
        headers = {b"date": self._crowd.date, **answer.all_headers}
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
        # Not writelines: up to Python 3.12.8 it says nothing when the client does not read.
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
        logger.debug("refused %s: %d, %s", self._address, status, refusal)
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        self._ends_after_answer = True
        self._write(text(status, status.phrase.lower()))
        self.linger()

    def _watch(self) -> None:
        """Set the deadline for what the client owes now: a request, its body, or nothing while it is answered."""
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
            self.transport.abort()  # requests that pile up are memory, too
            return
        stage = (self._http.their_state, seconds, self._heads_read)
        if stage == self._stage:
            return  # more bytes of the same request win no time
        self._stage = stage
        self._set_deadline("read", seconds)
        if seconds is None:
            self._crowd.waiting.pop(self, None)
        else:
            self._crowd.waiting.setdefault(self)

    def _set_deadline(self, owed: str, seconds: float | None) -> None:
        if owed in self._deadlines:
            self._deadlines.pop(owed).cancel()
        if seconds is not None:
            self._deadlines[owed] = asyncio.get_running_loop().call_later(seconds, self.transport.abort)


def _read_request(head: h11.Request, address: str, limits: Limits) -> Request:
    """The request in a head that h11 has read; what h11 would take and this server does not, it refuses.

    Raises:
        h11.RemoteProtocolError: its `error_status_hint` is the status to answer.
    """
    # h11 takes any two digits, and would answer HTTP/3 in HTTP/1.1.
    if not head.http_version.startswith(b"1."):
        raise h11.RemoteProtocolError("not HTTP/1", error_status_hint=505)
    # Before anything is decoded: "%2fmetrics" is not a path.
    if not head.target.startswith(b"/"):
        raise h11.RemoteProtocolError("target is not a path", error_status_hint=400)
    headers = tuple(head.headers)
    # h11 bounds a head only while it is incomplete; one that arrives in a single read may be longer.
    if len(head.target) + sum(len(name) + len(value) for name, value in headers) > limits.head_bytes:
        raise h11.RemoteProtocolError("head too long", error_status_hint=431)
    values = dict(headers)
    if b"transfer-encoding" in values:
        raise h11.RemoteProtocolError("body of undeclared length", error_status_hint=411)
    if int(values.get(b"content-length", b"0")) > limits.body_bytes:
        raise h11.RemoteProtocolError("body too long", error_status_hint=413)
    path, _, query = head.target.partition(b"?")
    return Request(head.method.decode("ascii"), unquote(path.decode("ascii")), query, headers, address)
