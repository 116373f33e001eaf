"""From a listening socket to guarded connections, each over TLS as the rules are at that moment."""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.sslproto import SSLProtocol
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_triage.web.protocol import GuardedProtocol
from gpu_triage.web.tls import PeerCertificate, admits

if TYPE_CHECKING:
    import socket

    from uvicorn.config import Config

    from gpu_triage.web.crowd import Crowd
    from gpu_triage.web.security import SecuritySource

_TLS_BUFFER_BYTES = 16 * 1024
"""One TLS record, and as much as a request may be. asyncio sets aside 256 KiB for each connection, before its first
byte: hundreds of megabytes for those who only connect."""

_AT_A_TIME = 64
"""Connections accepted in one turn of the loop. Among hundreds of busy clients a turn takes long: with fewer, the
kernel's queue runs over, and newcomers wait for seconds until they try again."""

_AT_A_TIME_WHEN_FULL = 8
"""Then each costs another its place, whose file descriptor is free only in the next turn."""

_PAUSE_SECONDS = 0.1
"""After a connection that could not be accepted for want of file descriptors or memory."""

logger = logging.getLogger(__name__)


class Acceptor:
    """Accepts connections for one crowd.

    asyncio's own server is left out: it keeps one TLS context for its life, and a connection is unknown to it, and to
    any limit, until its handshake is done.
    """

    def __init__(self, config: Config, crowd: Crowd, security: SecuritySource) -> None:
        self._config = config
        self._crowd = crowd
        self._security = security
        self._loop = asyncio.get_running_loop()
        self._arriving: set[asyncio.Task[None]] = set()
        # No argument of asyncio's reaches it.
        SSLProtocol.max_size = _TLS_BUFFER_BYTES

    async def serve(self, listener: socket.socket) -> None:
        """Accept from one socket until cancelled."""
        taken = 0
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(listener)
            except OSError as error:
                logger.debug("cannot accept: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self._take(accepted)
            taken += 1
            if taken >= (_AT_A_TIME_WHEN_FULL if self._crowd.full else _AT_A_TIME):
                # Accepting does not yield while more wait: those already inside must get their turn.
                taken = 0
                await asyncio.sleep(0)

    def _take(self, accepted: socket.socket) -> None:
        security = self._security.current
        allowed = _all if security.config.tls is None else partial(admits, security.config.tls)
        protocol = GuardedProtocol(self._config, self._crowd, accepted, allowed)
        self._crowd.enter(protocol)
        options: dict[str, Any] = {}
        if security.context is not None:
            options = {"ssl": security.context, "ssl_handshake_timeout": self._crowd.limits.request_seconds}
            if sys.version_info >= (3, 11):
                # How long to wait for a client to say goodbye, too.
                options["ssl_shutdown_timeout"] = self._crowd.limits.linger_seconds
        task = self._loop.create_task(self._greet(protocol, accepted, options))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _greet(self, protocol: GuardedProtocol, accepted: socket.socket, options: dict[str, Any]) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted, **options)
        except OSError as error:
            # A failed handshake is the client's affair; it must not fill the log.
            logger.debug("no connection: %s", error)
            # Its frames hold the connection and are held by it: some 70 KiB each until the garbage collector comes by,
            # and connections come in faster than it does.
            error.__traceback__ = None
        finally:
            if not protocol.begun:
                self._crowd.leave(protocol)


def _all(_certificate: PeerCertificate | None) -> bool:
    return True
