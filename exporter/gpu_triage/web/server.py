"""The server: listening sockets, an event loop, and an end that comes when it is asked for."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from uvicorn.config import Config

from gpu_triage.web.accept import Acceptor
from gpu_triage.web.crowd import Crowd, Limits
from gpu_triage.web.gate import Gate
from gpu_triage.web.listen import close_listener, inherited_listeners, listener_url, open_listeners
from gpu_triage.web.passwords import PasswordChecks
from gpu_triage.web.protocol import GuardedProtocol
from gpu_triage.web.security import RELOAD_SECONDS, Reloader, SecuritySource

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from gpu_triage.web.app import WebApp


class WebServer:
    """Serves one application on one or more addresses.

    uvicorn's own Server is left out: it takes over the process's signals, and wakes ten times a second.

    Args:
        app: what answers; closed when the server ends.
        listen_addresses: ``:port``, ``host:port``, ``[v6]:port`` or ``unix:/path``; see `open_listeners`. None takes
            the sockets that systemd opened.
        security: TLS, passwords and headers; None for plain HTTP to everyone.
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
        limits: Limits | None = None,
        wall: Callable[[], float] = time.time,
        reload_seconds: float = RELOAD_SECONDS,
    ) -> None:
        self._app = app
        self._addresses = None if listen_addresses is None else tuple(listen_addresses)
        self._security = security or SecuritySource()
        self._reload_seconds = reload_seconds
        self._limits = limits or Limits()
        self._wall = wall
        self._listeners: list[socket.socket] = []
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
        acceptor = Acceptor(self._protocol_config(), crowd, self._security)
        accepting = [loop.create_task(acceptor.serve(listener)) for listener in self._listeners]
        reloader = Reloader(
            self._security, lambda: loop.call_soon_threadsafe(crowd.recycle), interval_seconds=self._reload_seconds
        )
        # On the loop: a signal handler must not touch locks that this thread may hold.
        self._look_now = lambda: loop.call_soon_threadsafe(reloader.look_now)
        try:
            await stop.wait()
        finally:
            reloader.stop()
            for task in accepting:
                task.cancel()
            await asyncio.gather(*accepting, return_exceptions=True)
            for listener in self._listeners:
                close_listener(listener, inherited=self._addresses is None)
            await crowd.disperse()
            self._app.close()

    def _protocol_config(self) -> Config:
        config = Config(
            Gate(self._app, self._security, PasswordChecks()),
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
        return config
