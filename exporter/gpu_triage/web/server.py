"""The server: listening sockets, an event loop, and an end that comes when it is asked for."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from uvicorn.config import Config

from gpu_triage.web.crowd import Crowd, Limits
from gpu_triage.web.listen import listener_url, open_listeners
from gpu_triage.web.protocol import GuardedProtocol

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Sequence

    from gpu_triage.web.app import WebApp


class WebServer:
    """Serves one application on one or more addresses.

    uvicorn's own Server is left out: it takes over the process's signals, and wakes ten times a second.

    Args:
        app: what answers; closed when the server ends.
        listen_addresses: ``:port``, ``host:port`` or ``[v6]:port``; see `open_listeners`.
        tls: the context to serve HTTPS with, None for HTTP.
        limits: what clients may take.
        wall: seconds since the Unix epoch, for the Date header.
    """

    def __init__(
        self,
        app: WebApp,
        listen_addresses: Sequence[str],
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._app = app
        self._addresses = tuple(listen_addresses)
        self._tls = tls
        self._limits = limits or Limits()
        self._wall = wall
        self._listeners: list[socket.socket] = []
        self._stopping = False
        self._wake: Callable[[], object] | None = None

    def bind(self) -> list[str]:
        """URLs of the listening sockets, opened here; clients may connect from now on and wait for `run`.

        Raises:
            ConfigError: an address cannot be bound; the message names it and why. None is left open.
        """
        self._listeners = open_listeners(self._addresses)
        scheme = "http" if self._tls is None else "https"
        return [listener_url(listener, scheme) for listener in self._listeners]

    def run(self) -> None:
        """Serve on the calling thread until `stop`; installs no signal handlers of its own.

        In the main thread set a handler for SIGINT first, or asyncio turns it into KeyboardInterrupt.

        Raises:
            ConfigError: as `bind`, where that was not called before.
        """
        if not self._listeners:
            self.bind()
        asyncio.run(self._serve())

    def stop(self) -> None:
        """Make `run` return within a second, whatever clients do; from any thread or signal handler."""
        self._stopping = True
        if self._wake is not None:
            with suppress(RuntimeError):  # the loop is closed: it has already ended
                self._wake()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        # First the way to wake this loop, then the look at the flag: a stop() in between is not missed.
        self._wake = lambda: loop.call_soon_threadsafe(stop.set)
        if self._stopping:
            stop.set()
        crowd = Crowd(self._limits, self._wall)
        servers = await self._accept(crowd)
        try:
            await stop.wait()
        finally:
            for server in servers:
                server.close()
            await crowd.disperse()
            self._app.close()

    async def _accept(self, crowd: Crowd) -> list[asyncio.Server]:
        config = Config(
            self._app,
            interface="asgi3",
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            workers=1,  # else uvicorn reads WEB_CONCURRENCY from the environment
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=self._limits.idle_seconds,
        )
        config.load()
        loop = asyncio.get_running_loop()
        return [
            await loop.create_server(
                lambda: GuardedProtocol(config, crowd),
                sock=listener,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._limits.request_seconds,
            )
            for listener in self._listeners
        ]
