"""The server: listening sockets, an event loop, and an end that comes when it is asked for."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gpu_triage.web.connection import Connection, Responder
from gpu_triage.web.crowd import Crowd, Limits
from gpu_triage.web.hosts import AllowedHosts
from gpu_triage.web.listen import close_listener, inherited_listeners, listener_url, open_listeners
from gpu_triage.web.refusals import RefusalLog
from gpu_triage.web.security import RELOAD_SECONDS, Gate, SecuritySource

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from gpu_triage.web.app import WebApp

_AT_A_TIME = 64
"""Connections accepted in one turn of the loop. Among hundreds of busy clients a turn takes long: with fewer, the
kernel's queue overflows, and newcomers wait for seconds until they try again."""

_AT_A_TIME_WHEN_FULL = 8
"""Then each costs another its place, whose file descriptor is free only in the next turn."""

_PAUSE_SECONDS = 0.1
"""After a connection that could not be accepted for want of file descriptors or memory."""

logger = logging.getLogger(__name__)


class WebServer:
    """Serves one application on one or more addresses.

    asyncio's own server does not fit: it takes newcomers by the backlog, however few file descriptors are left, and
    logs an error when they run out.

    Args:
        app: what answers; closed when the server ends.
        listen_addresses: ``:port``, ``host:port``, ``[v6]:port`` or ``unix:/path``; see `open_listeners`. None takes
            the sockets that systemd opened.
        security: TLS, passwords and headers; None for plain HTTP to everyone.
        hosts: the names by which clients may call it; None for any.
        limits: what clients may take.
        wall: seconds since the Unix epoch, for the Date header.
        reload_seconds: how often the files behind `security` are looked at.
    """

    def __init__(
        self,
        app: WebApp,
        listen_addresses: Sequence[str] | None,
        *,
        security: SecuritySource | None = None,
        hosts: AllowedHosts | None = None,
        limits: Limits | None = None,
        wall: Callable[[], float] = time.time,
        reload_seconds: float = RELOAD_SECONDS,
    ) -> None:
        self._app = app
        self._addresses = None if listen_addresses is None else tuple(listen_addresses)
        self._security = security or SecuritySource()
        self._hosts = hosts or AllowedHosts()
        self._reload_seconds = reload_seconds
        self._limits = limits or Limits()
        self._wall = wall
        self._refusals = RefusalLog("TLS connection refused")
        self._listeners: list[socket.socket] = []
        self._arriving: set[asyncio.Task[object]] = set()
        self._stopping = False
        self._wake: Callable[[], object] | None = None
        self._look_now: Callable[[], object] = lambda: None

    def bind(self) -> list[str]:
        """URLs of the listening sockets, opened here; clients may connect from now on and wait for `run`.

        Raises:
            ConfigError: an address cannot be bound; the message names it and why. None is left open.
        """
        if self._addresses is None:
            self._listeners = inherited_listeners(os.environ)
        else:
            self._listeners = open_listeners(self._addresses)
        scheme = "http" if self._security.current.context is None else "https"
        return [listener_url(listener, scheme) for listener in self._listeners]

    def run(self) -> None:
        """Serve what `bind` opened on the calling thread until `stop`; installs no signal handlers of its own.

        In the main thread set a handler for SIGINT first, or asyncio turns it into KeyboardInterrupt.
        """
        asyncio.run(self._serve())

    def stop(self) -> None:
        """Make `run` return within a second, whatever clients do; from any thread or signal handler."""
        self._stopping = True
        if self._wake is not None:
            with suppress(RuntimeError):  # the loop is closed: it has already ended
                self._wake()

    def reload(self) -> None:
        """Look at once at the files behind `security`; from any thread or signal handler."""
        with suppress(RuntimeError):  # as in `stop`
            self._look_now()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        # First the way to wake this loop, then the look at the flag: a stop() in between is not missed.
        self._wake = lambda: loop.call_soon_threadsafe(stop.set)
        if self._stopping:
            stop.set()
        crowd = Crowd(self._limits, self._wall, tls=self._security.current.context is not None)
        respond = Gate(self._app, self._security, self._hosts).respond
        accepting = [loop.create_task(self._accept(listener, crowd, respond)) for listener in self._listeners]
        self._security.watch(lambda: loop.call_soon_threadsafe(crowd.recycle), self._reload_seconds)
        # On the loop: a signal handler must not touch locks that this thread may hold.
        self._look_now = lambda: loop.call_soon_threadsafe(self._security.look_now)
        try:
            await stop.wait()
        finally:
            self._security.stop()
            for task in accepting:
                task.cancel()
            await asyncio.gather(*accepting, return_exceptions=True)
            for listener in self._listeners:
                close_listener(listener, inherited=self._addresses is None)
            await crowd.disperse()
            self._app.close()

    async def _accept(self, listener: socket.socket, crowd: Crowd, respond: Responder) -> None:
        """Accept from one socket until cancelled."""
        loop = asyncio.get_running_loop()
        taken = 0
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:
                logger.debug("cannot accept: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            connection = Connection(crowd, respond)
            crowd.enter(connection)
            task = loop.create_task(loop.connect_accepted_socket(partial(self._secured, connection), accepted))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)
            taken += 1
            if taken >= (_AT_A_TIME_WHEN_FULL if crowd.full else _AT_A_TIME):
                # Accepting does not yield while more wait: clients already connected must get their turn.
                taken = 0
                await asyncio.sleep(0)

    def _secured(self, connection: Connection) -> asyncio.Protocol:
        """What speaks to the client: the connection itself, or TLS as the configuration is at this moment."""
        security = self._security.current
        if security.context is None or security.config.tls is None:
            return connection
        # Only for those who serve HTTPS: OpenSSL takes 4 MiB.
        from gpu_triage.web.tls_transport import TlsTransport  # noqa: PLC0415

        return TlsTransport(connection, security.context, security.config.tls, self._refusals)
