"""Listening sockets from the addresses an operator writes."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gpu_triage.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BACKLOG = 128
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def open_listeners(addresses: Sequence[str]) -> list[socket.socket]:
    """Sockets that listen on every one of the addresses, in their order; all or none.

    Args:
        addresses: ``:port`` (every interface, IPv4 and IPv6 alike), ``host:port`` or ``[v6]:port``; port 0
            leaves the choice to the kernel.

    Raises:
        ConfigError: an address that cannot be understood, resolved or bound; the message names it and why.
    """
    with ExitStack() as opened:
        listeners: list[socket.socket] = []
        for address in addresses:
            for listener in _listeners(address):
                opened.callback(listener.close)
                listeners.append(listener)
        opened.pop_all()
    return listeners


def listener_url(listener: socket.socket, scheme: str) -> str:
    """The URL that reaches a listening socket, such as ``http://127.0.0.1:9836`` or ``http://[::]:9836``."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _listeners(address: str) -> Iterator[socket.socket]:
    host, port = _split(address)
    absent: OSError | None = None
    listening = False
    for family, where in _places(address, host, port):
        try:
            listener = _listen(family, where)
        except OSError as error:
            # One family may be missing from the kernel while the other is there.
            if error.errno not in _NO_SUCH_FAMILY:
                raise _refused(address, error) from error
            absent = error
            continue
        yield listener
        listening = True
        if host is None:
            return  # the dual-stack socket serves IPv4 as well
    if not listening:
        raise _refused(address, absent) from absent


def _places(address: str, host: str | None, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    if host is None:
        return [(socket.AF_INET6, ("::", port)), (socket.AF_INET, ("0.0.0.0", port))]  # noqa: S104 - asked for
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _refused(address, error) from error
    return list(dict.fromkeys((family, where) for family, _, _, _, where in found))


def _listen(family: int, where: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait for the last process's connections to leave TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit it. asyncio sets it only on sockets made with the protocol spelled out, and
        # without it the end of a short page waits 40 ms for the client's delayed acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(where[0] != "::"))
        listener.bind(where)
        listener.listen(_BACKLOG)
        listener.setblocking(False)  # noqa: FBT003 - the socket module's own signature
    except BaseException:
        listener.close()
        raise
    return listener


def _split(address: str) -> tuple[str | None, int]:
    try:
        parts = urlsplit(f"//{address}")
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"--web.listen-address {address!r}: {error}") from error
    if port is None or parts.netloc != address or "@" in address:
        raise ConfigError(f"--web.listen-address {address!r}: write host:port, :port or [v6]:port, such as :9836")
    return parts.hostname, port


def _refused(address: str, error: OSError | None) -> ConfigError:
    why = "no such address on this host" if error is None else error.strerror or str(error)
    return ConfigError(f"--web.listen-address {address!r}: {why}")
