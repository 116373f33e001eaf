"""One client connection, guarded: uvicorn's HTTP/1.1 protocol with bounds on time, bytes and company."""

from __future__ import annotations

import enum
import logging
import socket
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpu_triage.web.strict import StrictConnection

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.config import Config

    from gpu_triage.web.crowd import Crowd
    from gpu_triage.web.tls import PeerCertificate

logger = logging.getLogger(__name__)


class _Awaited(enum.Enum):
    """What the client owes."""

    HEAD = enum.auto()
    BODY = enum.auto()
    NEXT_REQUEST = enum.auto()
    NOTHING = enum.auto()


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol with deadlines for reading and writing, a place in the crowd, and true refusals."""

    conn: StrictConnection

    def __init__(
        self,
        config: Config,
        crowd: Crowd,
        accepted: socket.socket,
        admits: Callable[[PeerCertificate | None], bool],
    ) -> None:
        super().__init__(config, crowd, {})
        self._accepted = accepted
        self._admits = admits
        self.conn = StrictConnection(crowd.limits)
        self._crowd = crowd
        self._limits = crowd.limits
        self._stage: tuple[_Awaited, int] | None = None
        self._read_deadline: asyncio.TimerHandle | None = None
        self._write_deadline: asyncio.TimerHandle | None = None
        self._client_finished = False
        self._was_cut = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start waiting for the first request; over TLS the handshake is done."""
        transport = cast("asyncio.Transport", transport)
        super().connection_made(transport)
        if self._was_cut:
            # It has given up its place, and must not be counted again for the moment that asyncio takes to see it.
            self._crowd.leave(self)
            transport.abort()
            return
        if not self._admits(transport.get_extra_info("peercert")):
            logger.debug("refused %s: its certificate has no allowed name", self.client)
            transport.abort()
            return
        # Pause at the first byte the kernel does not take: then `pause_writing` tells exactly when a client
        # stops reading, and a response is complete only once it is out of this process.
        transport.set_write_buffer_limits(high=1)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and every timer that would keep it in memory."""
        self._set_read_deadline(None)
        self._clear_write_deadline()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self.transport.close()  # or Python 3.10 warns that a TLS connection which the client reset was not
        self._crowd.leave(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client; after a refusal they are dropped."""
        if self.conn.refusal is None and not self.transport.is_closing():
            self._crowd.stamp()
            super().data_received(data)

    def eof_received(self) -> bool | None:  # type: ignore[override]  # asyncio.Protocol's own type, uvicorn narrows it
        """Whether to stay: a client may shut its sending side and still read what it asked for."""
        # TLS has no half-open connections, and asyncio would warn of a true answer.
        self._client_finished = self.scheme == "http" and self.cycle is not None
        return True if self._client_finished and not self.cycle.response_complete else None

    def handle_events(self) -> None:
        """Act on what was received, then see what the client owes next."""
        super().handle_events()
        if self.conn.refusal is not None:
            self._refuse(self.conn.refusal)
        else:
            self._watch()

    def on_response_complete(self) -> None:
        """Go on to the next request, unless the client said there is none."""
        super().on_response_complete()
        if self._client_finished and self.cycle.response_complete:
            self.transport.close()

    def pause_writing(self) -> None:
        """The client does not read: give it a last date."""
        super().pause_writing()
        self._crowd.stall(self)
        if self._write_deadline is None:
            self._write_deadline = self.loop.call_later(self._limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client took everything."""
        self._clear_write_deadline()
        self._crowd.unread.pop(self, None)
        super().resume_writing()

    @property
    def begun(self) -> bool:
        """Whether the connection got as far as HTTP."""
        return self.transport is not None

    def cut(self) -> None:
        """End the connection now, whatever state it is in."""
        self._was_cut = True
        if self.begun:
            self.transport.abort()
        else:
            # In the middle of a handshake: this way asyncio sees it end, as if the client had gone.
            with suppress(OSError):
                self._accepted.shutdown(socket.SHUT_RDWR)

    def shutdown(self) -> None:
        """End the connection once what is being answered is answered."""
        if not self.begun:
            self.cut()
            return
        # uvicorn tells h11 first, which raises after a refusal and would end the server's own shutdown.
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection."""
        self.transport.close()

    def _should_upgrade(self) -> bool:
        return False  # nothing here to upgrade to; uvicorn would log two warnings a request

    def _watch(self) -> None:
        stage = (self._awaited(), self.conn.requests)
        if stage == self._stage:
            return
        self._stage = stage
        awaited, _ = stage
        self._set_read_deadline(self._limits.request_seconds if awaited in (_Awaited.HEAD, _Awaited.BODY) else None)
        if awaited is _Awaited.NOTHING:
            self._crowd.waiting.pop(self, None)
            if self.conn.unread_bytes > self._limits.head_bytes:
                self.transport.abort()  # requests piled up unread are memory, too
        else:
            self._crowd.waiting.setdefault(self)

    def _awaited(self) -> _Awaited:
        if self.conn.their_state is h11.SEND_BODY:
            return _Awaited.BODY
        if self.conn.their_state is not h11.IDLE:
            return _Awaited.NOTHING
        begun = self.conn.requests == 0 or self.conn.unread_bytes > 0
        return _Awaited.HEAD if begun else _Awaited.NEXT_REQUEST

    def _refuse(self, refusal: h11.RemoteProtocolError) -> None:
        status = HTTPStatus(refusal.error_status_hint)
        logger.debug("refused %s: %d, %s", self.client, status, refusal)
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        body = f"{status.phrase.lower()}\n".encode("ascii")
        headers = [
            *self._crowd.default_headers,
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body)).encode("ascii")),
            (b"x-content-type-options", b"nosniff"),
            (b"connection", b"close"),
        ]
        events: list[h11.Event] = [
            h11.Response(status_code=status, headers=headers, reason=status.phrase.encode("ascii")),
            h11.Data(data=b"" if self.conn.method == b"HEAD" else body),
            h11.EndOfMessage(),
        ]
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self._linger()

    def _linger(self) -> None:
        # Closing with bytes unread makes the kernel reset the connection: the client may lose the answer.
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self._set_read_deadline(self._limits.linger_seconds)

    def _set_read_deadline(self, seconds: float | None) -> None:
        if self._read_deadline is not None:
            self._read_deadline.cancel()
        self._read_deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def _clear_write_deadline(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None
