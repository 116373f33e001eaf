"""The web server: listening sockets, event loop, and prompt shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from gpu_triage.options.config import Config
from gpu_triage.serve.app import ExporterBackend, WebApp
from gpu_triage.serve.connection import Clients, Connection, Limits
from gpu_triage.serve.listen import close_listener, inherited_listeners, listener_url, open_listeners
from gpu_triage.serve.messages import Answer, Request
from gpu_triage.serve.security import SecuritySource, host_refusal

_AT_A_TIME = 64
"""Connections accepted per loop iteration. With hundreds of busy clients an iteration takes long: with a lower limit,
the kernel's backlog overflows, and new clients wait for seconds until they retry."""

_AT_A_TIME_WHEN_FULL = 8
"""Each then evicts another connection; its file descriptor is closed only in the next iteration."""

_PAUSE_SECONDS = 0.1
"""Delay after accept() failed for lack of file descriptors or memory."""

logger = logging.getLogger(__name__)


class WebServer:
    """Serves `source`. Raises ConfigError for a telemetry path that is taken.

    asyncio's own server is unsuitable: it accepts connections up to the backlog even when file descriptors run short,
    and logs an error when they run out. Without `security`, it is plain HTTP without passwords. `wall` returns Unix
    seconds.
    """

    def __init__(
        self,
        source: ExporterBackend,
        config: Config,
        *,
        security: SecuritySource | None = None,
        limits: Limits | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._app = WebApp(source, config)
        self._config = config
        self._security = security or SecuritySource()
        limits = limits or Limits(unread=config.web_max_requests)
        self._clients = Clients(limits, wall, tls=self._security.current.context is not None)
        self._listeners: list[socket.socket] = []
        self._arriving: set[asyncio.Task[object]] = set()
        self._stopping = False
        self._wake: Callable[[], object] | None = None

    def bind(self) -> list[str]:
        """Open the sockets, on which clients wait for `run`; return their URLs. Raises ConfigError, with none open."""
        if self._config.web_systemd_socket:
            self._listeners = inherited_listeners(os.environ)
        else:
            self._listeners = open_listeners(self._config.web_listen_addresses)
        scheme = "http" if self._security.current.context is None else "https"
        return [listener_url(listener, scheme) for listener in self._listeners]

    def run(self) -> None:
        """Serve until `stop`. Handle SIGINT in the main thread first, or asyncio makes it a KeyboardInterrupt."""
        asyncio.run(self._serve())

    def stop(self) -> None:
        """Make `run` return within a second, whatever clients do; safe in any thread or signal handler."""
        self._stopping = True
        if self._wake is not None:
            with suppress(RuntimeError):  # the loop is closed already
                self._wake()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        # Set the wake function before checking the flag, so that a stop() in between isn't missed.
        self._wake = lambda: loop.call_soon_threadsafe(stop.set)
        if self._stopping:
            stop.set()
        accepting = [loop.create_task(self._accept(listener)) for listener in self._listeners]
        self._security.watch(lambda: loop.call_soon_threadsafe(self._clients.recycle))
        try:
            await stop.wait()
        finally:
            self._security.stop()
            for task in accepting:
                task.cancel()
            await asyncio.gather(*accepting, return_exceptions=True)
            for listener in self._listeners:
                close_listener(listener, inherited=self._config.web_systemd_socket)
            await self._clients.close_all()
            self._app.close()

    async def _respond(self, request: Request) -> Answer:
        """Check Host and password on every path, and add the configured headers."""
        security = self._security.current
        refusal = host_refusal(request, self._config.web_allowed_hosts)
        if refusal is None and security.passwords is not None:
            refusal = await security.passwords.refusal(request)
        answer, headers = refusal or await self._app.respond(request), security.config.headers
        return replace(answer, headers=answer.headers + headers) if headers else answer

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        taken = 0
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:
                logger.debug("cannot accept: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            connection = Connection(self._clients, self._respond)
            self._clients.enter(connection)
            task = loop.create_task(loop.connect_accepted_socket(partial(self._secured, connection), accepted))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)
            taken += 1
            if taken >= (_AT_A_TIME_WHEN_FULL if self._clients.full else _AT_A_TIME):
                # accept() doesn't yield while more clients are pending: let connected clients have their turn.
                taken = 0
                await asyncio.sleep(0)

    def _secured(self, connection: Connection) -> asyncio.Protocol:
        """The protocol for a new client: the connection itself, or TLS with the current settings."""
        security = self._security.current
        if security.context is None or security.config.tls is None:
            return connection
        # Imported only when serving HTTPS: OpenSSL takes 4 MiB.
        from gpu_triage.serve.tls import TlsTransport  # noqa: PLC0415

        return TlsTransport(connection, security.context, security.config.tls)
